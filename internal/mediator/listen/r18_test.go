package listen

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestR18Smuggled: what two readers of HTTP could take for different requests is refused, and
// what stands behind it on the connection is not read as another one.
func TestR18Smuggled(t *testing.T) {
	s := newStage(t, nil)
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	session := s.open()
	for name, c := range map[string]struct {
		head string // instead of LENGTH and HOST
		want int
	}{
		"twin: one length":            {"HOST\r\nLENGTH", 200},
		"two lengths":                 {"HOST\r\nLENGTH\r\nContent-Length: 4", 400},
		"two lengths in one":          {"HOST\r\nContent-Length: 40, 4", 400},
		"a length with a sign":        {"HOST\r\nContent-Length: +40", 400},
		"a length and pieces":         {"HOST\r\nLENGTH\r\nTransfer-Encoding: chunked", 400},
		"pieces of another kind":      {"HOST\r\nLENGTH\r\nTransfer-Encoding: xchunked", 501},
		"pieces twice":                {"HOST\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 501},
		"pieces with a space":         {"HOST\r\nTransfer-Encoding : chunked", 400},
		"pieces that are none":        {"HOST\r\nTransfer-Encoding: chunked", 400},
		"two hosts":                   {"HOST\r\nHost: evil.example\r\nLENGTH", 400},
		"no host":                     {"LENGTH", 400},
		"a header without a name":     {"HOST\r\n: x\r\nLENGTH", 400},
		"a header that goes on":       {"HOST\r\nLENGTH\r\nX-A: b\r\n c: d", 200},
		"a header with an end in it":  {"HOST\r\nLENGTH\r\nX-A: b\rHost: evil.example", 400},
		"a header with nothing in it": {"HOST\r\nLENGTH\r\nX-A: b\x00c", 400},
	} {
		head := strings.NewReplacer("HOST", "Host: "+s.h.o.Hosts[0], "LENGTH", "Content-Length: 40").Replace(c.head)
		known := "\r\nAuthorization: Bearer " + secret + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" + headerSession + ": " + session
		first := "POST " + Path + " HTTP/1.1\r\n" + head + known + "\r\n\r\n" + ping
		second := strings.Replace(first, head, "Host: "+s.h.o.Hosts[0]+"\r\nContent-Length: 40\r\nConnection: close", 1)
		conn := s.dial(first + second)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != c.want || err != nil {
			t.Errorf("%s: %d %q, %v, want %d", name, resp.StatusCode, body, err, c.want)
		}
		again, err := http.ReadResponse(in, nil)
		if read := err == nil; read != (c.want == 200) {
			t.Errorf("%s: what stands behind it is read: %v", name, read)
		}
		if err == nil {
			again.Body.Close()
		}
	}
}
