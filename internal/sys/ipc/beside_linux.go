package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// beside is [Beside] of the process that listens at the other end of conn. It has not
// ended when it was looked at, where the kernel tells (Linux 6.5): else another could have
// its number by then.
func beside(conn net.Conn, pid int) error {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%w: %T is not a Unix socket", ErrApart, conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	pidfd, pidfdErr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) {
		pidfd, pidfdErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil {
		return err
	}
	if pidfdErr == nil {
		defer unix.Close(pidfd)
	}
	switch err := Beside(pid); {
	case errors.Is(pidfdErr, unix.ENOPROTOOPT):
		return err
	case pidfdErr != nil || !alive(pidfd):
		return fmt.Errorf("the process that listened has ended: %w", fs.ErrNotExist) // as if nobody had
	default:
		return err
	}
}

// Beside returns nil if process pid is in the user namespace and the pid namespace that
// we are in. The error is [ErrApart] if it is not, or if that cannot be seen: who may
// not look at a process (ptrace(2), PTRACE_MODE_READ) cannot tell what it is. Namespaces
// that the kernel has not are those of everybody.
func Beside(pid int) error {
	if pid <= 0 {
		return fmt.Errorf("%w: it is in a pid namespace that is not ours", ErrApart)
	}
	for _, kind := range []string{"user", "pid"} {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Stat("/proc/self/ns"); err == nil {
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("%w: our own namespaces cannot be read (is /proc mounted?): %w", ErrApart, notGone(err))
		}
		theirs, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/" + kind)
		if err != nil {
			return fmt.Errorf("%w: its namespaces cannot be read (it must have no more rights than we have): %w", ErrApart, notGone(err))
		}
		if theirs != ours {
			return fmt.Errorf("%w: process %d is in the namespace %s, and we are in %s", ErrApart, pid, theirs, ours)
		}
	}
	return nil
}

// notGone is err without its identity: that nobody listens is another matter.
func notGone(err error) error { return errors.New(err.Error()) }
