package mounts

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Alike returns the names by which file systems of t that show another one by themselves
// (see [Mount.Opaque]) show files of own, a directory of ours: an overlay of a directory
// that its mounter named by a relative path, or in another name space, FUSE, or a
// network. A file is known by its name, its size and the time of its last change, since
// its device and its number are those of the other; some of each directory are looked
// for, but for those in except. root is a descriptor of the root directory of t.
func (t Table) Alike(root int, ours Table, own, except string) (names []string) {
	in, _ := ours.Of(own)
	var known []sample
	for _, m := range t {
		if !m.Opaque() || m.Device == in.Device { // of its own file system all is known
			continue
		}
		if known == nil {
			known = samplesOf(own, except)
		}
		l := looker{root, m.Point, map[string]bool{}}
		for _, f := range known {
			if name := l.find(f); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// A looker looks for files beneath the point of a mount.
type looker struct {
	root  int
	point string
	there map[string]bool // whether a name is there at the point
}

// find returns by which name the mount shows the file of f, "" for none. Its root may be
// anything on the way to the file, and the file itself.
func (l looker) find(f sample) string {
	for rest := f.path[1:]; ; {
		first, more, _ := strings.Cut(rest, "/")
		there, known := l.there[first]
		if !known {
			_, there = l.stat(first)
			l.there[first] = there
		}
		if there {
			if st, ok := l.stat(rest); ok && f.is(st) {
				return filepath.Join(l.point, rest)
			}
		}
		if rest = more; rest == "" {
			break
		}
	}
	if st, ok := l.stat(""); ok && f.is(st) {
		return l.point
	}
	return ""
}

// stat looks at what is at a name beneath the point. What we cannot see, who is in a box
// sees no more.
func (l looker) stat(name string) (st unix.Stat_t, ok bool) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(l.root, filepath.Join(l.point, name), &how)
	if err != nil {
		return st, false
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st) == nil
}

// A sample is a file of our own.
type sample struct {
	path       string
	size, time int64
}

func (f sample) is(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == f.size && st.Mtim.Sec == f.time
}

// How much is looked at for samples, and how many of a directory are some.
const (
	sampleDepth = 3
	sampleDirs  = 64
	sampleEach  = 2
)

// samplesOf returns files in own. What cannot be read here cannot be read in a box.
func samplesOf(own, except string) (all []sample) {
	seen, level := 0, []string{own}
	for range sampleDepth {
		var next []string
		for _, dir := range level {
			if seen++; seen > sampleDirs || dir == except {
				continue
			}
			files, dirs := sampleOf(dir)
			all, next = append(all, files...), append(next, dirs...)
		}
		level = next
	}
	return all
}

// sampleOf returns some files of a directory, and its directories.
func sampleOf(dir string) (files []sample, dirs []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.IsDir() {
			dirs = append(dirs, name)
			continue
		}
		if len(files) == sampleEach {
			continue
		}
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && fi.Size() > 0 {
			files = append(files, sample{name, fi.Size(), fi.ModTime().Unix()})
		}
	}
	return files, dirs
}
