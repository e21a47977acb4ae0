package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxPath  = 4096 // bytes, as PATH_MAX
	maxLinks = 40   // symbolic links followed in one path, as the kernel does
	slash    = string(filepath.Separator)
)

// A root is one allowed directory.
type root struct {
	given  string // as configured, clean
	real   string // without symbolic links
	handle *os.Root
}

func openRoot(dir string) (root, error) {
	if !filepath.IsAbs(dir) {
		return root{}, fmt.Errorf("allowed directory %q is not an absolute path", dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return root{}, fmt.Errorf("opening allowed directory: %w", err)
	}
	h, err := os.OpenRoot(real)
	if err != nil {
		return root{}, fmt.Errorf("opening allowed directory: %w", err)
	}
	return root{given: filepath.Clean(dir), real: real, handle: h}, nil
}

// A place is where a path of a call leads: a name beneath a root. Its rel has no
// symbolic link in it, as of the moment it was made; that is a convenience. What
// keeps an access inside is the handle.
type place struct {
	root *root
	rel  string // "." for the root itself
}

// abs is the absolute real path.
func (p place) abs() string { return filepath.Join(p.root.real, p.rel) }

// locate finds where name leads, following symbolic links that stay within the
// allowed directories, also absolute ones and ones from one root to another; the
// last component only if follow. What does not exist is where it would be made.
func (s *server) locate(name string, follow bool) (place, error) {
	switch {
	case name == "":
		return place{}, errors.New("path is required")
	case len(name) > maxPath:
		return place{}, fmt.Errorf("path has %d bytes, at most %d are possible", len(name), maxPath)
	case strings.IndexByte(name, 0) >= 0:
		return place{}, errors.New("path holds a NUL")
	case name[0] == '~':
		return place{}, fmt.Errorf("%s: there is no home directory here; give the absolute path", name)
	}
	abs := name
	if !filepath.IsAbs(name) {
		abs = filepath.Join(s.roots[0].real, name)
	}
	abs = filepath.Clean(abs)
	at, err := s.beneath(abs)
	for links := 0; err == nil; {
		var next string
		if next, err = at.walk(follow, &links); err != nil || next == "" {
			break
		}
		at, err = s.beneath(next)
	}
	if err != nil {
		return place{}, fmt.Errorf("%s: %w", name, err)
	}
	return at, nil
}

// beneath returns the place of the clean absolute path abs in the innermost root
// that holds it.
func (s *server) beneath(abs string) (place, error) {
	best, found := place{}, -1
	for i := range s.roots {
		for _, top := range []string{s.roots[i].given, s.roots[i].real} {
			if rel, ok := within(top, abs); ok && len(top) > found {
				best, found = place{&s.roots[i], rel}, len(top)
			}
		}
	}
	if found < 0 {
		return place{}, fmt.Errorf("access denied - path outside allowed directories: %s not in %s", abs, strings.Join(s.allowed(), ", "))
	}
	return best, nil
}

func (s *server) allowed() []string {
	dirs := make([]string, len(s.roots))
	for i, r := range s.roots {
		dirs[i] = r.real
	}
	return dirs
}

// within returns abs relative to top, if it is top or beneath it. Both are clean.
func within(top, abs string) (string, bool) {
	if abs == top {
		return ".", true
	}
	if top != slash {
		top += slash
	}
	rel, ok := strings.CutPrefix(abs, top)
	return rel, ok
}

// walk goes down p.rel component by component and makes it free of symbolic links.
// If a link leads out of the root it returns the absolute path where it leads, to
// be looked up anew.
func (p *place) walk(follow bool, links *int) (elsewhere string, err error) {
	todo := strings.Split(p.rel, slash)
	var done []string
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(done) == 0 {
				return filepath.Join(append([]string{filepath.Dir(p.root.real)}, todo...)...), nil
			}
			done = done[:len(done)-1]
			continue
		}
		rel := filepath.Join(append(done, part)...)
		fi, err := p.root.handle.Lstat(rel)
		if errors.Is(err, fs.ErrNotExist) {
			// Nothing below exists either: links end here, and ".." can be taken
			// by its letters.
			p.rel = filepath.Join(append([]string{rel}, todo...)...)
			return "", nil
		}
		if err != nil {
			return "", reason(err)
		}
		if fi.Mode()&fs.ModeSymlink == 0 || len(todo) == 0 && !follow {
			done = append(done, part)
			continue
		}
		if *links++; *links > maxLinks {
			return "", errors.New("too many symbolic links")
		}
		target, err := p.root.handle.Readlink(rel)
		if err != nil {
			return "", reason(err)
		}
		if filepath.IsAbs(target) {
			return filepath.Join(append([]string{target}, todo...)...), nil
		}
		todo = append(strings.Split(target, slash), todo...)
	}
	p.rel = filepath.Join(append([]string{"."}, done...)...)
	return "", nil
}

// parent opens the directory that p is in, to be acted on whatever happens to its
// path, and returns it with the last component of p.
func (p place) parent() (*os.Root, string, error) {
	if p.rel == "." {
		return nil, "", errors.New("this is an allowed directory itself")
	}
	dir, err := p.root.handle.OpenRoot(filepath.Dir(p.rel))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("the directory %s does not exist; create_directory makes it", filepath.Dir(p.abs()))
	}
	if err != nil {
		return nil, "", reason(err)
	}
	return dir, filepath.Base(p.rel), nil
}
