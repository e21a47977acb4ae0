// Package image says what an image of an agent is made of, and makes the layer that lies
// on its base: packages of npm by exact version and hash, unpacked, and a directory with
// the programs.
//
// It fetches nothing, runs nothing and speaks to no engine. Nothing of a package is run to
// install it: those that are named here are whole without that.
//
// Invariants:
//
//	M1  What is in a layer has the hash that its template names, or there is no layer.
//	M2  The same template and architecture make the same bytes, on every machine.
//	M3  A package can put files and directories below its own directory, and nothing else:
//	    no links, no devices, no set-user-ID, nobody's but root's to write.
package image

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
)

//go:embed templates/*.json
var shipped embed.FS

// Root is where everything of an agent is in its image, and Programs the directory of its
// programs.
const (
	Root     = "/opt/ringfence"
	Programs = Root + "/bin"
)

// A Template is what an image is made of, besides its base.
type Template struct {
	Agent   string `json:"agent"` // as package external names it
	Version string `json:"version"`
	// Programs are files below Root, by the name that they have in Programs.
	Programs map[string]string `json:"programs"`
	Packages []Package         `json:"packages"`
}

// A Package is one of npm.
type Package struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Arch      string `json:"arch"`           // as Go names it; "" is any
	Into      string `json:"into"`           // directory below Root
	From      string `json:"from,omitempty"` // directory of the package that is taken; "" is all
	Integrity string `json:"integrity"`      // of the archive, "sha512-" and base64, as package-lock.json has it
}

// Bounds of a layer.
const (
	maxFiles = 100_000
	maxBytes = 4 << 30
)

// List returns the shipped templates, by agent.
func List() ([]Template, error) {
	entries, err := shipped.ReadDir("templates")
	if err != nil {
		return nil, fmt.Errorf("reading templates of images: %w", err)
	}
	var all []Template
	for _, e := range entries {
		text, err := shipped.ReadFile("templates/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("reading templates of images: %w", err)
		}
		var t Template
		if err := strictjson.Unmarshal(text, &t); err != nil {
			return nil, fmt.Errorf("reading the template %s: %w", e.Name(), err)
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Template) int { return cmp.Compare(a.Agent, b.Agent) })
	return all, nil
}

// Lookup returns the template of an agent; false if there is none.
func Lookup(agent string) (Template, bool, error) {
	all, err := List()
	i := slices.IndexFunc(all, func(t Template) bool { return t.Agent == agent })
	if err != nil || i < 0 {
		return Template{}, false, err
	}
	return all[i], true, nil
}

// For returns the packages for an architecture, as Go names it.
func (t Template) For(arch string) ([]Package, error) {
	var list []Package
	native := false
	for _, p := range t.Packages {
		if p.Arch == "" || p.Arch == arch {
			list = append(list, p)
			native = native || p.Arch == arch
		}
	}
	if !native {
		return nil, fmt.Errorf("there is no %s for %s", t.Agent, arch)
	}
	return list, nil
}

// form is what of this package decides about the bytes of a layer. It counts up with them.
const form = "ringfence image 1"

// Hash names what an image is made of: the id of its base, the architecture, and t.
func (t Template) Hash(base, arch string) (string, error) {
	text, err := json.Marshal([]any{form, base, arch, t})
	if err != nil {
		return "", fmt.Errorf("hashing the template of %s: %w", t.Agent, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// File is what the archive of p is called at its registry, below the registry's address.
func (p Package) File() string {
	return p.Name + "/-/" + path.Base(p.Name) + "-" + p.Version + ".tgz"
}

// ErrHash says that an archive is another than the template names.
var ErrHash = errors.New("it is not the archive that is named here: its hash is another")

// Check returns a reader of r whose end is ErrHash in the place of io.EOF if what was read
// has not the hash of p.
func (p Package) Check(r io.Reader) (io.Reader, error) {
	want, ok := strings.CutPrefix(p.Integrity, "sha512-")
	sum, err := base64.StdEncoding.DecodeString(want)
	if !ok || err != nil || len(sum) != sha512.Size {
		return nil, fmt.Errorf("%s: %q is no hash", p.Name, p.Integrity)
	}
	h := sha512.New()
	return &checked{from: io.TeeReader(r, h), right: func() bool { return string(h.Sum(nil)) == string(sum) }}, nil
}

type checked struct {
	from  io.Reader
	right func() bool
}

// Read implements [io.Reader].
func (c *checked) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	if errors.Is(err, io.EOF) && !c.right() {
		return 0, ErrHash
	}
	return n, err
}

// Layer writes the layer of t as a tar archive. open opens the archive of a package. What
// was written when there is an error is no layer.
func (t Template) Layer(ctx context.Context, w io.Writer, arch string, open func(Package) (io.ReadCloser, error)) error {
	packages, err := t.For(arch)
	if err != nil {
		return err
	}
	l := &layer{ctx: ctx, w: tar.NewWriter(w), made: map[string]bool{}, programs: map[string]bool{}}
	for _, at := range t.Programs {
		l.programs[path.Join(Root, at)] = true
	}
	for _, p := range packages {
		if err := l.unpack(p, open); err != nil {
			return fmt.Errorf("unpacking %s %s: %w", p.Name, p.Version, err)
		}
	}
	if err := l.dir(Programs); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(t.Programs)) {
		at := path.Join(Root, t.Programs[name])
		if !l.made[at] {
			return fmt.Errorf("making an image of %s: its packages have no %s", t.Agent, t.Programs[name])
		}
		if err := l.head(tar.Header{Typeflag: tar.TypeSymlink, Name: path.Join(Programs, name), Linkname: at, Mode: 0o777}); err != nil {
			return err
		}
	}
	return l.w.Close()
}

// A layer is one that is being written.
type layer struct {
	ctx      context.Context
	w        *tar.Writer
	made     map[string]bool // absolute paths
	programs map[string]bool
	size     int64
}

func (l *layer) unpack(p Package, open func(Package) (io.ReadCloser, error)) error {
	archive, err := open(p)
	if err != nil {
		return err
	}
	defer archive.Close()
	checked, err := p.Check(archive)
	if err != nil {
		return err
	}
	zipped, err := gzip.NewReader(checked)
	if err != nil {
		return err
	}
	unzipped := io.LimitReader(zipped, maxBytes)
	from := tar.NewReader(unzipped)
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = l.entry(p, h, from)
		}
		if err != nil {
			return err
		}
	}
	// What lies behind the archive counts for the hash.
	if _, err := io.Copy(io.Discard, unzipped); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, checked)
	return err
}

// entry writes one of a package, whose first directory is that of npm.
func (l *layer) entry(p Package, h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader {
		return nil // those that are needed are made
	}
	_, name, ok := strings.Cut(h.Name, "/")
	if h.Typeflag != tar.TypeReg || !ok || name != path.Clean(name) || !within(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '\\' }) {
		return fmt.Errorf("it has %q, which is no file that a package may have", h.Name)
	}
	if p.From != "" {
		if name, ok = strings.CutPrefix(name, p.From+"/"); !ok {
			return nil
		}
	}
	at := path.Join(Root, p.Into, name)
	if l.made[at] {
		return fmt.Errorf("it has %q twice", h.Name)
	}
	if l.size += h.Size; l.size > maxBytes || len(l.made) >= maxFiles {
		return fmt.Errorf("it has more than %d bytes or %d files", int64(maxBytes), maxFiles)
	}
	if err := l.dir(path.Dir(at)); err != nil {
		return err
	}
	mode := int64(0o644)
	if h.Mode&0o100 != 0 || l.programs[at] {
		mode = 0o755
	}
	if err := l.head(tar.Header{Typeflag: tar.TypeReg, Name: at, Size: h.Size, Mode: mode}); err != nil {
		return err
	}
	_, err := io.Copy(l.w, body)
	return err
}

// within reports whether a clean relative path stays in its directory.
func within(name string) bool {
	return name != "." && name != ".." && !strings.HasPrefix(name, "../") && !path.IsAbs(name)
}

// dir makes a directory, and those that it is in, once.
func (l *layer) dir(at string) error {
	if l.made[at] || at == "/" {
		return nil
	}
	if err := l.dir(path.Dir(at)); err != nil {
		return err
	}
	return l.head(tar.Header{Typeflag: tar.TypeDir, Name: at + "/", Mode: 0o755})
}

func (l *layer) head(h tar.Header) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	l.made[strings.TrimSuffix(h.Name, "/")] = true
	h.Name = strings.TrimPrefix(h.Name, "/")
	h.ModTime, h.Format = time.Unix(0, 0), tar.FormatPAX
	return l.w.WriteHeader(&h)
}
