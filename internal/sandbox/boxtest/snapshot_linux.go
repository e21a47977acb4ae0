package boxtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A snapshot is a tree of files, by path from its root.
type snapshot map[string]entry

// An entry is what can be told of a file without changing it. The time of change of
// its inode is part of it: whoever sets a mode, and sets it back, is seen.
type entry struct {
	mode, uid, gid uint32
	links          uint64
	inode          uint64
	size           int64
	modified       unix.Timespec
	changed        unix.Timespec
	content        string // digest, or where a link leads
	attributes     string
}

// trees are what is looked at, and whether all of it must stay as it is. The probe is
// shared with other worlds.
var trees = map[string]bool{"out": true, "ws": false, "ro": true, "rw": false}

// look takes a snapshot of each tree.
func (w *world) look(into map[string]snapshot) error {
	for tree := range trees {
		s, err := snap(w.path(tree))
		if err != nil {
			return err
		}
		into[tree] = s
	}
	return nil
}

// snap walks by descriptors: a path may be too long for the kernel.
func snap(root string) (snapshot, error) {
	s := snapshot{}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return s, nil // the box took it away
	}
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), root)
	defer dir.Close()
	if s["."], err = entryOf(dir, "."); err != nil {
		return nil, err
	}
	return s, s.walk(dir, "")
}

func (s snapshot) walk(dir *os.File, prefix string) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		rel := prefix + name
		if rel == "bin" && strings.HasSuffix(dir.Name(), "/ro") || rel == "setuid" {
			continue // these inodes are those of other worlds too
		}
		e, err := entryOf(dir, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s[rel] = e
		if e.mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		below := os.NewFile(uintptr(fd), name)
		err = s.walk(below, rel+"/")
		below.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func entryOf(dir *os.File, name string) (e entry, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return e, err
	}
	e = entry{
		mode: st.Mode, uid: st.Uid, gid: st.Gid, inode: st.Ino, size: st.Size, modified: st.Mtim, changed: st.Ctim,
		links: uint64(st.Nlink), //nolint:unconvert // it has another type on other architectures
	}
	self := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		e.content, err = os.Readlink(self)
	case unix.S_IFREG:
		var text []byte
		text, err = os.ReadFile(self)
		e.content = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	if err != nil {
		return e, err
	}
	buf := make([]byte, 4096)
	if n, err := unix.Llistxattr(self, buf[:2048]); err == nil {
		for attr := range strings.SplitSeq(string(buf[:n]), "\x00") {
			if m, err := unix.Lgetxattr(self, attr, buf[2048:]); err == nil && attr != "" {
				e.attributes += attr + "=" + string(buf[2048:2048+m]) + ";"
			}
		}
	}
	return e, nil
}

// differences compares two snapshots. Names of directories in which something may
// change are compared without what such a change does to the directory itself.
func differences(before, after snapshot, strict bool) (paths []string) {
	for name, b := range before {
		a, ok := after[name]
		if !ok {
			paths = append(paths, name)
			continue
		}
		if !strict && a.mode&unix.S_IFMT == unix.S_IFDIR {
			a.modified, a.changed, a.links, a.size = b.modified, b.changed, b.links, b.size
		}
		if a != b {
			paths = append(paths, name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			paths = append(paths, name)
		}
	}
	slices.Sort(paths)
	return paths
}

// compare says what differs now that should not. may are patterns of path.Match for
// the workspace, or "rw/…" for the other writable tree; what ends in "/" stands for
// everything beneath.
func (w *world) compare(may []string, writable bool) (wrong []string, err error) {
	after := map[string]snapshot{}
	if err := w.look(after); err != nil {
		return nil, err
	}
	for tree, strict := range trees {
		for _, name := range differences(w.before[tree], after[tree], strict || !writable) {
			full := name
			if tree != "ws" {
				full = tree + "/" + name
			}
			if !writable || strict || !slices.ContainsFunc(may, func(p string) bool { return allowed(p, full) }) {
				wrong = append(wrong, "changed outside: "+w.path(tree+"/"+name))
			}
		}
	}
	slices.Sort(wrong)
	return wrong, nil
}

func allowed(pattern, name string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/"); ok {
		for at := name; at != "."; at = path.Dir(at) {
			if ok, _ := path.Match(dir, at); ok {
				return true
			}
		}
		return false
	}
	ok, _ := path.Match(pattern, name)
	return ok
}

// shared are the directories of the machine in which a box could leave something.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run", "/", "/etc"}

// leftovers lists files of the machine that are named after something of the suite,
// and removes them, lest the next case is blamed.
func (w *world) leftovers() (wrong []string) {
	for _, dir := range shared {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not there, or not for us to see
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "boxtest-") || strings.Contains(e.Name(), w.mark) {
				wrong = append(wrong, "left on the machine: "+filepath.Join(dir, e.Name()))
				_ = os.RemoveAll(filepath.Join(dir, e.Name())) // that it was there is said
			}
		}
	}
	return wrong
}

// survivors lists processes of the box that still run, by the name of the probe and
// by their environment.
func (w *world) survivors() (wrong []string) {
	names, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range names {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		open, shut := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
		if open < 0 || shut < open || strings.HasPrefix(string(stat[shut:]), ") Z") {
			continue
		}
		environ, _ := os.ReadFile(dir + "/environ") // not ours to see: then the name has to do
		if string(stat[open+1:shut]) == w.mark || strings.Contains(string(environ), "BOXTEST_MARK="+w.mark) {
			wrong = append(wrong, "still runs: "+filepath.Base(dir))
		}
	}
	return wrong
}
