package hold

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ringfence/internal/act/places"
)

const (
	maxListed = 10_000  // entries of one directory that are looked at
	maxConfig = 1 << 20 // bytes of a configuration of git
	maxNested = 5       // configurations that include each other
)

// Existing returns the directories in root, a writable tree, that are held with all
// that is in them and have a fixed place there: .git/hooks, .idea, .github/workflows.
// It looks at two levels and walks no tree. They can be mounted read-only over
// themselves, as a third key, and to show programs what they are.
//
// Files are not among them, on purpose: git replaces its configuration by renaming,
// and a mount would go on showing the box what was there before.
func (r Rules) Existing(root string) ([]string, error) {
	var found []string
	err := r.eachPlace(root, func(p string, e fs.DirEntry, held bool) {
		if held && e.IsDir() {
			found = append(found, p)
		}
	})
	return found, err
}

// Follow returns what the places of fixed position in root lead to elsewhere in what
// is writable, to be added to Held: where they are links, and where the
// configuration of git in root names a directory of hooks (core.hooksPath),
// attributes, or another configuration. What nested repositories name is not looked
// for. An error names what cannot be held.
func (r Rules) Follow(root string) ([]string, error) {
	f := follower{rules: r, root: root, seen: map[string]bool{}}
	err := r.eachPlace(root, func(p string, e fs.DirEntry, _ bool) {
		if e.Type()&fs.ModeSymlink != 0 {
			f.add(p)
		}
	})
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, gitDir)
	for _, name := range []string{"config", "config.worktree"} {
		if err := f.config(filepath.Join(dir, name), 0); err != nil {
			return nil, err
		}
	}
	return f.found, f.err
}

// eachPlace calls f for each entry of root, and of those directories in it that are
// on the way to something held, which is itself held or on the way.
func (r Rules) eachPlace(root string, f func(p string, e fs.DirEntry, held bool)) error {
	if r.Later {
		return nil
	}
	roots := places.Roots{Home: newJudge(r).Home, Workspace: root}
	var list func(dir string, depth int) error
	list = func(dir string, depth int) error {
		entries, err := readSome(dir)
		if err != nil {
			return fmt.Errorf("looking for held files: %w", err)
		}
		for _, e := range entries {
			p := filepath.Join(dir, e.Name())
			_, held := roots.Held(p, false)
			_, onWay := roots.Held(p, true)
			if held || onWay {
				f(p, e, held)
			}
			if onWay && !held && e.IsDir() && depth == 0 {
				if err := list(p, 1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return list(root, 0)
}

func readSome(dir string) ([]fs.DirEntry, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxListed)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// A follower gathers what places lead to.
type follower struct {
	rules Rules
	root  string
	found []string
	seen  map[string]bool
	err   error
}

// add holds what name leads to, if it is writable.
func (f *follower) add(name string) {
	p, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		p, err = resolveParent(name)
	}
	switch {
	case err != nil:
		f.err = errors.Join(f.err, fmt.Errorf("looking for held files: %w", err))
	case f.seen[p], newJudge(f.rules).root(p) == "":
	case places.Beneath(f.root, p):
		f.err = errors.Join(f.err, fmt.Errorf("looking for held files: %s leads to %s, which has the workspace in it and cannot be held; move what is there to a directory of its own", name, p))
	default:
		f.seen[p] = true
		f.found = append(f.found, p)
	}
}

// resolveParent resolves what there is of a path whose last component is not there,
// or is a link to what is not.
func resolveParent(name string) (string, error) {
	if target, err := os.Readlink(name); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(name), target)
		}
		name = target
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.Clean(name), nil
	}
	return filepath.Join(dir, filepath.Base(name)), err
}

// config follows what the configuration of git at name names. One that is not there
// names nothing.
func (f *follower) config(name string, depth int) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotDir) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for held files: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err != nil || len(text) > maxConfig || depth > maxNested {
		return fmt.Errorf("looking for held files: %s cannot be read, or is too long or too deep: %w", name, err)
	}
	for key, value := range settings(string(text)) {
		switch {
		case key == "core.hookspath" || key == "core.attributesfile":
			f.add(f.expand(value, f.root))
		case key == "include.path" || strings.HasPrefix(key, "includeif.") && strings.HasSuffix(key, ".path"):
			included := f.expand(value, filepath.Dir(name))
			f.add(included)
			if err := f.config(included, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *follower) expand(value, dir string) string {
	if rest, ok := strings.CutPrefix(value, "~/"); ok && f.rules.Home != "" {
		return filepath.Join(f.rules.Home, rest)
	}
	if filepath.IsAbs(value) {
		return filepath.Clean(value)
	}
	return filepath.Join(dir, value)
}
