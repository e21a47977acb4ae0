//go:build linux || darwin || freebsd

package pty

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	var is bool
	err := with(f, func(fd int) error {
		is = term.IsTerminal(fd)
		return nil
	})
	return err == nil && is
}

// with lends out the descriptor of f. File.Fd would make it block, and a read
// that blocks has no deadline.
func with(f *os.File, use func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = use(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// copySize gives to the size of from.
func copySize(from, to *os.File) error {
	var size *unix.Winsize
	err := with(from, func(fd int) (err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil {
		return err
	}
	return with(to, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size) })
}

// Open makes a pseudo-terminal, of the size of like if that is a terminal. What
// runs in a box gets slave; the person's terminal is never handed out.
func Open(like *os.File) (master, slave *os.File, err error) {
	master, slave, err = pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("making a terminal: %w", err)
	}
	if like != nil && IsTerminal(like) {
		if err := copySize(like, master); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("sizing a terminal: %w", err), master.Close(), slave.Close())
		}
	}
	return master, slave, nil
}

// Relay connects the person's terminal with master until output ends or ctx does:
// keys go in unchanged, what comes out goes to out, and a change of size is passed
// on. It leaves the terminal as it was.
func Relay(ctx context.Context, out io.Writer, master *os.File) (err error) {
	t, err := Controlling()
	if err != nil {
		return err
	}
	tty, ok := t.(terminal)
	if !ok {
		return errors.Join(ErrNoTerminal, t.Close())
	}
	var before *term.State
	err = with(tty.File, func(fd int) (err error) {
		before, err = term.MakeRaw(fd)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("relaying a terminal: %w", err), t.Close())
	}
	defer func() {
		err = errors.Join(err, with(tty.File, func(fd int) error { return term.Restore(fd, before) }), t.Close())
	}()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	ended := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		// When the program is gone there is nobody to type to.
		_, _ = io.Copy(master, readUntil{tty.File, ended})
	})
	both.Go(func() {
		for {
			select {
			case <-resized:
				_ = copySize(tty.File, master) // the next change tells the size again
			case <-ended:
				return
			}
		}
	})
	stop := context.AfterFunc(ctx, func() { _ = master.SetReadDeadline(time.Now()) })
	defer stop()
	_, err = io.Copy(out, master)
	close(ended)
	_ = t.SetReadDeadline(time.Now()) // where this fails, the next key ends the read
	both.Wait()
	if errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrDeadlineExceeded) { // the last slave was closed
		err = nil
	}
	return err
}

// readUntil is a terminal that is read until something has ended.
type readUntil struct {
	f     *os.File
	ended <-chan struct{}
}

// poll is how long one read waits, so that the end is seen also where a deadline
// does not wake a read that waits.
const poll = 250 * time.Millisecond

func (r readUntil) Read(p []byte) (int, error) {
	for {
		select {
		case <-r.ended:
			return 0, io.EOF
		default:
		}
		_ = r.f.SetReadDeadline(time.Now().Add(poll)) // a read without one ends with the next key
		n, err := r.f.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}
