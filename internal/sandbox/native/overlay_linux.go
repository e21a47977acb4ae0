package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/sys/mounts"
)

// overlayCaps are what a stage needs besides, where the workspace is an overlay. The
// kernel does with the rights of who mounted it what a program in the box may do:
// make marks of deletions in a directory that nobody may enter, give copies the owner
// and times of their originals. They are good for the ids of the box only, and the
// stage gives them up with the others.
var overlayCaps = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID}

// Where the two trees of an overlay are attached while it is made: the kernel takes
// them by path.
const (
	stageLower  = ".overlay-lower"
	stageLayers = ".overlay-layers"
)

// checkOverlay refuses what an overlay would show otherwise than the workspace is:
// it has no file system that is mounted within, but what that hides.
func checkOverlay(n node) error {
	for _, p := range []string{n.upper, n.work} {
		if strings.ContainsAny(filepath.Base(p), `:,\`) {
			return fmt.Errorf("%s: the name of a directory of an overlay cannot have %q", p, `:,\`)
		}
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		// proc_pid_mountinfo(5): the mount point is the fifth field, blanks in octal.
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		at := mounts.Unescape(f[4])
		if at != n.path && beneath(at, n.path) {
			return fmt.Errorf("%s is mounted in the workspace, and an overlay would not show it", at)
		}
	}
	return nil
}

// mapLayers is the part of an overlay that is made outside, for a box of root: a mount
// of what its directories are in, with their owners as those of the user namespace
// behind ns. It returns a descriptor, or -1 if n is no overlay.
func mapLayers(n node, ns int) (int, error) {
	if n.upper == "" {
		return -1, nil
	}
	return mapped(node{source: filepath.Dir(n.upper), write: true}, ns)
}

// overlay returns a mount in which what changes of lower goes to the upper directory
// of n (Documentation/filesystems/overlayfs.rst; Linux 5.11 in user namespaces, 5.19
// on trees with mapped ids). It is mounted nowhere yet. lower is used up.
func (t *tree) overlay(lower int, n node) (mount int, err error) {
	defer func() { err = errors.Join(err, unix.Close(lower)) }()
	var layers int
	switch {
	case n.layers > len(t.mounts):
		return -1, fmt.Errorf("no descriptor %d", n.layers)
	case n.layers > 0:
		layers = t.mounts[n.layers-1]
	default:
		if layers, err = cloneTree(filepath.Dir(n.upper)); err == nil {
			err = restrict(layers, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
		}
	}
	if err != nil {
		return -1, fmt.Errorf("the directories of the overlay: %w", err)
	}
	defer unix.Close(layers) // it is attached, or of no use
	for name, fd := range map[string]int{stageLower: lower, stageLayers: layers} {
		if err := t.borrow(name, fd); err != nil {
			return -1, err
		}
		defer func() { err = errors.Join(err, t.giveBack(name)) }()
	}
	if err := unix.Fchdir(t.root); err != nil {
		return -1, err
	}
	mount, err = newOverlay(n)
	if err != nil {
		err = fmt.Errorf("%w; an overlay needs Linux 5.11 (as root 5.19), the directory of ringfence on ext4, xfs, btrfs or tmpfs, "+
			"and the workspace on no overlay of its own", err)
	}
	return mount, errors.Join(err, unix.Chdir("/"))
}

// borrow attaches a mount in the root of the box.
func (t *tree) borrow(name string, fd int) error {
	if err := unix.Mkdirat(t.root, name, 0o700); err != nil {
		return err
	}
	return unix.MoveMount(fd, "", t.root, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// giveBack detaches it again. The overlay has its own.
func (t *tree) giveBack(name string) error {
	if err := unix.Fchdir(t.root); err != nil {
		return err
	}
	return errors.Join(unix.Unmount(name, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW), unix.Unlinkat(t.root, name, unix.AT_REMOVEDIR), unix.Chdir("/"))
}

// newOverlay mounts the overlay of what is attached. Nothing but what was given is
// switched on: renamed directories are copied, and no file is a reference to another.
func newOverlay(n node) (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs) // mounted by then, or of no use
	// Attributes in the name space of users, since nobody in a user namespace has another.
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
		return -1, fmt.Errorf("userxattr: %w", err)
	}
	for _, o := range [][2]string{
		{"lowerdir", stageLower},
		{"upperdir", stageLayers + "/" + filepath.Base(n.upper)},
		{"workdir", stageLayers + "/" + filepath.Base(n.work)},
	} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("%s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(n.attributes()))
}
