//go:build linux

package ipc

import (
	"errors"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A brisk reads or writes, not both. The descriptor is non-blocking, so no system call
// of it waits.
type brisk struct {
	raw   syscall.RawConn
	usual func([]byte) (int, error) // of what it stands for
	call  uintptr                   // number of read(2) or write(2)
	long  bool                      // the last read filled the buffer

	// Of what is under way.
	turn func(fd uintptr) bool
	buf  []byte
	done int
	err  error
}

type briskRead struct{ *brisk }

type briskWrite struct{ *brisk }

func briskReader(r io.Reader) io.Reader {
	b := newBrisk(r, r.Read, unix.SYS_READ)
	if b == nil {
		return r
	}
	return briskRead{b}
}

func briskWriter(w io.Writer) io.Writer {
	b := newBrisk(w, w.Write, unix.SYS_WRITE)
	if b == nil {
		return w
	}
	return briskWrite{b}
}

// newBrisk returns nil for what is no open non-blocking descriptor.
func newBrisk(of any, usual func([]byte) (int, error), call uintptr) *brisk {
	c, ok := of.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	flags := 0
	if raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) }) != nil || err != nil || flags&unix.O_NONBLOCK == 0 {
		return nil
	}
	b := &brisk{raw: raw, usual: usual, call: call}
	b.turn = b.try // once, because each mention of a method makes a function
	return b
}

// try does one system call, or for writing as many as it takes. It returns false if
// the descriptor must be waited for.
func (b *brisk) try(fd uintptr) bool {
	for {
		rest := b.buf[b.done:]
		n, _, errno := syscall.RawSyscall(b.call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(rest))), uintptr(len(rest)))
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			b.err = errno
			return true
		default:
			b.done += int(n)
			if b.call == unix.SYS_READ || b.done == len(b.buf) {
				return true
			}
		}
	}
}

// run does what wait waits for.
func (b *brisk) run(p []byte, wait func(func(uintptr) bool) error) (int, error) {
	b.buf, b.done, b.err = p, 0, nil
	err := wait(b.turn)
	b.buf = nil
	return b.done, errors.Join(b.err, err)
}

func (b briskRead) Read(p []byte) (int, error) {
	if len(p) == 0 || b.long {
		n, err := b.usual(p)
		b.long = n == len(p) && n > 0
		return n, err
	}
	n, err := b.run(p, b.raw.Read)
	b.long = n == len(p)
	switch {
	case err != nil:
		return n, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (b briskWrite) Write(p []byte) (int, error) {
	if len(p) == 0 || len(p) > briskMost {
		return b.usual(p)
	}
	n, err := b.run(p, b.raw.Write)
	if err != nil {
		return n, os.NewSyscallError("write", err)
	}
	return n, nil
}
