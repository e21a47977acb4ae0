package egress

import (
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
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
