package mitm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act/weburl"
)

// An issuer signs leafs for tests.
type issuer struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	mu   sync.Mutex
	n    int64
	fail error
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{key: key, cert: cert}
}

func (i *issuer) sign(_ context.Context, host string, public []byte) ([][]byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	if i.fail != nil {
		return nil, i.fail
	}
	key, err := x509.ParsePKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(i.n + 1), DNSNames: []string{host}, NotBefore: i.cert.NotBefore, NotAfter: i.cert.NotAfter,
	}, i.cert, key, i.key)
	return [][]byte{raw, i.cert.Raw}, err
}

func (i *issuer) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(i.cert)
	return pool
}

// A middle serves connections for one host on a port of this machine.
type middle struct {
	address string
	issuer  *issuer
	mu      sync.Mutex
	refused []RefusedError
	errs    []error
	serving sync.WaitGroup
}

func newMiddle(t testing.TB, o Options) *middle {
	t.Helper()
	m := &middle{issuer: newIssuer(t)}
	leafs, err := NewLeafs(LeafOptions{Sign: m.issuer.sign})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.address, o.Minter = l.Addr().String(), leafs
	o.Refused = func(r RefusedError) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.refused = append(m.refused, r)
	}
	m.serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.serving.Go(func() {
				if err := Serve(t.Context(), conn, o); err != nil {
					m.mu.Lock()
					defer m.mu.Unlock()
					m.errs = append(m.errs, err)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); m.serving.Wait() })
	return m
}

// codes returns why things were refused so far.
func (m *middle) codes() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.refused {
		all = append(all, r.Code)
	}
	for _, err := range m.errs {
		if why, ok := errors.AsType[*RefusedError](err); ok {
			all = append(all, why.Code)
		}
	}
	return all
}

func (m *middle) dial(t testing.TB, host string, protocols ...string) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", m.address, &tls.Config{RootCAs: m.issuer.pool(), ServerName: host, NextProtos: protocols})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// client returns a client of m that speaks the protocols it can.
func (m *middle) client(h2 bool) *http.Client {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetHTTP2(h2)
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Protocols: &p, TLSClientConfig: &tls.Config{RootCAs: m.issuer.pool()}, DisableCompression: true, ExpectContinueTimeout: time.Minute,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", m.address)
			},
		},
	}
}

// An httpCase is one line of testdata/http.jsonl.
type httpCase struct {
	ID, Name string
	Send     string
	Host     string // that the client names in TLS
	Repeat   int    // "{a}" in Send stands for so many times "a"
	Want     []int  // statuses of the replies; not read of what is cut off in its middle
	Seen     []string
	Code     string // of what is refused
}

func readCases[T any](t testing.TB, name string) (cases []T) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var c T
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			t.Fatalf("%s: %s: %v", name, line, err)
		}
		cases = append(cases, c)
	}
	return cases
}

// TestHTTP11Cases: what has two readings ends a connection; its harmless twins work.
func TestHTTP11Cases(t *testing.T) {
	for _, c := range readCases[httpCase](t, "testdata/http.jsonl") {
		t.Run(c.ID+" "+c.Name, func(t *testing.T) {
			var mu sync.Mutex
			var seen []string
			m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
					return
				}
				mu.Lock()
				seen = append(seen, fmt.Sprintf("%s %s %q", r.Method, r.URL, body))
				mu.Unlock()
			})})
			conn := m.dial(t, "example.com", protoH1)
			_, err := io.WriteString(conn, strings.ReplaceAll(c.Send, "{a}", strings.Repeat("a", c.Repeat)))
			err = errors.Join(err, conn.CloseWrite())
			cut := c.Repeat > 0 && c.Code != ""
			if err != nil && !cut {
				t.Fatal(err)
			}
			var got []int
			for r := bufio.NewReader(conn); ; {
				res, err := http.ReadResponse(r, nil)
				if err != nil {
					break
				}
				got = append(got, res.StatusCode)
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					t.Error(err)
				}
			}
			conn.Close()
			if c.Code != "" {
				m.awaitCode(t, c.Code)
			}
			mu.Lock()
			defer mu.Unlock()
			codes := m.codes()
			if !slices.Equal(got, c.Want) && !cut || !slices.Equal(seen, c.Seen) || (c.Code == "") != (len(codes) == 0) || len(codes) > 0 && codes[0] != c.Code {
				t.Errorf("statuses %v, want %v\nseen %q\nwant %q\nrefused %q, want %q", got, c.Want, seen, c.Seen, codes, c.Code)
			}
		})
	}
}

func mustHost(t testing.TB, s string) weburl.Host {
	t.Helper()
	h, err := weburl.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestHT07NamesInTLS: a ClientHello for another host, or for none, gets no certificate.
func TestHT07NamesInTLS(t *testing.T) {
	for _, c := range []struct{ host, sni, code string }{
		{"example.com", "example.com", ""},
		{"example.com", "EXAMPLE.com", ""},
		{"example.com", "other.example.com", "sni"},
		{"example.com", "example.com.evil.test", "sni"},
		{"example.com", "", "sni"},
		{"xn--mnchen-3ya.de", "xn--mnchen-3ya.de", ""},
	} {
		m := newMiddle(t, Options{Host: mustHost(t, c.host), Handler: http.NotFoundHandler()})
		conn, err := tls.Dial("tcp", m.address, &tls.Config{RootCAs: m.issuer.pool(), ServerName: c.sni, InsecureSkipVerify: c.sni == ""})
		if err == nil {
			conn.Close()
		}
		if (err == nil) != (c.code == "") {
			t.Errorf("%+v: %v", c, err)
		}
		if c.code != "" {
			m.awaitCode(t, c.code)
		}
	}
}

// awaitCode waits until something was refused with code.
func (m *middle) awaitCode(t testing.TB, code string) {
	t.Helper()
	for range 5000 {
		if slices.Contains(m.codes(), code) {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Errorf("refused %q, want %q", m.codes(), code)
}

// awaitError waits until Serve has returned with an error that says text: what was refused
// inside is on the record of the connection.
func (m *middle) awaitError(t testing.TB, text string) {
	t.Helper()
	m.await(t, func() bool {
		return slices.ContainsFunc(m.errs, func(err error) bool { return strings.Contains(err.Error(), text) })
	})
}

func (m *middle) await(t testing.TB, so func() bool) {
	t.Helper()
	for range 5000 {
		m.mu.Lock()
		ok := so()
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Errorf("refused %+v, errors %v", m.refused, m.errs)
}

// TestMintingFails: without a certificate there is no connection.
func TestMintingFails(t *testing.T) {
	m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Handler: http.NotFoundHandler()})
	m.issuer.fail = errors.New("no")
	if _, err := tls.Dial("tcp", m.address, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true}); err == nil {
		t.Error("a connection without a certificate")
	}
}

// upstream is a server with a certificate for example.com, and a middle in front.
func upstream(t testing.TB, f *Forwarder, h http.HandlerFunc) (*middle, *httptest.Server) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	transport := NewTransport(TransportOptions{Roots: roots, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}})
	t.Cleanup(transport.CloseIdleConnections)
	f.Transport = transport
	m := newMiddle(t, Options{Host: mustHost(t, "example.com"), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = f.Forward(w, r)
	})})
	return m, s
}
