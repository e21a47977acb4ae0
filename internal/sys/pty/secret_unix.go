//go:build linux || darwin || freebsd

package pty

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ReadSecret shows prompt at the controlling terminal and returns the line that is typed
// there, without its end and without showing it. When ctx ends before the line does, the
// terminal is as it was, and the error that of ctx. ErrNoTerminal if there is none.
func ReadSecret(ctx context.Context, prompt string) (line []byte, err error) {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the terminal: %w (%w)", ErrNoTerminal, err)
	}
	tty := os.NewFile(uintptr(fd), "/dev/tty")
	state, err := term.GetState(fd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the state of the terminal: %w", err), tty.Close())
	}
	if _, err := fmt.Fprint(tty, prompt); err != nil {
		return nil, errors.Join(fmt.Errorf("writing to the terminal: %w", err), tty.Close())
	}
	type read struct {
		line []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		line, err := term.ReadPassword(fd)
		done <- read{line, err}
	}()
	select {
	case r := <-done:
		_, werr := fmt.Fprintln(tty)
		return r.line, errors.Join(r.err, werr, tty.Close())
	case <-ctx.Done():
		// The reader stays with the open terminal until this process ends.
		return nil, errors.Join(context.Cause(ctx), term.Restore(fd, state))
	}
}
