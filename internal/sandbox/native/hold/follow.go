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
	maxListed = 10_000 // entries of one directory that are looked at
	maxLed    = 256    // paths that places and configuration lead to
	maxParts  = 4_096  // components of a path, with those of links
	// heldLevels is how deep directories that are held are looked through for links, and
	// maxHeldListed how many entries of them in all.
	heldLevels    = 4
	maxHeldListed = 5_000
	// maxFollowed is how many links the kernel follows in one path (MAXSYMLINKS).
	maxFollowed = 40
)

// A Led is a path in what is writable that something else leads to. One without a path
// says what is not held: By says why.
type Led struct {
	Path   string
	By     string // what leads there, for people: "core.hooksPath in /work/.git/config"
	Object string // without a path, what that is about
	// Home says that Path is a home of ringfence, which is to be hidden, not held. It can
	// be the caller's own.
	Home bool
}

// Follow returns what leads elsewhere in what is writable, to be added to Rules.Led:
// links at places in root and within what is held there, and what the configuration of the
// repositories that root is in, and has in it, tells git to run or to obey: directories
// of hooks (core.hooksPath), attributes, templates, further configuration, and the
// files that commands name; and homes of ringfence. global are further files of configuration, which count for
// all of them; all that conditions would include is included.
//
// It looks for repositories, homes, and links at places, in the directories that are
// nearest to root, at most [MaxDirectories] of them, for repositories as many more in what
// package managers have installed there, three levels deep, among the submodules and work trees of those that it finds, and nowhere else but in
// what the last of these directories have in them. Of commands, and of
// hooks that are scripts, it sees the words that name files, as the shell splits them; a
// command that may run more is one without a path. It runs nothing. An error names what
// cannot be held.
func (r Rules) Follow(root string, global ...string) ([]Led, error) {
	if r.Later {
		return nil, nil
	}
	f := follower{judge: newJudge(r), seen: map[string]bool{}, told: map[string]bool{}, scanned: map[string]bool{}, manager: places.Packages()}
	if err := f.places(root); err != nil {
		return nil, err
	}
	f.git(root, global)
	if f.cut != "" && f.err == nil {
		f.found = append(f.found, Led{By: f.cut, Object: "what a large tree leads to"})
	}
	return f.found, f.err
}

// places adds what is behind each link in root that is held or on the way to something
// held, and in those directories in it that are on the way.
func (f *follower) places(root string) error {
	roots := places.Roots{Home: f.judge.Home, Workspace: root}
	var list func(dir string, depth int) error
	list = func(dir string, depth int) error {
		entries, err := f.entries(dir)
		if errors.Is(err, errNotDir) || depth > 0 && errors.Is(err, fs.ErrPermission) {
			return nil // who may not list it does not follow what is in it
		}
		if err != nil {
			return fmt.Errorf("looking for held files: %w", err)
		}
		if depth > 0 {
			f.listed += len(entries)
		}
		for _, e := range entries {
			p := filepath.Join(dir, e.Name())
			_, held := roots.Held(p, false)
			_, onWay := roots.Held(p, true)
			if (held || onWay) && e.Type()&fs.ModeSymlink != 0 {
				f.add(p, "the link "+p)
			}
			deeper := depth < 1 || held && depth < heldLevels && f.listed < maxHeldListed
			if held && e.IsDir() && !deeper {
				f.stop(p + " is deep or full")
			}
			if (held || onWay) && e.IsDir() && deeper {
				if err := list(p, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return list(root, 0)
}

// entries lists dir, as far as it is looked at.
func (f *follower) entries(dir string) ([]fs.DirEntry, error) {
	entries, err := readSome(dir, maxListed)
	if len(entries) == maxListed {
		f.stop(fmt.Sprintf("%s has more than %d entries", dir, maxListed))
	}
	return entries, err
}

// stop remembers the first thing that was not looked at, and why.
func (f *follower) stop(why string) {
	if f.cut == "" {
		f.cut = why + ": not all was looked at for links and repositories, and what they lead to is not held"
	}
}

func readSome(dir string, limit int) ([]fs.DirEntry, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(limit)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// A follower gathers what things lead to.
type follower struct {
	judge *judge
	found []Led
	seen  map[string]bool
	err   error

	repositories map[string]bool // by their git directories
	homes        int             // of ringfence, found so far
	files        int             // of configuration, read so far
	listed       int             // entries of directories, so far
	told         map[string]bool // commands that cannot be followed, by what names them
	scanned      map[string]bool // directories of hooks
	tried        int             // words looked for among files, so far
	manager      []string        // names of directories that package managers fill
	packages     []string        // such directories
	cut          string          // what was not looked at, for people; "" if all was
	applied      int             // settings held against directories, so far
	room         []byte          // for lists of directories
}

// wrong remembers an error. The first one says enough: there will be no box.
func (f *follower) wrong(err error) {
	if f.err == nil {
		f.err = fmt.Errorf("looking for held files: %w", err)
	}
}

// add holds where name leads, and each link on the way, as far as they are writable.
func (f *follower) add(name, by string) {
	links, end := walk(name)
	for _, p := range links {
		if _, held := (places.Roots{Home: f.judge.Home, Workspace: f.judge.root(p)}).Held(p, true); !held {
			f.hold(p, by)
		}
	}
	f.hold(end, by)
}

func (f *follower) hold(p, by string) {
	switch {
	case f.seen[p] || f.judge.root(p) == "":
	case f.above(p) != "":
		f.wrong(fmt.Errorf("%s leads to %s; all of %s cannot be held: move what the host runs to a directory of its own", by, p, f.above(p)))
	case len(f.found)-f.homes == maxLed:
		f.wrong(fmt.Errorf("more than %d paths are led to; give the box a smaller tree", maxLed))
	default:
		f.seen[p] = true
		f.found = append(f.found, Led{Path: p, By: by})
	}
}

// above returns a tree of the box that p is, or is above.
func (f *follower) above(p string) string {
	for _, w := range f.judge.Writable {
		if places.Beneath(w, p) {
			return w
		}
	}
	return ""
}

// walk resolves a path component by component: the links on the way, by their own
// paths, and where it ends. Of what is not there, the name is the end; with ".." in
// it, the first part of it, so that it never is there.
func walk(name string) (links []string, end string) {
	at, rest := "/", filepath.ToSlash(name)
	for range maxParts {
		var first string
		first, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		switch first {
		case "":
			return links, at
		case ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		p := filepath.Join(at, first)
		fi, err := os.Lstat(p)
		switch {
		case err != nil && strings.Contains("/"+rest+"/", "/../"):
			return links, p
		case err != nil:
			return links, filepath.Join(p, rest)
		case fi.Mode()&fs.ModeSymlink == 0:
			at = p
			continue
		}
		target, err := os.Readlink(p)
		if err != nil || len(links) == maxFollowed {
			return links, p
		}
		links = append(links, p)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = target + "/" + rest
	}
	return links, at
}
