package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Home is a home directory of the box's own, which outlives it. The zero Home is none:
// then a box has an empty one that goes with it, or sees what the Spec names there.
//
// It may be written to, and what is in it is not held: nothing of this machine is to run
// what lies in From. What a box put there another box sees, and nobody else should.
type Home struct {
	// Path is where it stands in the box: a home of this machine, mostly. Of what this
	// machine has there the box sees what the Spec names, in its place, and nothing else.
	Path string
	// From is the directory of this machine that it is. Where the Spec names something
	// beneath Path, an empty thing is made in From for it to be mounted on.
	From string
}

func (s Spec) checkHome() error {
	h := s.Home
	if h == (Home{}) {
		return nil
	}
	if err := errors.Join(checkPath("home", h.Path), checkPath("directory of the home", h.From)); err != nil {
		return err
	}
	if h.Path == "/" || h.Path == h.From {
		return fmt.Errorf("spec: %q cannot be the home of a box", h.Path)
	}
	for _, p := range s.Trees() {
		if strings.HasPrefix(h.From+"/", strings.TrimSuffix(p, "/")+"/") || strings.HasPrefix(p+"/", h.From+"/") {
			return fmt.Errorf("spec: the directory of the home, %q, and %q lie in each other", h.From, p)
		}
		if p == h.Path {
			return fmt.Errorf("spec: the home of the box, %q, is also named as a path", p)
		}
	}
	return nil
}

// MakePlace makes an empty directory, or file, at path in h.From, unless there is one: for
// something to be mounted on. Boxes write there, so no link is followed, and what is of
// another kind is in the way.
func (h Home) MakePlace(path string, dir bool) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("making a place for %s in the home of the box: %w; remove what is there, in %s", path, err, h.From)
		}
	}()
	root, err := os.OpenRoot(h.From)
	if err != nil {
		return err
	}
	defer root.Close()
	parts := strings.Split(path, "/")
	for i := range parts {
		p := filepath.Join(parts[:i+1]...)
		if err := makeOne(root, p, dir || i < len(parts)-1); err != nil {
			return err
		}
	}
	return nil
}

func makeOne(root *os.Root, p string, dir bool) error {
	var err error
	if dir {
		err = root.Mkdir(p, 0o755)
	} else {
		var f *os.File
		if f, err = root.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
			return f.Close()
		}
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := root.Lstat(p)
	switch {
	case err != nil:
		return err
	case fi.IsDir() != dir || !dir && !fi.Mode().IsRegular():
		return fmt.Errorf("%s is of another kind", p)
	}
	return nil
}
