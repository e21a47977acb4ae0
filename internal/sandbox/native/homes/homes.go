// Package homes finds the homes of ringfence that lie deep in the trees that a box is given,
// so that they can be hidden: who reads one can sign as its owner.
//
// It is for trees in which nobody looks for repositories; those that are writable, and held,
// package hold looks through, for homes too. What lies directly in a tree, and the homes of
// users, package paths knows. It hides nothing, follows no link, remembers nothing, and
// decides about no tool call.
//
// Invariants:
//
//	H1  What is near is found first, and no tree costs more than a bounded number of
//	    directories and entries; what was not looked at is said.
//	H2  What cannot be listed by us is passed over: a box's user can do no more than we.
package homes

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act/places"
	"ringfence/internal/sys/paths"
)

// Bounds of one search, the same as those of package hold.
const (
	maxDirectories = 4_000
	maxEntries     = 50_000 // in all
	maxListed      = 10_000 // of one directory
	maxLevels      = 32
	maxFound       = 256 // each is a mount of the box
	aheads         = 128 // directories that are listed before the first is looked at
	listers        = 2   // that do it at the same time
)

// system is what every box has anyway, and that belongs to who runs the machine.
var system = []string{
	"/bin", "/boot", "/dev", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/proc", "/sbin", "/sys", "/usr",
}

// Find returns the homes of ringfence in trees, as real paths, but for those in own and what
// is beneath those in hidden. A tree that is not there has none. cut says why not all was
// looked at, "" if all was. An error is that there are too many to be hidden.
func Find(trees, own, hidden []string) (found []string, cut string, err error) {
	s := search{own: own, stop: slices.Concat(system, hidden), packages: places.Packages(), left: maxDirectories}
	var level []string
	for _, t := range trees {
		if real, err := filepath.EvalSymlinks(t); err == nil && !s.passed(real) && !slices.Contains(level, real) {
			level = append(level, real)
		}
	}
	s.trees = level // one that lies in another is looked at once
	for depth := 0; len(level) > 0; depth++ {
		if depth == maxLevels || s.left == 0 || s.entries > maxEntries {
			s.cut = fmt.Sprintf("%s lies deeper than %d directories, %d files or %d levels: no home of ringfence is looked for in it", level[0], maxDirectories, maxEntries, maxLevels)
			break
		}
		level = s.next(level)
	}
	if len(s.found) > maxFound {
		return nil, "", fmt.Errorf("more than %d homes of ringfence are to be hidden; give the box a smaller tree", maxFound)
	}
	slices.Sort(s.found)
	return slices.Compact(s.found), s.cut, nil
}

// A search is one call of Find.
type search struct {
	own, stop, packages []string
	trees, found        []string
	left, entries       int
	cut                 string
}

// A listing is what of a directory is looked at.
type listing struct {
	dirs    []string // names
	entries int
	keys    bool // it has a directory as a home has
}

// next looks at the directories of one level, as far as it may, and returns those of the
// next, with those that it did not come to first.
func (s *search) next(level []string) (next []string) {
	for len(level) > 0 && s.left > 0 && s.entries <= maxEntries {
		some := level[:min(len(level), s.left, aheads)]
		for i, l := range listAll(some) {
			next = append(next, s.look(some[i], l)...)
		}
		level, s.left = level[len(some):], s.left-len(some)
	}
	return append(slices.Clip(level), next...)
}

// look adds the homes that dir is and has, and returns its other directories.
func (s *search) look(dir string, l listing) (dirs []string) {
	s.entries += l.entries
	if l.entries == maxListed && s.cut == "" {
		s.cut = fmt.Sprintf("%s has more than %d entries: no home of ringfence is looked for among the others", dir, maxListed)
	}
	if l.keys && s.home(dir) {
		return nil
	}
	for _, name := range l.dirs {
		p := filepath.Join(dir, name)
		if s.passed(p) || slices.Contains(s.trees, p) || slices.Contains(s.packages, name) || name == paths.DefaultName && s.home(p) {
			continue
		}
		dirs = append(dirs, p)
	}
	return dirs
}

// home adds dir if it is a home, and not one of ours.
func (s *search) home(dir string) bool {
	if paths.HomeAbove(dir, s.own) != dir {
		return false
	}
	s.found = append(s.found, dir)
	return true
}

// passed reports whether p is not looked at.
func (s *search) passed(p string) bool {
	return slices.ContainsFunc(s.stop, func(dir string) bool {
		rest, ok := strings.CutPrefix(p, dir)
		return ok && (rest == "" || rest[0] == filepath.Separator)
	})
}

// listAll lists directories, several at the same time.
func listAll(dirs []string) []listing {
	all := make([]listing, len(dirs))
	var workers sync.WaitGroup
	for k := range min(listers, len(dirs)) {
		workers.Go(func() {
			for i := k; i < len(dirs); i += listers {
				all[i] = list(dirs[i])
			}
		})
	}
	workers.Wait()
	return all
}

func list(dir string) (l listing) {
	f, err := os.Open(dir)
	if err != nil {
		return l
	}
	defer f.Close()
	entries, _ := f.ReadDir(maxListed) // what was read before an error counts
	l.entries = len(entries)
	for _, e := range entries {
		if e.Type()&fs.ModeDir == 0 {
			continue
		}
		l.dirs = append(l.dirs, e.Name())
		l.keys = l.keys || e.Name() == "keys"
	}
	return l
}
