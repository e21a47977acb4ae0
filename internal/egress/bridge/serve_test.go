package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds what is waited for; nothing waits so long but what is broken.
const patience = 20 * time.Second

// A world is a bridge between loopback and a way out, which behave handles.
type world struct {
	sockets Sockets
	stop    func()
}

func (w world) dial(t *testing.T, a net.Addr) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout(a.Network(), a.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func start(t *testing.T, most int, behave func(Preamble, *net.UnixConn)) world {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "way")
	way, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := way.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				p, err := ReadPreamble(c)
				if err != nil {
					t.Error(err)
					return
				}
				behave(p, c.(*net.UnixConn))
			}()
		}
	}()
	var s Sockets
	for _, to := range []*[]net.Listener{&s.Proxy, &s.Resolver, &s.Direct} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*to = append(*to, l)
	}
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Packets = append(s.Packets, p)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, s, Options{Connections: most, Dial: func(ctx context.Context, p Preamble) (Conn, error) { return Dial(ctx, socket, p) }})
	}()
	stopped := false
	w := world{sockets: s, stop: func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		way.Close()
	}}
	t.Cleanup(w.stop)
	return w
}

// Bytes go both ways; the end of one direction leaves the other open.
func TestHalfClose(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	w := start(t, 0, func(p Preamble, c *net.UnixConn) {
		if p.Kind != KindProxy {
			t.Errorf("%v", p)
		}
		all, err := io.ReadAll(c) // ends only when the other direction is closed alone
		if err != nil {
			t.Error(err)
		}
		_, _ = c.Write(append([]byte("got "), all...))
	})
	c := w.dial(t, w.sockets.Proxy[0].Addr())
	if _, err := c.Write(big); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "got "+string(big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// The way out ends first, and what the client says then is still heard.
func TestOtherHalfClose(t *testing.T) {
	heard := make(chan string, 1)
	w := start(t, 0, func(_ Preamble, c *net.UnixConn) {
		_, _ = c.Write([]byte("first"))
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	})
	c := w.dial(t, w.sockets.Direct[0].Addr())
	if got, err := io.ReadAll(c); err != nil || string(got) != "first" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.Write([]byte("second")); err != nil {
		t.Error(err)
	}
	c.Close()
	if got := <-heard; got != "second" {
		t.Errorf("%q", got)
	}
}

// A connection that is refused is cut off.
func TestReset(t *testing.T) {
	w := start(t, 0, func(Preamble, *net.UnixConn) {})
	if err := attempt(w.sockets.Direct[0]); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
}

// attempt returns what comes of a connection that is cut off, at once or soon.
func attempt(l net.Listener) error {
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	return err
}

// One too many is cut off as well, and does not wait.
func TestBound(t *testing.T) {
	hold := make(chan bool)
	w := start(t, 1, func(_ Preamble, c *net.UnixConn) {
		_, _ = c.Write([]byte("x"))
		<-hold
	})
	defer close(hold)
	if _, err := w.dial(t, w.sockets.Proxy[0].Addr()).Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if err := attempt(w.sockets.Proxy[0]); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
}

// Messages of the resolver come over both protocols; a long answer is cut short.
func TestResolver(t *testing.T) {
	long := strings.Repeat("x", 600)
	w := start(t, 0, func(p Preamble, c *net.UnixConn) {
		if p.Kind != KindResolver || p.Dst.Port() == 0 {
			t.Errorf("%v", p)
		}
		size := make([]byte, 2)
		if _, err := io.ReadFull(c, size); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		answer := slices.Concat(query, []byte(long))
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	})
	query := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01")
	c := w.dial(t, w.sockets.Resolver[0].Addr())
	if _, err := c.Write(append([]byte{0, byte(len(query))}, query...)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 2+len(query)+len(long))
	if _, err := io.ReadFull(bufio.NewReader(c), answer); err != nil || !bytes.HasSuffix(answer, []byte(long)) {
		t.Errorf("%q, %v", answer, err)
	}
	u, err := net.Dial("udp", w.sockets.Packets[0].LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	_ = u.SetDeadline(time.Now().Add(patience))
	if _, err := u.Write(query); err != nil {
		t.Fatal(err)
	}
	n, err := u.Read(answer)
	want := append([]byte(nil), query...)
	want[2] |= truncated
	if err != nil || !bytes.Equal(answer[:n], want) {
		t.Errorf("%q, %v; want %q", answer[:n], err, want)
	}
}

// Nothing is left of a bridge that ends in the middle of everything.
func TestNothingIsLeft(t *testing.T) {
	for range 3 {
		before := runtime.NumGoroutine()
		hold := make(chan bool)
		w := start(t, 0, func(_ Preamble, c *net.UnixConn) {
			_, _ = c.Write([]byte("x"))
			<-hold
		})
		for range 20 {
			c := w.dial(t, w.sockets.Proxy[0].Addr())
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		close(hold)
		w.stop()
		for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<16)
				t.Fatalf("%s", buf[:runtime.Stack(buf, true)])
			}
		}
	}
}
