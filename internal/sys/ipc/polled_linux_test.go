package ipc

import (
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flags are those of the open file behind f, which other processes may share.
func flags(t *testing.T, fd uintptr) int {
	t.Helper()
	n, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n & unix.O_NONBLOCK
}

// TestPolled: what is read can be given up, and what others share of it stays as it was.
func TestPolled(t *testing.T) {
	var fds [2]int
	for _, c := range []struct {
		name   string
		make   func() error
		shared bool // it is one of the others too
		alone  bool // it is changed while it is read
	}{
		{"a pipe", func() error { return syscall.Pipe(fds[:]) }, false, false},
		{"a pipe that is an output too", func() error { return syscall.Pipe(fds[:]) }, true, false},
		{"a socket", func() (err error) { fds, err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); return err }, false, true},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		in, out := os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
		others := []*os.File{os.Stderr}
		if c.shared {
			others = append(others, in)
		}
		p, done := Polled(in, others...)
		if got := flags(t, uintptr(fds[0])) != 0; got != c.alone {
			t.Errorf("%s: what others share is changed: %v", c.name, got)
		}
		b := make([]byte, 1)
		if err := p.SetReadDeadline(time.Now().Add(-1)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := p.Read(b); !os.IsTimeout(err) {
			t.Errorf("%s: reading in vain: %v", c.name, err)
		}
		if _, err := out.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		if err := p.SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		if n, err := p.Read(b); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
		done()
		if flags(t, uintptr(fds[0])) != 0 {
			t.Errorf("%s: it stays changed", c.name)
		}
	}
	// A socket that is standard input and output at once.
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, other := os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "other")
	defer other.Close()
	if p, done := Polled(in, in); p != in || flags(t, uintptr(fds[0])) != 0 {
		t.Error("a socket that others write to is changed")
	} else {
		done()
	}
}
