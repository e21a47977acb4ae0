package native

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree builds the file tree of a box on an empty file system. Its mounts are made by
// descriptor (fsopen(2), open_tree(2), move_mount(2), mount_setattr(2); Linux 5.12, and
// Landlock needs 5.13): no path is walked twice, and none through a symbolic link.
type tree struct {
	root   int // of the box, open
	mounts []int
	made   map[string]bool // directories that are there
	empty  [2]int          // a file and a directory without names, for what is hidden
	canary int             // a file without a name that no rule grants, O_PATH
}

const (
	rootSize   = 32 << 20
	rootInodes = 1 << 16
	ownInodes  = 1 << 18 // of each file system in memory
)

// cloneTree returns a copy of the mount that path is on, as a tree of its own with
// path as its root. path must be free of symbolic links.
func cloneTree(path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	at, err := openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return cloneFD(at)
}

func cloneFD(at int) (int, error) {
	return unix.OpenTree(at, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
}

// openat2 repeats the call while the kernel says that somebody renamed something.
func openat2(dir int, path string, how *unix.OpenHow) (int, error) {
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(dir, path, how)
		if err != unix.EINTR && err != unix.EAGAIN || tries > 100 {
			return fd, err
		}
	}
}

// attributes are those of a mount that shows what is of the host.
func (n node) attributes() uint64 {
	attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if n.device {
		attr = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	}
	if !n.write {
		attr |= unix.MOUNT_ATTR_RDONLY
	}
	return attr
}

// restrict sets attributes on all of a tree that is not in place yet.
func restrict(mount int, attr unix.MountAttr) error {
	attr.Propagation = unix.MS_PRIVATE
	return unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
}

// newTree makes an empty root and puts it in the place of the present one, which
// stays reachable for this process until pivot.
func newTree(mounts []int) (*tree, error) {
	root, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV,
		"mode", "0755", "size", fmt.Sprint(rootSize), "nr_inodes", fmt.Sprint(rootInodes))
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, mounts: mounts, made: map[string]bool{"/": true}}
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, err
	}
	if err := t.nameless(); err != nil {
		return nil, err
	}
	return t, nil
}

// nameless makes the things without names.
func (t *tree) nameless() error {
	for i, path := range []string{"file", "dir", "canary"} {
		if path == "dir" {
			if err := unix.Mkdirat(t.root, path, 0o555); err != nil {
				return err
			}
		} else {
			fd, err := unix.Openat(t.root, path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, uint32(0o400*(i/2)))
			if err != nil {
				return err
			}
			unix.Close(fd)
		}
		fd, err := unix.Openat(t.root, path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if path == "canary" {
			t.canary = fd
		} else {
			t.empty[i] = fd
		}
	}
	return nil
}

// unname removes the names again. What is bound of them stays, and nothing can be
// made in a directory that was removed.
func (t *tree) unname() error {
	return errors.Join(
		unix.Unlinkat(t.root, "file", 0), unix.Unlinkat(t.root, "canary", 0),
		unix.Unlinkat(t.root, "dir", unix.AT_REMOVEDIR), unix.Close(t.empty[0]), unix.Close(t.empty[1]))
}

// newFS makes a file system that is mounted nowhere yet. Options are pairs.
func newFS(name string, attr int, options ...string) (int, error) {
	fs, err := unix.Fsopen(name, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	for i := 0; i+1 < len(options); i += 2 {
		if err := unix.FsconfigSetString(fs, options[i], options[i+1]); err != nil {
			return -1, fmt.Errorf("%s=%s: %w", options[i], options[i+1], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attr)
}

// place makes one node.
func (t *tree) place(n node) error {
	rel := strings.TrimPrefix(n.path, "/")
	if rel == "" || filepath.Clean(n.path) != n.path {
		return fmt.Errorf("%q is no place for anything", n.path)
	}
	if n.found {
		t.made[n.path] = true
	} else if err := t.parents(n.path); err != nil {
		return err
	}
	switch n.kind {
	case kindDir:
		return t.mkdir(n.path, uint32(n.mode))
	case kindLink:
		return unix.Symlinkat(n.source, t.root, rel)
	case kindFile:
		return t.write(rel, n)
	case kindBind, kindTmpfs, kindProc, kindPts, kindMask:
		mount, err := t.mount(n)
		if err == nil && n.upper != "" {
			mount, err = t.overlay(mount, n)
		}
		if err != nil {
			return err
		}
		defer unix.Close(mount)
		return t.attach(mount, n)
	}
	return fmt.Errorf("no kind of node %d", n.kind)
}

// maxTerminals is how many a box may have: the machine has some 3,000 for all boxes and
// containers together (kernel.pty.max less its reserve).
const maxTerminals = 256

// mount returns what is to be mounted for n, mounted nowhere yet.
func (t *tree) mount(n node) (int, error) {
	const private = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	switch n.kind {
	case kindTmpfs:
		return newFS("tmpfs", private, "mode", fmt.Sprintf("%#o", n.mode), "size", fmt.Sprint(n.size), "nr_inodes", fmt.Sprint(ownInodes))
	case kindProc:
		options := []string{"hidepid", "invisible"}
		if n.source != "" {
			options = append(options, "gid", n.source)
		}
		return newFS("proc", private|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY, options...)
	case kindPts:
		return newFS("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "ptmxmode", "0666", "mode", "0600", "max", strconv.Itoa(maxTerminals))
	default:
		return t.bind(n)
	}
}

// bind returns a copy of a tree of the host, restricted.
func (t *tree) bind(n node) (mount int, err error) {
	switch {
	case n.kind == kindMask && n.dir:
		mount, err = cloneFD(t.empty[1])
	case n.kind == kindMask:
		mount, err = cloneFD(t.empty[0])
	case n.fd > len(t.mounts):
		return -1, fmt.Errorf("no descriptor %d", n.fd)
	case n.fd > 0:
		return t.mounts[n.fd-1], nil
	default:
		mount, err = cloneTree(n.source)
	}
	if err != nil {
		return -1, err
	}
	if err := restrict(mount, unix.MountAttr{Attr_set: n.attributes()}); err != nil {
		unix.Close(mount)
		return -1, err
	}
	return mount, nil
}

// attach puts a mount in its place.
func (t *tree) attach(mount int, n node) error {
	rel := strings.TrimPrefix(n.path, "/")
	if !n.found {
		if err := t.point(rel, n); err != nil {
			return err
		}
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	at, err := openat2(t.root, rel, &how)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.MoveMount(mount, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// point makes the mount point of n, in a file system of the box's own.
func (t *tree) point(rel string, n node) error {
	if n.dir || n.kind == kindTmpfs || n.kind == kindProc || n.kind == kindPts {
		return t.mkdir(n.path, 0o755)
	}
	fd, err := unix.Openat(t.root, rel, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o444)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func (t *tree) parents(path string) error {
	dir := filepath.Dir(path)
	if t.made[dir] {
		return nil
	}
	if err := t.parents(dir); err != nil {
		return err
	}
	return t.mkdir(dir, 0o755)
}

func (t *tree) mkdir(path string, mode uint32) error {
	if t.made[path] {
		return nil
	}
	t.made[path] = true
	err := unix.Mkdirat(t.root, path[1:], mode)
	if err == unix.EEXIST {
		return nil // the root of what was mounted there before
	}
	return err
}

func (t *tree) write(rel string, n node) error {
	fd, err := unix.Openat(t.root, rel, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(n.mode))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for b := []byte(n.source); len(b) > 0; {
		w, err := unix.Write(fd, b)
		if err != nil {
			return err
		}
		b = b[w:]
	}
	return nil
}

// seal makes read-only what was writable only for us: the root, and the empty
// directories that stand for what is denied.
func (t *tree) seal(nodes []node) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	for _, n := range nodes {
		if n.kind == kindTmpfs && !n.write {
			if err := unix.MountSetattr(t.root, n.path[1:], unix.AT_SYMLINK_NOFOLLOW, &attr); err != nil {
				return fmt.Errorf("%s: %w", n.path, err)
			}
		}
	}
	return unix.MountSetattr(t.root, "", unix.AT_EMPTY_PATH, &attr)
}

// pivot makes the tree the root of this mount namespace and lets go of the old one.
func (t *tree) pivot() error {
	if err := unix.Fchdir(t.root); err != nil {
		return err
	}
	// With both names the same, the old root ends up on top of the new one
	// (pivot_root(2), "pivot_root(".", ".")").
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}
