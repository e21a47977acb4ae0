package ipc

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestBrisk: what is read and written briskly is what is read and written, of any size,
// with its end and its errors.
func TestBrisk(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		r io.ReadCloser
		w io.WriteCloser
	}{"pipe": {r, w}, "socket": {near, far}} {
		in, out := BriskReader(c.r), BriskWriter(c.w)
		if in == c.r || out == c.w {
			t.Errorf("%s: it is as it was", name)
		}
		// More than fits, so that both sides wait, in writes of all kinds.
		var sent bytes.Buffer
		for i := range 60 {
			sent.Write(bytes.Repeat([]byte{byte(i)}, 1<<(i%18)))
		}
		written := make(chan struct{})
		go func() {
			defer close(written)
			for rest := sent.Bytes(); len(rest) > 0; {
				n, err := out.Write(rest[:min(len(rest), 1+len(rest)/3)])
				if err != nil {
					t.Error(err)
				}
				rest = rest[n:]
			}
			c.w.Close()
		}()
		if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, sent.Bytes()) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), sent.Len(), err)
		}
		<-written
		if n, err := out.Write([]byte("x")); err == nil {
			t.Errorf("%s: %d bytes written after the end", name, n)
		}
		c.r.Close()
		if n, err := in.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: closed: %d, %v", name, n, err)
		}
	}
}

// TestBriskGivesUp: a wait ends with its deadline and with the other side.
func TestBriskGivesUp(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	out := BriskWriter(w)
	if err := errors.Join(r.SetReadDeadline(time.Now().Add(-1)), w.SetWriteDeadline(time.Now().Add(time.Millisecond))); err != nil {
		t.Fatal(err)
	}
	if _, err := BriskReader(r).Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading: %v", err)
	}
	for err == nil {
		_, err = out.Write(make([]byte, 4096))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing: %v", err)
	}
	r.Close()
	if err := w.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("nobody reads: %v", err)
	}
	plain := bytes.NewBuffer(nil)
	if BriskReader(plain) != io.Reader(plain) || BriskWriter(plain) != io.Writer(plain) {
		t.Error("memory is no stream")
	}
	if BriskReader(os.NewFile(^uintptr(0), "none")) == nil {
		t.Error("nothing to read from")
	}
}
