package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Ended reports whether no process has the number pid any more, but for one that waits
// to be reaped. It is false where that is not known.
func Ended(pid int) bool {
	if pid <= 0 {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	return hasEnded(fd)
}

// AwaitEnd blocks until the process pid, which need not be our child, has ended. An
// error says that this cannot be known, or is the cause of ctx.
func AwaitEnd(ctx context.Context, pid int) error {
	if pid <= 0 {
		return fmt.Errorf("waiting for process %d: %w", pid, syscall.EINVAL)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("waiting for process %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("waiting for process %d: %w", pid, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) }) // it ends the wait
	defer stop()
	if err := raw.Read(func(fd uintptr) bool { return hasEnded(int(fd)) }); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("waiting for process %d: %w", pid, err)
	}
	return nil
}

// hasEnded reports whether the process of a pidfd has ended.
func hasEnded(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return err == nil && n > 0
		}
	}
}
