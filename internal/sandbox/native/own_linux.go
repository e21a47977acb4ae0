package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/readback"
	"ringfence/internal/sys/mounts"
)

// hideOwn returns s without our own state, where s shows it by its own name. What s names
// in it is there: somebody has decided on that.
func (b *builder) hideOwn(s sandbox.Spec) sandbox.Spec {
	s.Denied = slices.Concat(s.Denied, b.state)
	return s
}

// checkOwn looks for our own state in the tree that the box really has, under whatever
// name: the mounts that are known to who decides what a box may see need not be those of
// this process. It is the kernel's account of the program's process that counts, so that
// nothing which comes into the tree on any way is forgotten.
func (b *builder) checkOwn() error {
	if len(b.state) == 0 {
		return nil
	}
	for _, f := range []readback.Facts{b.facts, b.ours} {
		if err := f.Hidden["mounts"]; err != nil || len(f.Mounts) == 0 {
			return fmt.Errorf("the mounts cannot be read, so nobody knows whether our own state is shown: %w", err)
		}
	}
	theirs, ours := tableOf(b.facts.Mounts), tableOf(b.ours.Mounts)
	looked := &samples{except: filepath.Dir(b.spec.Workspace.Upper)}
	for _, own := range b.state {
		real, err := filepath.EvalSymlinks(own)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("our own state: %w", err)
		}
		alike, err := b.lookalikes(theirs, ours, real, looked)
		if err != nil {
			return fmt.Errorf("looking for our own state: %w", err)
		}
		names := append(theirs.Names(ours, real), alike...)
		if i := slices.IndexFunc(names, func(name string) bool { return !b.mayShow(name, real) }); i >= 0 {
			return fmt.Errorf("%s would show the state of ringfence (%s), by a mount: give the box another directory, or unmount that", names[i], real)
		}
	}
	return nil
}

// mayShow reports whether own may be seen at name: it is its own name, so that what was
// decided about it was decided knowingly, and it was hidden if it had to be; or a box that
// has no tree of its own is given nothing there.
func (b *builder) mayShow(name, own string) bool {
	if b.plain && !slices.ContainsFunc(b.plan.grants, func(g grant) bool { return beneath(name, g.path) || beneath(g.path, name) }) {
		return true
	}
	return beneath(name, own) && (b.plain || name != own)
}

func tableOf(all []readback.Mount) (t mounts.Table) {
	for _, m := range all {
		t = append(t, mounts.Mount{
			ID: m.ID, Parent: m.Parent, Device: m.Device, Root: m.Root, Point: m.Point, Type: m.Type, Super: strings.Join(m.Super, ","),
		})
	}
	return t
}

// lookalikes returns the names by which a file system that shows another one by itself
// shows files of own: an overlay of a directory that its mounter named by a relative path,
// or in another name space, FUSE, or a network. A file is known by its name, its size and
// the time of its last change, since its device and its number are those of the other.
func (b *builder) lookalikes(theirs, ours mounts.Table, own string, known *samples) (names []string, err error) {
	in, _ := ours.Of(own)
	root := -1
	for _, m := range theirs {
		if !m.Opaque() || m.Device == in.Device { // of its own file system all is known
			continue
		}
		if root < 0 {
			if root, err = unix.Open(fmt.Sprintf("/proc/%d/root", b.facts.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
				return nil, err
			}
			defer unix.Close(root)
		}
		l := looker{root, m.Point, map[string]bool{}}
		for _, f := range known.of(own) {
			if name := l.find(f); name != "" && b.shown(name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// shown reports whether a file that is there can be seen in the box.
func (b *builder) shown(name string) bool {
	return !b.plain || slices.ContainsFunc(b.plan.grants, func(g grant) bool { return beneath(name, g.path) })
}

// A looker looks for files beneath the point of a mount, as the box sees it.
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

// stat looks at what is at a name beneath the point. What we cannot see, who is in the
// box sees no more.
func (l looker) stat(name string) (st unix.Stat_t, ok bool) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	fd, err := openat2(l.root, filepath.Join(l.point, name), &how)
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

// samples are files of our own, some of each directory.
type samples struct {
	except string // the directories of the box's own overlay lie in our state
	byRoot map[string][]sample
}

// How much is looked at for samples, and how many of a directory are some.
const (
	sampleDepth = 3
	sampleDirs  = 64
	sampleEach  = 2
)

// of returns samples of the files in own. They are looked for when they are needed.
func (s *samples) of(own string) []sample {
	if all, ok := s.byRoot[own]; ok {
		return all
	}
	var all []sample
	seen, level := 0, []string{own}
	for range sampleDepth {
		var next []string
		for _, dir := range level {
			if seen++; seen > sampleDirs || dir == s.except {
				continue
			}
			files, dirs := sampleOf(dir)
			all, next = append(all, files...), append(next, dirs...)
		}
		level = next
	}
	if s.byRoot == nil {
		s.byRoot = map[string][]sample{}
	}
	s.byRoot[own] = all
	return all
}

// sampleOf returns some files of a directory, and its directories. What cannot be read
// here cannot be read in the box.
func sampleOf(dir string) (files []sample, dirs []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			dirs = append(dirs, path)
			continue
		}
		if len(files) == sampleEach {
			continue
		}
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && fi.Size() > 0 {
			files = append(files, sample{path, fi.Size(), fi.ModTime().Unix()})
		}
	}
	return files, dirs
}
