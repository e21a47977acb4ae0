package container

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ringfence/internal/sys/proc"
)

// machineRoot reports whether we are the root of the machine, who can mount in a
// container, rather than that of some user namespace.
func machineRoot() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && os.Geteuid() == 0 && strings.Join(strings.Fields(string(text)), " ") == "0 0 4294967295"
}

// attach mounts what p shows once more in the container whose init is pid, over what
// the engine has mounted: with the files of root as those of the box's user, and from
// the handles that were opened when p was made. The program is not there yet. These
// mounts are in no namespace but the container's, and end with it.
func attach(p *plan, pid int) error {
	owners, err := swappedOwners(p)
	if err != nil {
		return fmt.Errorf("mapping the owners of files: %w", err)
	}
	defer unix.Close(owners)
	trees := make([]int, 0, len(p.mounts))
	defer func() {
		for _, fd := range trees {
			unix.Close(fd)
		}
	}()
	for _, m := range p.mounts {
		fd, err := m.tree(owners)
		if err != nil {
			return err
		}
		trees = append(trees, fd)
	}
	return onThread(func() error { return attachIn(p, pid, trees) })
}

// onThread runs f on a thread that does nothing else and ends with it. It is not the
// first of the process: that one cannot end, and would be what /proc/self shows.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			done <- f() // still locked when the goroutine ends, and so the thread ends
			return
		}
		done <- onThread(f) // elsewhere: this thread is taken as long as that takes
		runtime.UnlockOSThread()
	}()
	return <-done
}

// tree returns a mount of m that is nowhere yet.
func (m mount) tree(owners int) (int, error) {
	fd, err := unix.OpenTree(int(m.opened.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("mounting %s: %w", m.target, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if m.readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if !m.denied {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(owners)
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s belongs to root, no container runs as root, and its file system does not let owners be mapped: %w; give it to a user (sudo chown -R USER %s), or use the tier native", m.real, err, m.real)
	}
	return fd, nil
}

// attachIn mounts trees where p has them in the container. Its thread is of no use
// for anything else afterwards.
func attachIn(p *plan, pid int, trees []int) error {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("entering the container: %w", err)
	}
	defer unix.Close(ns)
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // which setns(2) wants
		return fmt.Errorf("entering the container: %w", err)
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the container: %w", err)
	}
	for i, m := range p.mounts {
		// A link in what was just mounted could lead anywhere in the container.
		at, err := unix.Openat2(unix.AT_FDCWD, m.target, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
		err = unix.MoveMount(trees[i], "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		unix.Close(at)
		if err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	return nil
}

// swappedOwners returns a user namespace in which root and the box's user have changed
// places, and all others are who they are.
func swappedOwners(p *plan) (int, error) {
	self, err := proc.Executable()
	if err != nil {
		return -1, err
	}
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	// It stops before its first instruction, as one that is traced, and is no more
	// than a holder of its namespace.
	pid, err := syscall.ForkExec(self, []string{self}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: swapped(p.uid), GidMappings: swapped(p.gid),
		GidMappingsEnableSetgroups: true, Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}})
	if err != nil {
		return -1, err
	}
	defer func() {
		_ = unix.Kill(pid, unix.SIGKILL) // it is our child until it was waited for
		for {
			var ws unix.WaitStatus
			if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR && (err != nil || !ws.Stopped()) {
				return
			}
		}
	}()
	return unix.Open(fmt.Sprintf("/proc/%d/ns/user", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// swapped maps ids on disk to those of the box: 0 and id change places.
func swapped(id uint64) []syscall.SysProcIDMap {
	const all = 1<<32 - 1 // the last is no id
	n := int(id)
	return []syscall.SysProcIDMap{
		{ContainerID: 0, HostID: n, Size: 1},
		{ContainerID: n, HostID: 0, Size: 1},
		{ContainerID: 1, HostID: 1, Size: n - 1},
		{ContainerID: n + 1, HostID: n + 1, Size: all - n - 1},
	}
}
