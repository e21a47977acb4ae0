package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"ringfence/internal/egress/bridge"
)

// BenchmarkRequest is one small request on a connection that is kept, directly and by
// the way out, without an engine.
func BenchmarkRequest(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	defer s.Close()
	at := "site.test:" + port(s)
	r := newRig(b, nil, "allow *")
	run := func(b *testing.B, conn net.Conn, target string) {
		in := bufio.NewReader(conn)
		for b.Loop() {
			_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, at)
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
		}
	}
	b.Run("direct", func(b *testing.B) {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		run(b, c, "/")
	})
	b.Run("decided", func(b *testing.B) { run(b, r.dial(b, bridge.KindProxy, "127.0.0.1:3128"), "http://"+at+"/") })
}

// BenchmarkTunnel is bytes that pass as they are.
func BenchmarkTunnel(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	piece := make([]byte, 1<<20)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					if _, err := c.Write(piece); err != nil {
						return
					}
				}
			}()
		}
	}()
	at := fmt.Sprintf("site.test:%d", l.Addr().(*net.TCPAddr).Port)
	r := newRig(b, nil, "tunnel connect "+at)
	run := func(b *testing.B, in io.Reader) {
		b.SetBytes(int64(len(piece)))
		for b.Loop() {
			if _, err := io.ReadFull(in, piece); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("direct", func(b *testing.B) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		run(b, c)
	})
	b.Run("carried", func(b *testing.B) {
		_, in, _ := r.ask(b, "CONNECT "+at+" HTTP/1.1\r\nHost: "+at+"\r\n\r\n")
		run(b, in)
	})
}
