package hold

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"ringfence/internal/act/places"
	"ringfence/internal/sys/paths"
)

// MaxDirectories is how many directories of a tree are looked through for repositories.
const MaxDirectories = 4_000

const (
	// aheads is how many directories are listed before the first of them is looked at.
	aheads = 128
	// listers is how many do it at the same time: the rest of the machine builds the box.
	listers = 2
	// maxHomes is how many homes of ringfence are hidden: each is a mount of the box.
	maxHomes = 256
)

// within looks for repositories in root, and for links at what is held: level by level, so
// that what is near is found. What is not listed any more is still asked for a repository.
func (f *follower) within(root string, everywhere []setting) {
	level, left := []string{root}, MaxDirectories
	for depth := 0; depth < levels && len(level) > 0; depth++ {
		var next []string
		for len(level) > 0 && left > 0 && f.listed <= maxWalked {
			some := level[:min(len(level), left, aheads)]
			for i, l := range f.list(some) {
				if f.listed > maxWalked {
					some = some[:i]
					break
				}
				next = append(next, f.look(some[i], l, everywhere)...)
			}
			level, left = level[len(some):], left-len(some)
		}
		if len(level) > 0 {
			f.stop(fmt.Sprintf("%s has more than %d directories, or %d files", root, MaxDirectories, maxWalked))
			f.ask(append(level, next...), everywhere)
			return
		}
		level = next
	}
	if len(level) > 0 {
		f.stop(fmt.Sprintf("%s has more than %d levels of directories", root, levels))
		f.ask(level, everywhere)
	}
}

// A listing is what of a directory is looked at.
type listing struct {
	dirs, links []string // names
	entries     int
	err         error
	git         bool // it has what a repository has
	keys        bool // it has a directory as a home of ours has
}

// list lists dirs, as far as they are looked at.
func (f *follower) list(dirs []string) []listing {
	all := make([]listing, len(dirs))
	f.share(len(dirs), func(i int, room []byte) {
		l := &all[i]
		l.entries, l.err = list(dirs[i], maxListed, room, func(name []byte, kind fs.FileMode) {
			l.git = l.git || spelled(name, gitDir) || spelled(name, "head")
			l.keys = l.keys || kind.IsDir() && string(name) == "keys"
			switch {
			case kind&fs.ModeSymlink != 0:
				l.links = append(l.links, string(name))
			case kind.IsDir() && string(name) != gitDir:
				l.dirs = append(l.dirs, string(name))
			}
		})
	})
	return all
}

// ask follows the repositories in dirs, which are not listed.
func (f *follower) ask(dirs []string, everywhere []setting) {
	git := make([]bool, len(dirs))
	f.share(len(dirs), func(i int, _ []byte) { git[i] = marked(dirs[i]) })
	for i, dir := range dirs {
		if git[i] {
			f.repository(dir, everywhere)
		}
	}
}

// marked reports whether there could be a repository in dir.
func marked(dir string) bool {
	if _, err := kindAt(join(dir, gitDir)); err == nil {
		return true
	}
	_, err := kindAt(join(dir, "HEAD"))
	return err == nil
}

// share has each of n things done, by several at the same time, which have room for lists.
func (f *follower) share(n int, each func(i int, room []byte)) {
	if f.room == nil {
		f.room = make([]byte, listers*roomOf)
	}
	var all sync.WaitGroup
	defer all.Wait()
	for k := range min(listers, n) {
		room := f.room[k*roomOf : (k+1)*roomOf]
		do := func() {
			for i := k; i < n; i += listers {
				each(i, room)
			}
		}
		if k == listers-1 || k == n-1 {
			do()
			return
		}
		all.Go(do)
	}
}

// roomOf is the room for the list of a directory, in bytes.
const roomOf = 32 << 10

// look follows the repositories and links in dir, which has what l says, and returns its
// directories. What is not listed, all or in part, is asked for a repository.
func (f *follower) look(dir string, l listing, everywhere []setting) (dirs []string) {
	f.listed += l.entries
	if l.entries == maxListed {
		f.stop(fmt.Sprintf("%s has more than %d entries", dir, maxListed))
	}
	if l.err != nil || l.entries == maxListed || l.git {
		f.repository(dir, everywhere)
	}
	for _, name := range l.links {
		f.link(join(dir, name))
	}
	if l.keys {
		f.home(dir)
	}
	for _, name := range l.dirs {
		if name == paths.DefaultName {
			f.home(join(dir, name))
		}
		if p := join(dir, name); slices.Contains(f.manager, name) {
			f.packages = append(f.packages, p)
		} else {
			dirs = append(dirs, p)
		}
	}
	return dirs
}

// home adds dir if it is a home of ringfence, whoever's.
func (f *follower) home(dir string) {
	switch {
	case paths.HomeAbove(dir, nil) != dir:
	case f.homes == maxHomes:
		f.wrong(fmt.Errorf("more than %d homes of ringfence are to be hidden; give the box a smaller tree", maxHomes))
	default:
		f.homes++
		f.found = append(f.found, Led{Path: dir, By: "a home of ringfence", Home: true})
	}
}

// spelled reports whether name, of an entry, can be what is meant by small, which is in
// lower case, on a file system that does not tell spellings apart.
func spelled(name []byte, small string) bool {
	if len(name) == len(small) {
		return strings.EqualFold(string(name), small)
	}
	return slices.ContainsFunc(name, func(c byte) bool { return c >= utf8.RuneSelf }) && places.Fold(string(name)) == small
}
