package egress

import (
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"ringfence/internal/act"
)

// TestTransport: requests of our own processes are decided, go to checked addresses, and
// are finished with what was carried.
func TestTransport(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(append([]byte(r.Method+" "), b...))
	}))
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	at := "https://example.com:" + port(s) // the name in the certificate
	d := &decider{rules: []string{"allow send " + at + "/token", "allow fetch " + at + "/private"}, open: map[string]bool{}}
	o := Options{Decider: d, Network: Network{
		Roots: roots, Private: loopback[:1], Resolver: &table{names: map[string]string{"example.com": "127.0.0.1", "rebound.test": "10.0.0.1"}},
	}}
	client := &http.Client{Transport: NewTransport(o)}
	defer client.CloseIdleConnections()
	res, err := client.Post(at+"/token", "text/plain", strings.NewReader("code"))
	if err != nil {
		t.Fatal(err)
	}
	if got := body(t, res); got != "POST code" {
		t.Errorf("%q", got)
	}
	if len(d.open) != 0 || len(d.ended) != 1 || !strings.Contains(d.ended[0], "200 sent=4 received=9") {
		t.Errorf("%v %q", d.open, d.ended)
	}
	_, err = client.Get(at + "/other")
	if no, ok := errors.AsType[*DeniedError](err); !ok || no.Code != act.CodePolicy || no.Effect != act.Fetch {
		t.Errorf("%v", err)
	}
	d.rules = []string{"allow *"}
	if _, err := client.Get("http://rebound.test/"); err == nil || !strings.Contains(err.Error(), "10.0.0.1, which is not of the public internet") {
		t.Errorf("%v", err)
	}
	if len(d.open) != 0 {
		t.Errorf("%v", d.open)
	}
}

// TestProxy: where the machine has a proxy, it connects, to the name that was decided; a
// metadata service and private addresses are not asked for.
func TestProxy(t *testing.T) {
	behind := echo(t)
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
		to, err := net.Dial("tcp", behind.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer to.Close()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, conn) }()
		_, _ = io.Copy(conn, to)
	}))
	defer proxy.Close()
	at, err := url.Parse(strings.Replace(proxy.URL, "//", "//u:p@", 1))
	if err != nil {
		t.Fatal(err)
	}
	d := &decider{rules: []string{"allow *", "allow fetch http://169.254.169.254/", "allow fetch http://[64:ff9b::a9fe:a9fe]/"}, open: map[string]bool{}}
	client := &http.Client{Transport: NewTransport(Options{Decider: d, Network: Network{Proxy: at}})}
	res, err := client.Get("http://site.test/x")
	if err != nil {
		t.Fatal(err)
	}
	if got := body(t, res); got != "GET /x site.test " {
		t.Errorf("%q", got)
	}
	client.CloseIdleConnections()
	for _, to := range []string{"http://169.254.169.254/", "http://[64:ff9b::a9fe:a9fe]/", "http://metadata.google.internal/"} {
		if _, err := client.Get(to); err == nil || !strings.Contains(err.Error(), "metadata service") {
			t.Errorf("%s: %v", to, err)
		}
	}
	if len(asked) != 1 || asked[0] != "CONNECT site.test:80 Basic dTpw" {
		t.Errorf("%q", asked)
	}
}
