package bridge

import (
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
	"sync"
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

// ways are how a connection of a box gets out of it: by a bridge within, or by sockets that
// were handed out.
var ways = map[string]func(context.Context, Sockets, net.Listener, int) (net.Listener, func() error){
	"bridge": func(ctx context.Context, s Sockets, way net.Listener, most int) (net.Listener, func() error) {
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, s, Options{Connections: most, Dial: func(ctx context.Context, p Preamble) (Conn, error) {
				return Dial(ctx, way.Addr().String(), p)
			}})
		}()
		return way, func() error { return errors.Join(<-done, way.Close()) }
	},
	"handed out": func(_ context.Context, s Sockets, way net.Listener, _ int) (net.Listener, func() error) {
		l := NewListener(way)
		err := l.Take(s)
		return l, func() error { return errors.Join(err, l.Close()) }
	},
}

// eachWay tries f with each of ways; behave handles what comes out.
func eachWay(t *testing.T, behave func(*testing.T, Preamble, Conn), f func(*testing.T, world)) {
	for name := range ways {
		t.Run(name, func(t *testing.T) {
			f(t, start(t, name, 0, func(p Preamble, c Conn) { behave(t, p, c) }))
		})
	}
}

func start(t *testing.T, way string, most int, behave func(Preamble, Conn)) world {
	t.Helper()
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "way"))
	if err != nil {
		t.Fatal(err)
	}
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
	out, end := ways[way](ctx, s, socket, most)
	go func() {
		for {
			c, err := out.Accept()
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
				behave(p, c.(Conn))
			}()
		}
	}()
	w := world{sockets: s, stop: sync.OnceFunc(func() {
		cancel()
		if err := end(); err != nil {
			t.Error(err)
		}
	})}
	t.Cleanup(w.stop)
	return w
}

// Bytes go both ways; the end of one direction leaves the other open.
func TestHalfClose(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	eachWay(t, func(t *testing.T, p Preamble, c Conn) {
		if p.Kind != KindProxy {
			t.Errorf("%v", p)
		}
		all, err := io.ReadAll(c) // ends only when the other direction is closed alone
		if err != nil {
			t.Error(err)
		}
		_, _ = c.Write(append([]byte("got "), all...))
	}, func(t *testing.T, w world) {
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
	})
}

// The way out ends first, and what the client says then is still heard.
func TestOtherHalfClose(t *testing.T) {
	heard := make(chan string, 1)
	eachWay(t, func(_ *testing.T, _ Preamble, c Conn) {
		_, _ = c.Write([]byte("first"))
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	}, func(t *testing.T, w world) {
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
	})
}

// A connection that is refused is cut off.
func TestReset(t *testing.T) {
	eachWay(t, func(*testing.T, Preamble, Conn) {}, func(t *testing.T, w world) {
		if err := attempt(w.sockets.Direct[0]); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v", err)
		}
	})
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
	w := start(t, "bridge", 1, func(_ Preamble, c Conn) {
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
	query := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01")
	eachWay(t, func(t *testing.T, p Preamble, c Conn) {
		if p.Kind != KindResolver || p.Dst.Port() == 0 {
			t.Errorf("%v", p)
		}
		got := make([]byte, 2+len(query))
		if _, err := io.ReadFull(c, got); err != nil || int(binary.BigEndian.Uint16(got)) != len(query) {
			t.Errorf("%q, %v", got, err)
			return
		}
		answer := slices.Concat(got[2:], []byte(long))
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	}, func(t *testing.T, w world) {
		c := w.dial(t, w.sockets.Resolver[0].Addr())
		if _, err := c.Write(append([]byte{0, byte(len(query))}, query...)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 2+len(query)+len(long))
		if _, err := io.ReadFull(c, answer); err != nil || !bytes.HasSuffix(answer, []byte(long)) {
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
		want := slices.Clone(query)
		want[2] |= truncated
		if err != nil || !bytes.Equal(answer[:n], want) {
			t.Errorf("%q, %v; want %q", answer[:n], err, want)
		}
	})
}

// Nothing is left of a bridge that ends in the middle of everything.
func TestNothingIsLeft(t *testing.T) {
	for way := range ways {
		before := runtime.NumGoroutine()
		hold := make(chan bool)
		w := start(t, way, 0, func(_ Preamble, c Conn) {
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
				t.Fatalf("%s: %s", way, buf[:runtime.Stack(buf, true)])
			}
		}
	}
}
