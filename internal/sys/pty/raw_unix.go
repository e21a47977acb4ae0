//go:build linux || darwin || freebsd

package pty

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A Size is that of a terminal, in characters. A zero member is not known.
type Size struct{ Rows, Columns uint16 }

// SetSize gives the terminal of which master is the other end a size; what runs in it is told.
func SetSize(master *os.File, s Size) error {
	return with(master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Columns})
	})
}

// A Raw is the controlling terminal of this process while it passes every byte on. Restore
// makes it what it was.
type Raw struct {
	tty     *os.File
	before  *term.State
	resized chan os.Signal
	ended   chan struct{}
}

// OpenRaw opens the controlling terminal. The error is ErrNoTerminal if there is none.
func OpenRaw() (*Raw, error) {
	t, err := Controlling()
	if err != nil {
		return nil, err
	}
	tty, ok := t.(terminal)
	if !ok {
		return nil, errors.Join(ErrNoTerminal, t.Close())
	}
	r := &Raw{tty: tty.File, resized: make(chan os.Signal, 1), ended: make(chan struct{})}
	if err := r.Raw(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	signal.Notify(r.resized, syscall.SIGWINCH)
	return r, nil
}

// Raw passes every byte on, again after Cooked.
func (r *Raw) Raw() error {
	err := with(r.tty, func(fd int) error {
		before, err := term.MakeRaw(fd)
		if err == nil && r.before == nil {
			r.before = before
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("relaying a terminal: %w", err)
	}
	return nil
}

// Cooked makes the terminal what it was, for a while.
func (r *Raw) Cooked() error {
	return with(r.tty, func(fd int) error { return term.Restore(fd, r.before) })
}

// Read reads what is typed. After Restore it is over.
func (r *Raw) Read(p []byte) (int, error) { return readUntil{r.tty, r.ended}.Read(p) }

// ReadWithin reads what is typed within a time; 0 and no error are nothing. Where a terminal
// cannot be waited on for a time it is nothing at once.
func (r *Raw) ReadWithin(p []byte, most time.Duration) (int, error) {
	select {
	case <-r.ended:
		return 0, io.EOF
	default:
	}
	if err := r.tty.SetReadDeadline(time.Now().Add(most)); err != nil {
		return 0, nil //nolint:nilerr // such a terminal is read without a time, by Read
	}
	n, err := r.tty.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil
	}
	return n, err
}

// Size returns the size of the terminal.
func (r *Raw) Size() (Size, error) {
	var s Size
	err := with(r.tty, func(fd int) error {
		w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			s = Size{w.Row, w.Col}
		}
		return err
	})
	return s, err
}

// Resized calls f with each new size, until ctx ends.
func (r *Raw) Resized(ctx context.Context, f func(Size)) {
	for {
		select {
		case <-r.resized:
			if s, err := r.Size(); err == nil {
				f(s)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Restore makes the terminal what it was, and ends reads of it.
func (r *Raw) Restore() error {
	signal.Stop(r.resized)
	close(r.ended)
	return errors.Join(r.Cooked(), r.tty.Close())
}

// Gone reports whether err is how reading a terminal ends of which nobody has the other end.
func Gone(err error) bool { return errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed) }
