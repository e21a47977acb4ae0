package egress

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
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/bridge"
	"ringfence/internal/egress/mitm"
)

// A read is a request as a server read it.
type read struct {
	Server, Method, URL, Host, Body string
	Ports                           []int
}

// An authority of a test signs leafs, and the certificate of a server.
type testAuthority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *testAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &testAuthority{key: key, pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "authority of a test"},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func (a *testAuthority) sign(_ context.Context, host string, public []byte) ([][]byte, error) {
	key, err := x509.ParsePKIXPublicKey(public)
	if err != nil {
		return nil, err
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{host}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
	}, a.cert, key, a.key)
	return [][]byte{raw, a.cert.Raw}, err
}

// interceptor opens TLS with leafs of a.
func (a *testAuthority) interceptor(t testing.TB) *mitm.Interceptor {
	t.Helper()
	leafs, err := mitm.NewLeafs(mitm.LeafOptions{Sign: a.sign})
	if err != nil {
		t.Fatal(err)
	}
	return &mitm.Interceptor{Minter: leafs}
}

// server returns the certificate of a server for host.
func (a *testAuthority) server(t testing.TB, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	chain, err := a.sign(t.Context(), host, public)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: chain, PrivateKey: key}
}

// reader is a kind of server: how it reads what it is sent.
type reader struct {
	tls, plain string // addresses
	mark       func() // returns when everything that was read so far is known
	mu         sync.Mutex
	reads      []read
}

// take returns what was read since the last call.
func (r *reader) take() (secure, plain []read) {
	r.mark()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.reads {
		switch {
		case strings.HasPrefix(one.URL, "/mark-"):
		case one.Server == "tls":
			secure = append(secure, one)
		default:
			plain = append(plain, one)
		}
	}
	r.reads = nil
	return secure, plain
}

func (r *reader) add(one read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads = append(r.reads, one)
}

func goReader(t *testing.T, cert tls.Certificate) *reader {
	r := &reader{}
	handler := func(label string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			b, err := io.ReadAll(q.Body)
			if err == nil {
				r.add(read{Server: label, Method: q.Method, URL: q.RequestURI, Host: q.Host, Body: string(b)})
			}
			_, _ = io.WriteString(w, "ok")
		})
	}
	// What a connection brought is known when it is closed, or idle. Those of ours may stay
	// open without a request.
	var busy sync.Map
	var active sync.WaitGroup
	watch := func(since http.ConnState) func(net.Conn, http.ConnState) {
		return func(conn net.Conn, state http.ConnState) {
			if state == since || state == http.StateActive {
				if _, was := busy.LoadOrStore(conn, true); !was {
					active.Add(1)
				}
			} else if _, was := busy.LoadAndDelete(conn); was {
				active.Done()
			}
		}
	}
	r.mark = active.Wait
	secure, plain := httptest.NewUnstartedServer(handler("tls")), httptest.NewUnstartedServer(handler("plain"))
	secure.Config.ConnState, plain.Config.ConnState = watch(http.StateActive), watch(http.StateNew)
	plain.Start()
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	r.tls, r.plain = secure.Listener.Addr().String(), plain.Listener.Addr().String()
	return r
}

func nodeReader(t *testing.T, cert tls.Certificate) *reader {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("node is needed")
		}
		t.Skip("node is needed")
	}
	dir := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	keyFile, certFile := filepath.Join(dir, "key"), filepath.Join(dir, "cert")
	for name, block := range map[string]*pem.Block{keyFile: {Type: "PRIVATE KEY", Bytes: key}, certFile: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), node, "testdata/servers.js", keyFile, certFile)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = c.Wait() })
	lines := json.NewDecoder(out)
	var first read
	if err := lines.Decode(&first); err != nil || len(first.Ports) != 2 {
		t.Fatal(err, first)
	}
	r := &reader{tls: fmt.Sprint("127.0.0.1:", first.Ports[0]), plain: fmt.Sprint("127.0.0.1:", first.Ports[1])}
	marks, n := make(chan string, 100), 0
	go func() {
		for {
			var one read
			if lines.Decode(&one) != nil {
				close(marks)
				return
			}
			r.add(one)
			if strings.HasPrefix(one.URL, "/mark-") {
				marks <- one.URL
			}
		}
	}()
	r.mark = func() {
		n++
		want := "/mark-" + strconv.Itoa(n)
		say(t, r.plain, "GET "+want+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		for got := range marks {
			if got == want {
				return
			}
		}
		t.Error("node has ended")
	}
	return r
}

// say sends text to address and reads until the other side ends, or waits.
func say(t *testing.T, address, text string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exchangeText(t, conn, text)
}

func exchangeText(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, _ = io.WriteString(conn, text) // a server that has refused may not read it all
	piece := make([]byte, 4096)
	for {
		// A server that waits for the rest of a body is not waited for.
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(piece); err != nil {
			return
		}
	}
}

// lastRequest ends a connection that has been read up to it.
const lastRequest = "GET /end HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"

// through sends text to host by way of a rig and returns the URLs that were decided on.
func (r *rig) through(t *testing.T, a *testAuthority, host, text string) []string {
	t.Helper()
	r.decider.mu.Lock()
	r.decider.asked = nil
	r.decider.mu.Unlock()
	conn := r.dial(t, bridge.KindProxy, "127.0.0.1:3128")
	ended := sync.OnceFunc(func() {
		conn.Close()
		r.served.open.Wait()
	})
	defer ended()
	_, _ = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host)
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(err, res)
	}
	name, _, _ := net.SplitHostPort(host)
	secure := tls.Client(conn, &tls.Config{RootCAs: a.pool, ServerName: name, NextProtos: []string{"http/1.1"}})
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	exchangeText(t, secure, text)
	ended()
	r.decider.mu.Lock()
	defer r.decider.mu.Unlock()
	var decided []string
	for _, said := range r.decider.asked {
		if kind, url, _ := strings.Cut(said, " "); kind == "fetch" || kind == "send" {
			decided = append(decided, url)
		}
	}
	return decided
}

// TestHT31Differential: of hundreds of odd requests, each that is allowed is read by the
// server behind us as it was decided, by servers of Go and of Node alike; and where they
// read the same bytes without us, they read no other request.
func TestHT31Differential(t *testing.T) {
	a := newAuthority(t)
	cert := a.server(t, "example.com")
	text, err := os.ReadFile("testdata/differential.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var cases []string
	for line := range bytes.Lines(text) {
		var c string
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if len(cases) < 300 {
		t.Fatalf("%d cases", len(cases))
	}
	all := map[string][][]read{}
	passed := 0
	for name, reader := range map[string]*reader{"go": goReader(t, cert), "node": nodeReader(t, cert)} {
		r := newRig(t, func(o *Options) { o.Intercept, o.Network.Roots = a.interceptor(t), a.pool }, "allow *")
		r.names["example.com"] = "127.0.0.1"
		_, port, _ := net.SplitHostPort(reader.tls)
		host := "example.com:" + port
		for i, c := range cases {
			c = strings.ReplaceAll(c+lastRequest, "example.com", host)
			decided := r.through(t, a, host, c)
			say(t, reader.plain, c)
			ours, direct := reader.take()
			if !within(ours, decided, func(one read, url string) bool { return "https://"+one.Host+one.URL == url }) {
				t.Errorf("%s %d %.200q: decided %q, the server reads %+v", name, i, c, decided, ours)
			}
			if !within(ours, direct, sameRead) && !within(direct, ours, sameRead) {
				t.Errorf("%s %d %.200q: by way of us %+v, without %+v", name, i, c, ours, direct)
			}
			all[name] = append(all[name], ours)
			if len(ours) > 0 && ours[0].URL != "/end" {
				passed++
			}
		}
	}
	for i, c := range cases {
		if g, n := all["go"][i], all["node"][i]; !within(g, n, sameRead) && !within(n, g, sameRead) {
			t.Errorf("%d %.200q: behind us, a server of Go reads %+v, one of Node %+v", i, c, g, n)
		}
	}
	if passed < len(cases)/2 {
		t.Errorf("only %d of %d pass", passed, 2*len(cases))
	}
}

// within reports whether few are some of many, in their order: a server may refuse what
// another answers.
func within[A, B any](few []A, many []B, same func(A, B) bool) bool {
	for _, m := range many {
		if len(few) > 0 && same(few[0], m) {
			few = few[1:]
		}
	}
	return len(few) == 0
}

// sameRead compares a request by what servers act on: the path as a client means it.
func sameRead(a, b read) bool {
	canonical := func(r read) string {
		u, err := weburl.Parse("https://x" + r.URL)
		if err != nil {
			return r.URL
		}
		return u.Plain().String()
	}
	return a.Method == b.Method && a.Body == b.Body && canonical(a) == canonical(b)
}
