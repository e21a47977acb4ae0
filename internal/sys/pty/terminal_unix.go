//go:build linux || darwin || freebsd

package pty

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

type terminal struct{ *os.File }

// Controlling opens the controlling terminal of this process, whatever its
// standard streams are. The error is ErrNoTerminal if there is none.
func Controlling() (Terminal, error) {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the terminal: %w (%w)", ErrNoTerminal, err)
	}
	return terminal{os.NewFile(uintptr(fd), "/dev/tty")}, nil
}

func (t terminal) Discard() error {
	raw, err := t.SyscallConn()
	if err == nil {
		var flush error
		err = raw.Control(func(fd uintptr) { flush = discard(int(fd)) })
		if err == nil {
			err = flush
		}
	}
	if err != nil {
		return fmt.Errorf("dropping what was typed: %w", err)
	}
	return nil
}
