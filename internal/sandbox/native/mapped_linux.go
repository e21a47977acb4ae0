package native

import (
	"fmt"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// mountOutside makes the mounts that the stage cannot make: those whose files must
// keep their owners although the box runs as somebody else.
func (b *builder) mountOutside() error {
	if b.ids.outer < 0 {
		return nil
	}
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", b.box.stage.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	for i := range b.plan.nodes {
		n := &b.plan.nodes[i]
		if n.kind != kindBind || !n.mapped {
			continue
		}
		tree, err := mapped(*n, ns)
		if err != nil && n.upper != "" {
			err = fmt.Errorf("%w: %w", sandbox.ErrNoOverlay, err)
		}
		if err != nil {
			return err
		}
		n.fd = b.sendMount(tree)
		layers, err := mapLayers(*n, ns)
		if err != nil {
			return fmt.Errorf("%w: %w", sandbox.ErrNoOverlay, err)
		}
		if layers >= 0 {
			n.layers = b.sendMount(layers)
		}
	}
	return nil
}

// sendMount has a mount sent with the plan, and returns its number there.
func (b *builder) sendMount(fd int) int {
	b.own = append(b.own, fd)
	b.fds = append(b.fds, fd)
	b.plan.mounts++
	return b.plan.mounts
}

// mapped returns a copy of a tree in which the owners of files are those of the user
// namespace behind ns. A file system that cannot do that is an error where the box may
// write; where it only reads, the owners then look like nobody, and what only they may
// read stays closed.
func mapped(n node, ns int) (int, error) {
	fd, err := cloneTree(n.source)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", n.source, err)
	}
	attr := unix.MountAttr{Attr_set: n.attributes() | unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns)}
	err = restrict(fd, attr)
	if err != nil && !n.write {
		attr = unix.MountAttr{Attr_set: n.attributes()}
		err = restrict(fd, attr)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s: its file system, or one mounted in it, does not let the owners of files be mapped: %w; "+
			"run ringfence as the user who owns it, or move it to ext4, xfs, btrfs or tmpfs", n.source, err)
	}
	return fd, nil
}
