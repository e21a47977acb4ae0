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
// the engine has mounted: nosuid and nodev, what is mapped with the files of its owner as
// those of the box's user, and all from the handles that were opened when p was made. The
// program is not there yet. These mounts are in no namespace but the container's, and end with
// it.
func attach(p *plan, pid int) error {
	owners := map[ids]int{} // user namespaces
	defer func() {
		for _, fd := range owners {
			unix.Close(fd)
		}
	}()
	for _, m := range p.mounts {
		if _, ok := owners[m.ids]; ok || !m.mapped {
			continue
		}
		fd, err := swappedOwners(m.ids, ids{p.uid, p.gid})
		if err != nil {
			return fmt.Errorf("mapping the owners of files: %w", err)
		}
		owners[m.ids] = fd
	}
	trees := make([]int, 0, len(p.mounts))
	defer func() {
		for _, fd := range trees {
			unix.Close(fd)
		}
	}()
	for _, m := range p.mounts {
		fd, err := m.tree(owners[m.ids])
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
	if m.mapped {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(owners)
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(fd)
		if !m.mapped {
			return -1, fmt.Errorf("mounting %s: %w", m.target, err)
		}
		return -1, fmt.Errorf("%s belongs to user %d, as whom the container does not run, and its file system does not let owners be mapped: %w; give it to a user (sudo chown -R USER %s), or use the tier native", m.real, m.ids.uid, err, m.real)
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

// swappedOwners returns a user namespace in which a and b have changed places, and all
// others are who they are.
func swappedOwners(a, b ids) (int, error) {
	self, err := proc.Executable()
	if err != nil {
		return -1, err
	}
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	// It stops before its first instruction, as one that is traced, and is no more
	// than a holder of its namespace.
	pid, err := syscall.ForkExec(self, []string{self}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: swapped(a.uid, b.uid), GidMappings: swapped(a.gid, b.gid),
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

// swapped maps ids on disk to those of the box: a and b change places.
func swapped(a, b uint64) (list []syscall.SysProcIDMap) {
	const all = 1<<32 - 1 // the last is no id
	low, high := int(min(a, b)), int(max(a, b))
	add := func(from, to, n int) {
		if n > 0 {
			list = append(list, syscall.SysProcIDMap{ContainerID: from, HostID: to, Size: n})
		}
	}
	if low == high {
		add(0, 0, all)
		return list
	}
	add(0, 0, low)
	add(low, high, 1)
	add(low+1, low+1, high-low-1)
	add(high, low, 1)
	add(high+1, high+1, all-high-1)
	return list
}
