//go:build linux

package net_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The names that the test resolver knows.
const (
	allowed   = "server.example"
	tunnelled = "tunnel.example"
	denied    = "denied.example"
	modelsAt  = "models.example"
	inside    = "inside.example" // leads to an address that nothing may reach
)

// A world is the servers that boxes reach, on loopback, by names of a resolver of its own.
type world struct {
	resolver string // address
	ca       string // file with whom the servers are signed by
	config   *tls.Config
	tls      string // port of HTTPS, on 127.0.0.1 and ::1
	plain    string // port of HTTP
	asked    atomic.Int64
	for4     atomic.Bool // no IPv6 addresses
	next     chan bool   // what an event waits for
}

func newWorld(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{ca: filepath.Join(dir, "ca.pem"), next: make(chan bool, 2)}
	w.config = w.certificates(t)
	mux := w.routes(t, dir)
	w.tls = serve(t, &http.Server{Handler: mux, TLSConfig: w.config.Clone()})
	w.plain = serve(t, &http.Server{Handler: mux})
	w.resolver = w.resolve(t)
	return w
}

// serve serves on the same port of both loopback addresses and returns it.
func serve(t *testing.T, s *http.Server) string {
	t.Helper()
	four, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(four.Addr().String())
	six, err := net.Listen("tcp6", "[::1]:"+port)
	if err != nil {
		t.Fatal(err)
	}
	secure := s.TLSConfig != nil // serving makes one
	for _, l := range []net.Listener{four, six} {
		go func() {
			if secure {
				_ = s.ServeTLS(l, "", "")
				return
			}
			_ = s.Serve(l)
		}()
	}
	t.Cleanup(func() { s.Close() })
	return port
}

// certificates makes an authority, written to w.ca, and a server's certificate of it.
func (w *world) certificates(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		NotBefore: time.Now().Add(-time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	signed, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o644); err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: allowed}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: []string{allowed, tunnelled, denied, inside, modelsAt}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// resolve answers questions for the names above and returns its address.
func (w *world) resolve(t *testing.T) string {
	t.Helper()
	p, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			w.asked.Add(1)
			if answer, err := w.answer(b[:n]); err == nil {
				_, _ = p.WriteTo(answer, from)
			}
		}
	}()
	return p.LocalAddr().String()
}

func (w *world) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.New("no question")
	}
	q := m.Questions[0]
	m.Response, m.Additionals = true, nil
	head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
	name := strings.TrimSuffix(q.Name.String(), ".")
	switch known := name == allowed || name == tunnelled || name == denied || name == modelsAt; {
	case !known && name != inside:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		a := [4]byte{127, 0, 0, 1}
		if name == inside {
			a = [4]byte{169, 254, 169, 254}
		}
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: a}}}
	case q.Type == dnsmessage.TypeAAAA && known && !w.for4.Load():
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: [16]byte{15: 1}}}}
	}
	return m.Pack()
}

// routes is what the servers say.
func (w *world) routes(t *testing.T, dir string) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "hello from %s\n", r.Host[:strings.IndexByte(r.Host, ':')]) //nolint:errcheck // who has gone does not read it
	})
	mux.HandleFunc("POST /echo", func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = rw.Write(append([]byte("echo "), body...))
	})
	mux.HandleFunc("GET /events", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for i := range 2 {
			_, _ = fmt.Fprintf(rw, "data: event %d\n\n", i)
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-w.next: // who has got the first asks for the second
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("GET /next", func(http.ResponseWriter, *http.Request) {
		w.next <- true
		w.next <- true
	})
	mux.HandleFunc("POST /rpc", func(rw http.ResponseWriter, r *http.Request) {
		// As gRPC has it: both directions at once, and the status in a trailer.
		rw.Header().Set("Content-Type", "application/grpc")
		rw.Header().Set("Trailer", "Grpc-Status")
		rw.WriteHeader(http.StatusOK)
		c := http.NewResponseController(rw)
		_ = c.Flush()
		for in := bufio.NewScanner(r.Body); in.Scan(); {
			_, _ = fmt.Fprintf(rw, "got %s\n", in.Text())
			_ = c.Flush()
		}
		rw.Header().Set("Grpc-Status", "0")
	})
	mux.HandleFunc("GET /socket", webSocket)
	mux.Handle("/git/", &cgi.Handler{
		Path: "/usr/lib/git-core/git-http-backend", Root: "/git", Dir: dir,
		Env:    []string{"GIT_PROJECT_ROOT=" + dir + "/git", "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
		Stderr: io.Discard,
	})
	mux.Handle("/go/", http.StripPrefix("/go/", http.FileServer(http.Dir(filepath.Join(dir, "go")))))
	mux.HandleFunc("GET /npm/{name}", func(rw http.ResponseWriter, r *http.Request) { npm(rw, r, filepath.Join(dir, "npm.tgz")) })
	mux.HandleFunc("GET /npm/{name}/-/{file}", func(rw http.ResponseWriter, r *http.Request) {
		http.ServeFile(rw, r, filepath.Join(dir, "npm.tgz"))
	})
	return mux
}

// npm answers with the description of a package of one version.
func npm(rw http.ResponseWriter, r *http.Request, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	sum := sha512.Sum512(text)
	name := r.PathValue("name")
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(rw, //nolint:errcheck // who has gone does not read it
		`{"name":%q,"dist-tags":{"latest":"1.0.0"},"time":{"1.0.0":"2020-01-01T00:00:00.000Z"},"versions":{"1.0.0":{"name":%[1]q,"version":"1.0.0","dist":{"tarball":"https://%[2]s/npm/%[1]s/-/%[1]s-1.0.0.tgz","integrity":"sha512-%[3]s"}}}}`,
		name, r.Host, base64.StdEncoding.EncodeToString(sum[:]))
}

// webSocket sends the first message back, both of at most 125 bytes (RFC 6455).
func webSocket(rw http.ResponseWriter, r *http.Request) {
	conn, buf, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	defer conn.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	head := make([]byte, 6)
	if _, err := io.ReadFull(buf, head); err != nil || head[1]&0x7f > 125 {
		return
	}
	text := make([]byte, head[1]&0x7f)
	if _, err := io.ReadFull(buf, text); err != nil {
		return
	}
	for i := range text {
		text[i] ^= head[2+i%4]
	}
	_, _ = conn.Write(append([]byte{0x81, byte(len(text))}, bytes.ToUpper(text)...))
	_, _ = io.Copy(io.Discard, buf)
}
