package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/mitm"
)

// FuzzHello: what package tls reads a name of, we read the same name of, or refuse.
func FuzzHello(f *testing.F) {
	f.Add(clientHello(serverName("site.test"), extension(extALPN, []byte{0, 3, 2, 'h', '2'})))
	f.Add(clientHello(serverName("site.test"), serverName("evil.test")))
	f.Add(clientHello(extension(extECH, []byte{0}))[:20])
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := peekHello(bufio.NewReaderSize(bytes.NewReader(b), 4*maxHello))
		if errors.Is(err, errNotTLS) != (len(b) > 0 && b[0] != 22) {
			t.Fatalf("%v", err)
		}
		if err != nil {
			return
		}
		var name string
		ours, theirs := net.Pipe()
		go func() {
			_, _ = ours.Write(b)
			_ = ours.Close()
		}()
		_ = tls.Server(theirs, &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			name = i.ServerName
			return nil, io.EOF
		}}).Handshake()
		_ = theirs.Close()
		if got, err := weburl.ParseHost(name); name != "" && (err != nil || got != h.name) {
			t.Errorf("%q is read, and by package tls %q", h.name, name)
		}
	})
}

// FuzzSocks: no request makes it panic, and a host that comes out is canonical.
func FuzzSocks(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x03\x09site.test\x01\xbb"))
	f.Add([]byte("\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x05\x01\x00\x04aaaaaaaaaaaaaaaa\x00\x50"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = readGreeting(bytes.NewReader(b))
		host, port, err := readSocks(bytes.NewReader(b))
		if err != nil {
			return
		}
		if again, err := weburl.ParseHost(host.String()); err != nil || again != host || port == 0 {
			t.Errorf("%q %d: %v", host, port, err)
		}
	})
}

// sink is a connection that gives what it was made of.
type sink struct {
	net.Conn
	io.Reader
}

func (s sink) Read(p []byte) (int, error) { return s.Reader.Read(p) }

// FuzzTarget: what is decided about a request is one URL, and what goes out is that URL.
func FuzzTarget(f *testing.F) {
	f.Add("GET http://site.test/a%2fb;c//d?x=%00|y HTTP/1.1\r\nHost: site.test\r\n\r\n", true)
	f.Add("GET //other.test/../a HTTP/1.1\r\nHost: site.test\r\n\r\n", false)
	f.Add("POST http://a@b/ HTTP/1.1\r\nHost: b\r\nContent-Length: 1\r\n\r\nx", true)
	pinned, err := weburl.ParseHost("site.test")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, head string, proxy bool) {
		r, err := http.ReadRequest(bufio.NewReader(mitm.Strict(sink{Reader: strings.NewReader(head)}, mitm.Limits{}, nil)))
		if err != nil {
			return
		}
		x := &exchange{way: &way{}, scheme: "http"}
		if !proxy {
			x.host, x.port = pinned, 80
		}
		u, err := x.target(r)
		if err != nil {
			return
		}
		if !proxy && (u.Host != pinned || u.Port != 80) {
			t.Fatalf("%q is for %s", head, u.HostPort())
		}
		wire, err := wireURL(u.Plain())
		if err != nil {
			return
		}
		path, query, _ := strings.Cut(wire.RequestURI(), "?")
		if p := u.Plain(); path != p.Path || query != p.Query || wire.Host == "" {
			t.Errorf("%q is decided as %s and sent as %s", head, p, wire.RequestURI())
		}
	})
}

// TestStandIns: an address stands for the name that it was given out for and no other;
// the names that were used last keep theirs.
func TestStandIns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 8).Draw(t, "limit")
		n := newNames(limit, nil)
		given := map[string][2]netip.Addr{}
		var recent []string
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.StringMatching(`[a-l]\.test`).Draw(t, "name")
			host, err := weburl.ParseHost(name)
			if err != nil {
				t.Fatal(err)
			}
			four, six := n.standIns(host)
			given[name] = [2]netip.Addr{four, six}
			recent = append([]string{name}, recent...)
			live := map[string]bool{}
			for _, r := range recent {
				if len(live) == limit {
					break
				}
				live[r] = true
			}
			for r := range live {
				for _, a := range given[r] {
					h, ok := n.byAddress(a)
					if !ok || h.String() != r || !a.IsPrivate() && !weburl.Special(a) {
						t.Fatalf("%s, given to %s, stands for %s", a, r, h)
					}
				}
			}
			for r, both := range given {
				if h, ok := n.byAddress(both[0]); !live[r] && ok {
					t.Fatalf("%s, given to %s, which is forgotten, stands for %s", both[0], r, h)
				}
			}
			if len(n.by) > limit || len(n.place) > limit {
				t.Fatalf("%d names, %d addresses", len(n.by), len(n.place))
			}
		}
	})
}
