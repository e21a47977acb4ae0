package policy

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

var (
	testKey  = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	otherKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))
	trusted  = []ed25519.PublicKey{testKey.Public().(ed25519.PublicKey)}
)

// testBundle is a bundle of every kind of file.
func testBundle(t testing.TB) map[string][]byte {
	t.Helper()
	clauses := []Clause{{
		ID: "c1", Line: 1, Column: 1, Text: "may read @l", Modality: May, Kinds: readKinds, On: []Pattern{{Type: "Path", List: "@l"}},
		Limit: &Limit{Count: 3, Window: time.Hour, PerSession: true}, When: []Condition{{FactHour, "<", int64(9)}},
	}}
	text, err := Cedar(clauses, true)
	if err != nil {
		t.Fatal(err)
	}
	b := Bundle{
		Constitution: []byte("May read @l.\n"), Clauses: clauses,
		Layer:       Layer{Text: text, Lists: map[string]List{"l": {Members: []string{"${workspace}"}}}},
		Annotations: map[string]*Annotation{"x": {Name: "x", Tools: map[string]ToolAnnotation{}}},
		Scenarios:   []byte("{}\n"),
	}
	files, err := b.Files()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func seal(t testing.TB, files map[string][]byte, key ed25519.PrivateKey) map[string][]byte {
	t.Helper()
	sealed, err := Seal(files, "v1", key)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func asFS(files map[string][]byte) fstest.MapFS {
	m := fstest.MapFS{}
	for name, data := range files {
		m[name] = &fstest.MapFile{Data: data, Mode: 0o644}
	}
	return m
}

func TestBundle(t *testing.T) {
	files := seal(t, testBundle(t), testKey)
	p, b, err := LoadBundle(asFS(files), Options{Trusted: trusted, Binding: Binding{Workspace: "/w"}, Layers: []Layer{{Name: "user"}}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Files()
	if err != nil {
		t.Fatal(err)
	}
	if sealed := seal(t, again, testKey); !maps.EqualFunc(sealed, files, bytes.Equal) {
		t.Error("a loaded bundle does not seal to the same files")
	}
	if b.Manifest.Compiler != "v1" || b.Manifest.Policy != hexHash(b.Layer.Text) || b.Manifest.Constitution != hexHash(b.Constitution) {
		t.Errorf("%+v", b.Manifest)
	}
	if l := p.Limits(); len(l) != 1 || l["c1"] != (Limit{3, time.Hour, true}) {
		t.Errorf("limits %v", l)
	}
	if p.layers[1].name != "user" || p.layers[2].name != Bedrock {
		t.Error("layers are not in order")
	}
}

// TestBundleTampered: any change of a sealed bundle is found (PO-03).
func TestBundleTampered(t *testing.T) {
	good := seal(t, testBundle(t), testKey)
	for name := range good {
		for _, how := range []string{"changed", "cut short", "emptied", "missing"} {
			files := maps.Clone(good)
			switch data := slices.Clone(files[name]); how {
			case "changed":
				data[len(data)/2] ^= 1
				files[name] = data
			case "cut short":
				files[name] = data[:len(data)/2]
			case "emptied":
				files[name] = nil
			case "missing":
				delete(files, name)
			}
			if _, _, err := LoadBundle(asFS(files), Options{Trusted: trusted, Binding: Binding{Workspace: "/w"}}); err == nil {
				t.Errorf("%s: %s is not found", name, how)
			}
		}
	}
}

func TestBundleRefused(t *testing.T) {
	const permit = "permit (principal, action, resource);"
	manifest := func(edit func(m map[string][]byte)) map[string][]byte {
		files := seal(t, testBundle(t), testKey)
		edit(files)
		return files
	}
	resigned := func(text string) map[string][]byte {
		return manifest(func(m map[string][]byte) {
			m[FileManifest] = []byte(text)
			other := seal(t, testBundle(t), testKey)
			sig := ed25519.Sign(testKey, append([]byte(signatureDomain), text...))
			words := strings.Fields(string(other[FileSignature]))
			m[FileSignature] = []byte(strings.Join([]string{words[0], words[1], b64(sig)}, " ") + "\n")
		})
	}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		o     Options
		want  string
	}{
		{
			"edited by hand", manifest(func(m map[string][]byte) { m[FilePolicy] = []byte(permit) }),
			Options{Trusted: trusted},
			"policy.cedar: it was changed after it was signed (SHA-256 is",
		},
		{
			"edited, how to sign", manifest(func(m map[string][]byte) { m[FilePolicy] = []byte(permit) }),
			Options{Trusted: trusted},
			"ringfence constitution compile constitution.md -o DIR",
		},
		{"edited, unsigned allowed", manifest(func(m map[string][]byte) { m[FilePolicy] = []byte(permit) }), Options{AllowUnsigned: true}, "it was changed"},
		{
			"extra", manifest(func(m map[string][]byte) { m["annotations/y.json"] = []byte(`{"name":"y","tools":{}}`) }),
			Options{Trusted: trusted},
			"annotations/y.json: it is there, but not in the manifest",
		},
		{"missing", manifest(func(m map[string][]byte) { delete(m, FileLists) }), Options{Trusted: trusted}, "lists.json: it is in the manifest, but not there"},
		{"no signature", manifest(func(m map[string][]byte) { delete(m, FileSignature) }), Options{Trusted: trusted}, `manifest.sig: not "ed25519"`},
		{"bad key", manifest(func(m map[string][]byte) { m[FileSignature] = []byte("ed25519 AAAA BBBB\n") }), Options{Trusted: trusted}, `manifest.sig: not "ed25519"`},
		{"bad base64", manifest(func(m map[string][]byte) {
			words := strings.Fields(string(m[FileSignature]))
			m[FileSignature] = []byte("ed25519 " + words[1] + " !\n")
		}), Options{Trusted: trusted}, `manifest.sig: not "ed25519"`},
		{"untrusted", seal(t, testBundle(t), otherKey), Options{Trusted: trusted}, "manifest.sig: the key that signed this bundle is not trusted here"},
		{"nobody trusted", seal(t, testBundle(t), testKey), Options{}, "is not trusted here"},
		{
			"forged", manifest(func(m map[string][]byte) { m[FileManifest] = append(m[FileManifest], ' ') }),
			Options{Trusted: trusted},
			"manifest.sig: the signature does not fit the manifest",
		},
		{"manifest unknown member", resigned(`{"format":1,"sha":{}}`), Options{Trusted: trusted}, `manifest.json:1:13: unknown member: "sha"`},
		{"manifest format", resigned(`{"format":2}`), Options{Trusted: trusted}, "manifest.json: format 2, this program reads 1"},
		{"manifest contradicts itself", manifest(func(m map[string][]byte) {
			text := strings.Replace(string(m[FileManifest]), `"policy": "`, `"policy": "0`, 1)
			maps.Copy(m, resigned(text))
		}), Options{Trusted: trusted}, "manifest.json: it does not say the same of policy.cedar in two places"},
		{"unsigned", map[string][]byte{FilePolicy: []byte(permit)}, Options{Trusted: trusted}, "it has no manifest.json, so nobody has signed it"},
		{"nothing", nil, Options{AllowUnsigned: true}, "policy.cedar: it is missing"},
		{
			"strange file",
			map[string][]byte{FilePolicy: []byte(permit), "list.json": nil},
			Options{AllowUnsigned: true},
			"list.json: no such file belongs in a bundle; did you mean lists.json?",
		},
		{"strange folder", map[string][]byte{FilePolicy: []byte(permit), "x/y/zzzzzzzzzzzzzzzzzz": nil}, Options{AllowUnsigned: true}, "x: no such file belongs in a bundle"},
		{"file for folder", map[string][]byte{"annotations": nil}, Options{AllowUnsigned: true}, "annotations: no such file"},
		{"no annotation", map[string][]byte{"annotations/x.txt": nil}, Options{AllowUnsigned: true}, "annotations/x.txt: no such file"},
		{"bad clauses", map[string][]byte{FilePolicy: nil, FileClauses: []byte(`[{"limit":{"count":"x"}}]`)}, Options{AllowUnsigned: true}, "clauses.json:"},
		{"bad lists", map[string][]byte{FilePolicy: nil, FileLists: []byte(`{"a":1}`)}, Options{AllowUnsigned: true}, "lists.json:1:"},
		{"list name", map[string][]byte{FilePolicy: nil, FileLists: []byte(`{"@a":{}}`)}, Options{AllowUnsigned: true}, `lists.json: the name "@a"`},
		{"bad annotation", map[string][]byte{FilePolicy: nil, "annotations/x.json": []byte(`{`)}, Options{AllowUnsigned: true}, "annotations/x.json:"},
		{"bad policy", map[string][]byte{FilePolicy: []byte("\n\npermit (principal);")}, Options{AllowUnsigned: true}, "policy.cedar:3:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Binding = Binding{Workspace: "/w"}
			p, b, err := LoadBundle(asFS(c.files), c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) || p != nil || b != nil {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

func TestBundleUnsigned(t *testing.T) {
	files := map[string][]byte{FilePolicy: []byte("permit (principal, action, resource);")}
	if _, b, err := LoadBundle(asFS(files), Options{AllowUnsigned: true}); err != nil || b.Manifest.Format != 0 {
		t.Error(b, err)
	}
	files = seal(t, testBundle(t), otherKey)
	if _, b, err := LoadBundle(asFS(files), Options{AllowUnsigned: true, Binding: Binding{Workspace: "/w"}}); err != nil || b.Manifest.Format != 1 {
		t.Error(b, err)
	}
}

func TestSealRefused(t *testing.T) {
	for want, files := range map[string]map[string][]byte{
		"policy.cedar is missing":                      {FileConstitution: nil},
		"constitution.md is missing":                   {FilePolicy: nil},
		"../x: no such file belongs":                   {"../x": nil, FilePolicy: nil, FileConstitution: nil},
		"scenarios.jsonl: no such file belongs in a b": {FileScenarios: make([]byte, maxBundleFile+1)},
	} {
		if _, err := Seal(files, "v1", testKey); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := Seal(testBundle(t), "v1", nil); err == nil {
		t.Error("sealed without a key")
	}
	b := Bundle{Clauses: []Clause{{When: []Condition{{Value: func() {}}}}}}
	if _, err := b.Files(); err == nil {
		t.Error("a function was written as JSON")
	}
}

// faulty is a file system in which one file cannot be read, or lies of its size.
type faulty struct {
	fstest.MapFS
	size int64
}

func (f faulty) ReadFile(string) ([]byte, error) { return nil, errors.New("disk fault") }

func (f faulty) ReadDir(name string) ([]fs.DirEntry, error) {
	if f.size < 0 {
		return nil, errors.New("disk fault")
	}
	entries, err := f.MapFS.ReadDir(name)
	for i := range entries {
		entries[i] = sized{entries[i], f.size}
	}
	return entries, err
}

type sized struct {
	fs.DirEntry
	size int64
}

func (s sized) Info() (fs.FileInfo, error) { return s, nil }
func (s sized) Size() int64                { return s.size }
func (s sized) Mode() fs.FileMode          { return 0o644 }
func (s sized) ModTime() time.Time         { return time.Time{} }
func (s sized) Sys() any                   { return nil }

func TestBundleFaults(t *testing.T) {
	files := asFS(map[string][]byte{FilePolicy: nil})
	for size, want := range map[int64]string{-1: "disk fault", 1: "disk fault", maxBundleFile + 1: "policy.cedar: more than 16 MiB"} {
		if _, _, err := LoadBundle(faulty{files, size}, Options{AllowUnsigned: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("size %d: error %v, want %s", size, err, want)
		}
	}
	many := map[string][]byte{}
	for i := range maxBundleFiles + 1 {
		many["annotations/"+strings.Repeat("a", i%50+1)+strings.Repeat("b", i/50)+".json"] = nil
	}
	if _, _, err := LoadBundle(asFS(many), Options{AllowUnsigned: true}); err == nil || !strings.Contains(err.Error(), "more than 1000 files") {
		t.Error(err)
	}
	link := fstest.MapFS{FilePolicy: {Data: []byte("x"), Mode: fs.ModeSymlink}}
	if _, _, err := LoadBundle(link, Options{AllowUnsigned: true}); err == nil || !strings.Contains(err.Error(), "policy.cedar: it is no regular file") {
		t.Error(err)
	}
}

func FuzzLoadBundle(f *testing.F) {
	f.Add([]byte("permit (principal, action, resource);"), []byte(`[]`), []byte(`{"l":{"members":["/a"]}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, policy, clauses, lists, manifest []byte) {
		files := asFS(map[string][]byte{FilePolicy: policy, FileClauses: clauses, FileLists: lists})
		if len(manifest) > 0 {
			files[FileManifest] = &fstest.MapFile{Data: manifest}
		}
		p, b, err := LoadBundle(files, Options{AllowUnsigned: true, Binding: Binding{Workspace: "/w", Home: "/h"}})
		if (err == nil) != (p != nil && b != nil) {
			t.Fatal(p, b, err)
		}
	})
}

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
