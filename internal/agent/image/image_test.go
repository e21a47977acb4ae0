package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// pack makes an archive of npm out of lines "<type> <mode> <name> [<text or target>]".
func pack(t testing.TB, lines string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for line := range strings.Lines(lines) {
		f := append(strings.Fields(line), "")
		var mode int64
		if _, err := fmt.Sscanf(f[1], "%o", &mode); err != nil {
			t.Fatal(err)
		}
		h := tar.Header{Typeflag: f[0][0], Mode: mode, Name: strings.ReplaceAll(f[2], `\n`, "\n"), Uid: 1000, Uname: "maker"}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(f[3]))
		} else {
			h.Linkname, f[3] = f[3], ""
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f[3]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func integrity(b []byte) string {
	sum := sha512.Sum512(b)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// layerOf is the layer of one package with archive, and what is in it.
func layerOf(archive []byte, hash, from string) (raw []byte, listing string, err error) {
	tm := Template{Agent: "a", Version: "1", Programs: map[string]string{"a": "a/bin/a"}, Packages: []Package{{Name: "@m/a", Version: "1", Arch: "amd64", Into: "a", From: from, Integrity: hash}}}
	var b, l bytes.Buffer
	err = tm.Layer(context.Background(), &b, "amd64", func(Package) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil })
	if err != nil {
		return nil, "", err
	}
	for r := tar.NewReader(bytes.NewReader(b.Bytes())); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.Bytes(), l.String(), nil
		}
		if err != nil {
			return nil, "", err
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return nil, "", err
		}
		fmt.Fprintf(&l, "%c %o %d:%d %d %s %s%s\n", h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), h.Name, h.Linkname, text)
	}
}

// TestLayer: cases are archives, and the layer or the error that comes of them.
func TestLayer(t *testing.T) {
	a, err := txtar.ParseFile("testdata/layers.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(a.Files); i += 2 {
		name, archive := a.Files[i].Name, pack(t, string(a.Files[i].Data))
		from, _ := strings.CutPrefix(path.Ext(name), ".from-")
		raw, got, err := layerOf(archive, integrity(archive), from)
		if err != nil {
			got = err.Error() + "\n"
		}
		if want := string(a.Files[i+1].Data); got != want {
			t.Errorf("%s:\n%swant\n%s", name, got, want)
		}
		if again, _, _ := layerOf(archive, integrity(archive), from); !bytes.Equal(raw, again) {
			t.Errorf("%s: the second time there are other bytes", name)
		}
		if _, _, err := layerOf(append(archive, 0), integrity(archive), from); err == nil {
			t.Errorf("%s: a byte more made a layer", name)
		}
		if _, _, err := layerOf(archive, integrity(archive[1:]), from); err == nil {
			t.Errorf("%s: another hash made a layer", name)
		}
	}
}

func TestTemplates(t *testing.T) {
	all, err := List()
	if err != nil || len(all) < 4 {
		t.Fatal(len(all), err)
	}
	lock, err := os.ReadFile("../../../test/npm/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		hashes := map[string]bool{}
		for _, arch := range []string{"amd64", "arm64"} {
			packages, err := one.For(arch)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range packages {
				if _, err := p.Check(nil); err != nil {
					t.Error(err)
				}
				if !bytes.Contains(lock, []byte(`"`+p.Integrity+`"`)) {
					t.Errorf("%s %s is not what the tests run: test/npm has another hash", p.Name, p.Version)
				}
			}
			for _, base := range []string{"sha256:a", "sha256:b"} {
				h, err := one.Hash(base, arch)
				if err != nil || hashes[h] {
					t.Errorf("%s: hash %s, %v", one.Agent, h, err)
				}
				hashes[h] = true
			}
		}
		if _, err := one.For("mips"); err == nil {
			t.Errorf("there is %s for mips", one.Agent)
		}
	}
	if p := (Package{Name: "@m/a", Version: "1.2"}); p.File() != "@m/a/-/a-1.2.tgz" {
		t.Error(p.File())
	}
}

// FuzzLayer: whatever an archive is, everything that comes of it is in the directory of its
// package or is the programs, and belongs to root.
func FuzzLayer(f *testing.F) {
	f.Add(pack(f, "0 755 package/bin/a x\n0 644 package/../../etc/passwd x\n"))
	f.Add(pack(f, "0 4755 package/bin/a x\n"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		_, listing, err := layerOf(archive, integrity(archive), "")
		if err != nil {
			return
		}
		for line := range strings.Lines(listing) {
			w := strings.Fields(line)
			if len(w) < 5 || w[2] != "0:0" || w[1] != "755" && w[1] != "644" && w[0] != "2" {
				continue // the text of a file has lines too
			}
			if name := w[4]; path.Clean(name) != strings.TrimSuffix(name, "/") || !strings.HasPrefix("opt/ringfence/", name) && !strings.HasPrefix(name, "opt/ringfence/a/") && !strings.HasPrefix(name, "opt/ringfence/bin/") {
				t.Errorf("%q", line)
			}
		}
	})
}
