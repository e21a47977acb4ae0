//go:build unix

package cli

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// listen starts "mcp --listen" and returns the line that says where it is.
func (p *place) listen(args ...string) string {
	p.t.Helper()
	c := p.command(append([]string{"mcp", "--servers", p.list, "--tier", "none"}, args...)...)
	errs, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			p.t.Errorf("%v: %v", args, err)
		}
	})
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		if where, ok := strings.CutPrefix(lines.Text(), "MCP at "); ok {
			go func() { _, _ = io.Copy(io.Discard, errs) }()
			return where
		}
	}
	p.t.Fatal("it does not listen")
	return ""
}

// initialized is the status of opening a session with a token.
func initialized(t *testing.T, client *http.Client, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(initialize))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestListen: at a loopback address the token of a file of ours lets in, and nothing else;
// the same token the next time.
func TestListen(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(p.dir, "home", "mcp-token")
	var before string
	for range 2 {
		url, rest, ok := strings.Cut(p.listen("--listen", "localhost:0"), ", with the token in ")
		if !ok || rest != file || !strings.HasPrefix(url, "http://127.0.0.1:") {
			t.Fatalf("it is at %q %q", url, rest)
		}
		token, err := os.ReadFile(file)
		info, serr := os.Stat(file)
		if err != nil || serr != nil || info.Mode().Perm() != 0o600 || len(token) < 40 || before != "" && before != string(token) {
			t.Fatalf("the token: %v %v %v %d bytes", err, serr, info.Mode(), len(token))
		}
		before = string(token)
		for token, want := range map[string]int{strings.TrimSpace(before): 200, "": 401, "x": 401} {
			if got := initialized(t, http.DefaultClient, url, token); got != want {
				t.Errorf("with the token %q: %d, want %d", token, got, want)
			}
		}
	}
}

// TestListenUnix: at a Unix socket we are let in as who we are.
func TestListenUnix(t *testing.T) {
	p := newPlace(t)
	path := filepath.Join(p.dir, "s", "mcp")
	if where := p.listen("--listen", "unix:"+path); !strings.Contains(where, path) {
		t.Errorf("it is at %q", where)
	}
	if out := p.ends(codeUsage, "mcp", "--listen", "unix:"+path); !strings.Contains(out, "something listens at "+path+" already\n") {
		t.Errorf("a second one: %s", out)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	if got := initialized(t, client, "http://localhost/mcp", ""); got != 200 {
		t.Errorf("status %d", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// certificate writes a certificate for localhost and its key, and returns who trusts it.
func (p *place) certificate() (cert, key string, roots *x509.CertPool) {
	p.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		p.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		p.t.Fatal(err)
	}
	cert, key = filepath.Join(p.dir, "cert.pem"), filepath.Join(p.dir, "key.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	if err := os.WriteFile(cert, text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return cert, key, roots
}

// TestListenTLS: with a certificate, an address that others can reach is served under the
// names of the certificate.
func TestListenTLS(t *testing.T) {
	p := newPlace(t)
	cert, key, roots := p.certificate()
	token := filepath.Join(p.dir, "token")
	if err := os.WriteFile(token, []byte("a-token-of-some-length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, _, _ := strings.Cut(p.listen("--listen", ":0", "--tls-cert", cert, "--tls-key", key, "--token-file", token), ",")
	_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(url, "https://"), "/mcp"))
	if err != nil {
		t.Fatal(url, err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	if got := initialized(t, client, "https://localhost:"+port+"/mcp", "a-token-of-some-length"); got != 200 {
		t.Errorf("under its name: %d", got)
	}
	client.Transport.(*http.Transport).TLSClientConfig.ServerName = "localhost"
	client.Transport.(*http.Transport).CloseIdleConnections()
	if got := initialized(t, client, "https://127.0.0.1:"+port+"/mcp", "a-token-of-some-length"); got != 403 {
		t.Errorf("under another name: %d", got)
	}
}

// TestListenRefused: what would let others in is an error of usage, before anything starts.
func TestListenRefused(t *testing.T) {
	p := newPlace(t)
	cert, _, _ := p.certificate()
	for name, text := range map[string]string{"open": "a-token-of-some-length", "short": "short", "words": "a token of two lines\nand more"} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(p.dir, "open"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "without TLS"},
		{[]string{"--listen", ":0"}, "without TLS"},
		{[]string{"--listen", "example.com:0"}, "neither localhost nor"},
		{[]string{"--listen", "127.0.0.1:0", "--tls-cert", cert}, "go together"},
		{[]string{"--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", cert}, "reading the certificate"},
		{[]string{"--listen", "127.0.0.1:0", "--token-file", p.dir + "/none"}, "reading the token"},
		{[]string{"--listen", "127.0.0.1:0", "--token-file", p.dir + "/open"}, "chmod 600"},
		{[]string{"--listen", "127.0.0.1:0", "--token-file", p.dir + "/short"}, "20 to 4096"},
		{[]string{"--listen", "127.0.0.1:0", "--token-file", p.dir + "/words"}, "one word"},
		{[]string{"--listen", "unix:" + p.dir + "/s/m", "--token-file", p.dir + "/short"}, "neither a token nor TLS"},
		{[]string{"--token-file", p.dir + "/short"}, "need --listen"},
	} {
		out, err := p.command(append([]string{"mcp", "--servers", p.list}, c.args...)...).CombinedOutput()
		status, ok := err.(*exec.ExitError) //nolint:errorlint // it is the error of Run itself
		if !ok || status.ExitCode() != codeUsage || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v %s, want status 2 and %q", c.args, err, out, c.want)
		}
	}
}
