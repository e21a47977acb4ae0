package policy

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

// The files of a bundle, besides annotations/NAME.json.
const (
	FileConstitution = "constitution.md" // the English
	FileClauses      = "clauses.json"    // a list of [Clause]
	FilePolicy       = "policy.cedar"    // what is enforced
	FileLists        = "lists.json"      // an object of [List], by name without @
	FileScenarios    = "scenarios.jsonl" // what must come out, one case a line
	FileManifest     = "manifest.json"   // a [Manifest]
	FileSignature    = "manifest.sig"    // see [Seal]
	folderAnnotation = "annotations"
)

// Bounds on a bundle.
const (
	maxBundleFile  = 16 << 20 // bytes of one file
	maxBundleFiles = 1000
)

const (
	bundleFormat = 1
	// signatureDomain separates signatures of manifests from all others.
	signatureDomain = "ringfence bundle manifest v1\x00"
)

// A Bundle is the content of a policy directory.
type Bundle struct {
	Manifest     Manifest // zero for an unsigned directory
	Constitution []byte
	Clauses      []Clause
	Layer        Layer                  // policy.cedar and lists.json, as a granting layer
	Annotations  map[string]*Annotation // by name, those that override shipped ones
	Scenarios    []byte
}

// A Manifest names every file of a bundle with its hash.
type Manifest struct {
	Format       int               `json:"format"`       // 1
	Compiler     string            `json:"compiler"`     // version of the program that wrote it
	Constitution string            `json:"constitution"` // hex SHA-256 of constitution.md
	Policy       string            `json:"policy"`       // hex SHA-256 of policy.cedar
	Files        map[string]string `json:"files"`        // path in the bundle to hex SHA-256
}

// Options say how a bundle is loaded. The zero value accepts none.
type Options struct {
	Trusted []ed25519.PublicKey // keys that may sign; one suffices
	// AllowUnsigned accepts a directory without manifest, of which only
	// policy.cedar is required, and a manifest signed by any key. What a manifest
	// says must still be true.
	AllowUnsigned bool
	Binding       Binding
	Layers        []Layer // those below the bundle, "organisation" first
}

// LoadBundle reads and checks the bundle in fsys and loads its policy together
// with the layers of o. Errors name the file, and the line where there is one.
func LoadBundle(fsys fs.FS, o Options) (*Policy, *Bundle, error) {
	files, err := readFiles(fsys)
	if err != nil {
		return nil, nil, err
	}
	b := &Bundle{}
	if _, ok := files[FileManifest]; ok || !o.AllowUnsigned {
		if err := b.checkManifest(files, o); err != nil {
			return nil, nil, err
		}
	}
	if err := b.parse(files); err != nil {
		return nil, nil, err
	}
	p, err := Load(append([]Layer{b.Layer}, o.Layers...), o.Binding)
	if err != nil {
		return nil, nil, err
	}
	return p, b, nil
}

// readFiles returns the files of a bundle, by path. Anything that is none is
// refused.
func readFiles(fsys fs.FS) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "." || name == folderAnnotation):
			return nil
		case bundleFile(name) && !d.Type().IsRegular():
			return fmt.Errorf("%s: it is no regular file", name)
		case !bundleFile(name):
			msg := fmt.Sprintf("%s: no such file belongs in a bundle", name)
			if near := strictjson.Nearest(name, bundleNames); near != "" && near != name {
				msg += fmt.Sprintf("; did you mean %s?", near)
			}
			return errors.New(msg)
		case len(files) == maxBundleFiles:
			return fmt.Errorf("a bundle of more than %d files", maxBundleFiles)
		}
		info, err := d.Info()
		if err == nil && info.Size() > maxBundleFile {
			err = fmt.Errorf("%s: more than %d MiB", name, maxBundleFile>>20)
		}
		if err == nil {
			files[name], err = fs.ReadFile(fsys, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading bundle: %w", err)
	}
	return files, nil
}

var bundleNames = []string{
	FileConstitution, FileClauses, FilePolicy, FileLists, FileScenarios, FileManifest, FileSignature, folderAnnotation,
}

// bundleFile reports whether a bundle may hold a file of that name.
func bundleFile(name string) bool {
	if dir, file := path.Split(name); dir == folderAnnotation+"/" {
		return strings.HasSuffix(file, ".json")
	}
	return name != folderAnnotation && slices.Contains(bundleNames, name)
}

func hexHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// checkManifest checks the signature, and that the manifest tells the truth about
// every file.
func (b *Bundle) checkManifest(files map[string][]byte, o Options) error {
	manifest, ok := files[FileManifest]
	if !ok {
		return fmt.Errorf("reading bundle: it has no %s, so nobody has signed it", FileManifest)
	}
	if err := checkSignature(files[FileSignature], manifest, o); err != nil {
		return fmt.Errorf("%s: %w", FileSignature, err)
	}
	if err := strictjson.Unmarshal(manifest, &b.Manifest); err != nil {
		return fmt.Errorf("%s:%w", FileManifest, err)
	}
	m := &b.Manifest
	if m.Format != bundleFormat {
		return fmt.Errorf("%s: format %d, this program reads %d", FileManifest, m.Format, bundleFormat)
	}
	if err := compareFiles(files, m.Files); err != nil {
		return err
	}
	for name, want := range map[string]string{FileConstitution: m.Constitution, FilePolicy: m.Policy} {
		if m.Files[name] != want || want == "" {
			return fmt.Errorf("%s: it does not say the same of %s in two places", FileManifest, name)
		}
	}
	return nil
}

// compareFiles compares files with their hashes in a manifest.
func compareFiles(files map[string][]byte, hashes map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(hashes)) {
		if _, ok := files[name]; !ok {
			return fmt.Errorf("%s: it is in the manifest, but not there", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name == FileManifest || name == FileSignature {
			continue
		}
		want, ok := hashes[name]
		if !ok {
			return fmt.Errorf("%s: it is there, but not in the manifest", name)
		}
		if got := hexHash(files[name]); got != want {
			return fmt.Errorf("%s: it was changed after it was signed (SHA-256 is %s, was %s). "+
				"To put a change in force, change %s and compile again, which signs: ringfence constitution compile %[4]s -o DIR. "+
				"A policy written by hand goes into a directory without manifest", name, got, want, FileConstitution)
		}
	}
	return nil
}

// Why a signature is refused.
var (
	errSignature = errors.New(`not "ed25519", a public key and a signature in base64`)
	errUntrusted = errors.New("the key that signed this bundle is not trusted here; compile the constitution again to sign it with yours")
	errForged    = errors.New("the signature does not fit the manifest")
)

// checkSignature checks sig, which [Seal] describes.
func checkSignature(sig, manifest []byte, o Options) error {
	words := strings.Split(strings.TrimSuffix(string(sig), "\n"), " ")
	if len(words) != 3 || words[0] != "ed25519" {
		return errSignature
	}
	key, err := base64.StdEncoding.Strict().DecodeString(words[1])
	if err != nil || len(key) != ed25519.PublicKeySize {
		return errSignature
	}
	signature, err := base64.StdEncoding.Strict().DecodeString(words[2])
	if err != nil {
		return errSignature
	}
	trusted := slices.ContainsFunc(o.Trusted, func(k ed25519.PublicKey) bool { return bytes.Equal(k, key) })
	if !trusted && !o.AllowUnsigned {
		return errUntrusted
	}
	if !ed25519.Verify(key, append([]byte(signatureDomain), manifest...), signature) {
		return errForged
	}
	return nil
}

// parse reads the files that are not text.
func (b *Bundle) parse(files map[string][]byte) (err error) {
	text, ok := files[FilePolicy]
	if !ok {
		return fmt.Errorf("%s: it is missing", FilePolicy)
	}
	b.Constitution, b.Scenarios = files[FileConstitution], files[FileScenarios]
	b.Layer = Layer{File: FilePolicy, Text: text}
	if err := unmarshal(files, FileClauses, &b.Clauses); err != nil {
		return err
	}
	if err := unmarshal(files, FileLists, &b.Layer.Lists); err != nil {
		return err
	}
	for name := range b.Layer.Lists {
		if !wellFormedID(name) || name == "" {
			return fmt.Errorf("%s: the name %q is not of letters, digits, dots, underscores and hyphens (and without @)", FileLists, clip(name))
		}
	}
	b.Annotations, err = parseAnnotations(files)
	return err
}

func unmarshal(files map[string][]byte, name string, v any) error {
	data, ok := files[name]
	if !ok {
		return nil
	}
	if err := strictjson.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s:%w", name, err)
	}
	return nil
}

// Files returns the files of b but the manifest and its signature, for [Seal].
func (b *Bundle) Files() (map[string][]byte, error) {
	files := map[string][]byte{FileConstitution: b.Constitution, FilePolicy: b.Layer.Text}
	if b.Scenarios != nil {
		files[FileScenarios] = b.Scenarios
	}
	values := map[string]any{FileClauses: b.Clauses, FileLists: b.Layer.Lists}
	for name, a := range b.Annotations {
		values[path.Join(folderAnnotation, name+".json")] = a
	}
	for name, v := range values {
		data, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
		files[name] = append(data, '\n')
	}
	return files, nil
}

// Seal returns files (path in the bundle to content) with manifest.json and
// manifest.sig added. The signature file is one line: "ed25519", the public key
// and the signature in base64, the signature over the domain
// "ringfence bundle manifest v1\0" and the bytes of manifest.json. A file that no
// bundle may hold is an error, and so is a missing constitution or policy.
func Seal(files map[string][]byte, compiler string, key ed25519.PrivateKey) (map[string][]byte, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("sealing bundle: the key is no Ed25519 private key")
	}
	m := Manifest{Format: bundleFormat, Compiler: compiler, Files: map[string]string{}}
	sealed := maps.Clone(files)
	delete(sealed, FileManifest)
	delete(sealed, FileSignature)
	for name, data := range sealed {
		if !bundleFile(name) || len(data) > maxBundleFile {
			return nil, fmt.Errorf("sealing bundle: %s: no such file belongs in a bundle", clip(name))
		}
		m.Files[name] = hexHash(data)
	}
	for _, name := range []string{FileConstitution, FilePolicy} {
		if _, ok := files[name]; !ok {
			return nil, fmt.Errorf("sealing bundle: %s is missing", name)
		}
	}
	m.Constitution, m.Policy = m.Files[FileConstitution], m.Files[FilePolicy]
	manifest, _ := json.MarshalIndent(m, "", "  ") // strings and a number always encode
	manifest = append(manifest, '\n')
	sig := ed25519.Sign(key, append([]byte(signatureDomain), manifest...))
	sealed[FileManifest] = manifest
	sealed[FileSignature] = fmt.Appendf(nil, "ed25519 %s %s\n",
		base64.StdEncoding.EncodeToString(key[ed25519.SeedSize:]), base64.StdEncoding.EncodeToString(sig))
	return sealed, nil
}
