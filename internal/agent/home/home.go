// Package home is the private home of an agent: the directory that stands in the place of the
// person's home in its box, and what is put there before the agent starts.
//
// It is not the box and shows nothing to it: who builds the box mounts it. It is no policy.
//
// Invariants:
//
//	H1  What lies in a home was written by an agent: no link in it is followed out of it, and
//	    what is read of it is bounded and is settings of that agent alone.
//	H2  No file of the person's that holds a key or token is copied.
//	H3  One home belongs to one agent and one workspace.
package home

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ringfence/internal/agent/external"
)

// A Home is one private home.
type Home struct {
	Dir   string // of this machine
	Fresh bool   // it was made just now
	// uid and gid are whose the files are to be; -1 for those of this process.
	uid, gid int
}

// Bounds of what is read and copied.
const (
	maxFile  = 16 << 20
	maxFiles = 2000
	maxBytes = 64 << 20
	maxDepth = 8
)

// Open returns the home of an agent for a workspace, beneath base, and makes it if there is
// none. uid and gid are whose its files are to be, -1 for those of this process.
func Open(base, agent, workspace string, uid, gid int) (Home, error) {
	sum := sha256.Sum256([]byte(workspace))
	h := Home{Dir: filepath.Join(base, agent, hex.EncodeToString(sum[:8])), uid: uid, gid: gid}
	err := os.MkdirAll(filepath.Dir(h.Dir), 0o700)
	if err == nil {
		err = os.Mkdir(h.Dir, 0o700)
		if h.Fresh = err == nil; errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return h, fmt.Errorf("making a home for %s: %w", agent, err)
	}
	if uid >= 0 {
		if err := os.Lchown(h.Dir, uid, gid); err != nil {
			return h, fmt.Errorf("making a home for %s: %w", agent, err)
		}
	}
	return h, nil
}

// Settle puts into h what a needs to start: its settings, those of the person that it keeps
// among them, and what the person wrote for it. person is his home. What of his cannot be
// taken over is no error, and told in notes.
func (h Home) Settle(a external.Adapter, person string, v external.Values, toolsOnly bool) (notes []string, err error) {
	root, err := os.OpenRoot(h.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the home of %s: %w", a.Name, err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	w := &writer{root: root, uid: h.uid, gid: h.gid}
	for _, f := range a.Files {
		if f.NeedsKey && v.Key == "" {
			continue
		}
		rel := strings.TrimPrefix(f.Path, "~/")
		text, err := f.Make(w.own(rel), theirs(filepath.Join(person, rel)), v, toolsOnly)
		if err == nil {
			err = w.write(rel, text, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("settling %s: %w", a.Name, err)
		}
	}
	for _, p := range a.Instructions {
		rel := strings.TrimPrefix(p, "~/")
		if slices.Contains(a.Credentials, p) {
			continue
		}
		if err := w.take(filepath.Join(person, rel), rel, 0); err != nil {
			notes = append(notes, fmt.Sprintf("%s was not taken over: %v", p, err))
		}
	}
	return notes, nil
}

// A writer puts files into a home.
type writer struct {
	root     *os.Root
	uid, gid int
	files    int
	bytes    int64
}

// own returns what a file of the home holds; nothing if it is none.
func (w *writer) own(rel string) []byte {
	f, err := w.root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
	if err != nil {
		return nil
	}
	defer f.Close()
	return bounded(f)
}

// theirs returns what a file of the person holds; nothing if it is none.
func theirs(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	return bounded(f)
}

func bounded(f *os.File) []byte {
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() > maxFile {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil
	}
	return text
}

// write replaces a file: beside it first, so that an agent that runs reads it whole.
func (w *writer) write(rel string, text []byte, mode fs.FileMode) error {
	if err := w.parents(rel); err != nil {
		return err
	}
	temp := rel + ".ringfence-new"
	if err := w.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := w.root.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close(), w.give(temp)); err != nil {
		return err
	}
	return w.root.Rename(temp, rel)
}

func (w *writer) parents(rel string) error {
	parts := strings.Split(filepath.Dir(rel), "/")
	for i := range parts {
		dir := filepath.Join(parts[:i+1]...)
		err := w.root.Mkdir(dir, 0o700)
		if err == nil {
			err = w.give(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (w *writer) give(rel string) error {
	if w.uid < 0 {
		return nil
	}
	return w.root.Lchown(rel, w.uid, w.gid)
}

// keyFiles are the names that files with keys have, and histories that may hold some: a skill or
// command comes with them, now and then.
var keyFiles = []string{
	".env", ".env.*", "*.env", ".envrc", ".git", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".aws", ".ssh", ".gnupg", ".docker", ".kube",
	"id_*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "*credential*", "*secret*.*", ".secret*", "token", "token.*", "tokens.*",
}

// holdsKeys reports whether a file or directory of that name is likely to hold keys (H2). What
// is meant to be read, such as "secrets.md", is none.
func holdsKeys(name string) bool {
	name = strings.ToLower(name)
	if filepath.Ext(name) == ".md" {
		return false
	}
	return slices.ContainsFunc(keyFiles, func(pattern string) bool {
		ok, err := filepath.Match(pattern, name)
		return ok || err != nil
	})
}

var errMuch = errors.New("it is too much")

// take copies a file or directory that the person wrote. What the home has already stays,
// unless the person has changed his since.
func (w *writer) take(from, rel string, depth int) error {
	fi, err := os.Stat(from) // what a link of the person's leads to is his, too
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if depth > maxDepth {
		return errMuch
	}
	if fi.IsDir() {
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if holdsKeys(e.Name()) {
				continue
			}
			if err := w.take(filepath.Join(from, e.Name()), filepath.Join(rel, e.Name()), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if !fi.Mode().IsRegular() {
		return nil
	}
	if w.files, w.bytes = w.files+1, w.bytes+fi.Size(); w.files > maxFiles || w.bytes > maxBytes || fi.Size() > maxFile {
		return errMuch
	}
	if has, err := w.root.Lstat(rel); err == nil && !has.ModTime().Before(fi.ModTime()) {
		return nil
	}
	if err := w.write(rel, theirs(from), 0o600|fi.Mode().Perm()&0o111); err != nil {
		return err
	}
	now := time.Now()
	return w.root.Chtimes(rel, now, now)
}
