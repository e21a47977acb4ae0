package ipc

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestHTTPElsewhere: spellings of addresses that are not loopback ones, or that
// would have to be looked up, are not dialled; harmless twins are.
func TestHTTPElsewhere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	}()
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	client := &http.Client{Transport: HTTP("")}
	defer client.CloseIdleConnections()
	for _, host := range []string{
		"192.0.2.1", "0.0.0.0", "[::]", "10.0.0.1", "169.254.169.254", "localhost.example", "localtest.me", "2130706433", "0x7f.1",
		"[::ffff:10.0.0.1]", "[fe80::1%25lo]", "127.0.0.1.nip.io", "LOCALHOST.", "017700000001",
	} {
		r, err := client.Get("http://" + host + ":" + port + "/")
		if err == nil {
			r.Body.Close()
		}
		if !errors.Is(err, ErrElsewhere) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		r, err := client.Get("http://" + host + ":" + port + "/")
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		r.Body.Close()
	}
}

// TestHTTPSocket: with a socket, the host of a URL leads nowhere else.
func TestHTTPSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	}()
	client := &http.Client{Transport: HTTP(path)}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, _ := io.ReadAll(r.Body); !strings.HasPrefix(string(b), "example.com") {
		t.Errorf("got %q", b)
	}
}
