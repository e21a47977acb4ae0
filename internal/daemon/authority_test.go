package daemon

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/paths"
)

func publicKey(t *testing.T, curve elliptic.Curve) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// TestMint: a session gets certificates for the hosts that it had something allowed to,
// and for no other name; what is in the box verifies them.
func TestMint(t *testing.T) {
	f := newFixture(t)
	dir := f.network("The agent may fetch https://docs.example.com/.\nThe agent may connect to mail.example.net.\nThe agent may connect to 192.0.2.7.\n")
	f.start(Options{})
	c := f.client()
	r := f.request()
	r.PolicyDir = dir
	s, err := c.OpenSession(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.OpenSession(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	key := publicKey(t, elliptic.P256())
	if _, err := s.Mint(t.Context(), "docs.example.com", key); !errors.Is(err, api.ErrRefused) {
		t.Errorf("before anything was allowed: %v", err)
	}
	for _, e := range []act.Effect{
		{Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: "docs.example.com:443"}},
		{Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: "mail.example.net:443"}},
		{Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: "192.0.2.7:443"}},
		{Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: "denied.example.com:443"}},
	} {
		if _, err := s.Decide(t.Context(), act.Request{Verb: act.VerbEffect, Direct: []act.Effect{e}}); err != nil {
			t.Fatal(err)
		}
	}
	pemText, err := c.Authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pemText) {
		t.Fatalf("no certificate: %q", pemText)
	}
	for _, host := range []string{"docs.example.com", "mail.example.net"} {
		chain, err := s.Mint(t.Context(), host, key)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(chain[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Error(err)
		}
		if life := leaf.NotAfter.Sub(leaf.NotBefore); life > leafLife || leaf.IsCA {
			t.Errorf("%s: good for %v, authority %v", host, life, leaf.IsCA)
		}
	}
	for host, key := range map[string][]byte{
		"denied.example.com": key, "sub.docs.example.com": key, "example.com": key, "192.0.2.7": key, "*.example.com": key,
		"": key, "DOCS.example.com": key, "docs.example.com.": key, "docs.example.com:443": key, "docs.example.com\x00": key,
	} {
		if chain, err := s.Mint(t.Context(), host, key); err == nil {
			t.Errorf("a certificate for %q: %d", host, len(chain))
		}
	}
	for what, key := range map[string][]byte{"no key": nil, "P-384": publicKey(t, elliptic.P384()), "more behind it": append(bytes.Clone(key), 0)} {
		if _, err := s.Mint(t.Context(), "docs.example.com", key); err == nil {
			t.Errorf("a certificate for %s", what)
		}
	}
	if _, err := other.Mint(t.Context(), "docs.example.com", key); !errors.Is(err, api.ErrRefused) {
		t.Errorf("for what another session was allowed: %v", err)
	}
	if _, err := f.client().ResumeSession(t.Context(), s.Opened().Session, "wrong"); err == nil {
		t.Error("resumed without its token")
	}
}

// TestHT27AuthorityKey: the key is in no file of the home but the vault, which is among what
// no agent may touch, and in nothing that is handed out; the next engine has the same.
func TestHT27AuthorityKey(t *testing.T) {
	f := newFixture(t)
	e := f.bare(time.Now)
	cert, err := e.Authority(t.Context(), api.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := e.authority.key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.close(); err != nil {
		t.Fatal(err)
	}
	forms := [][]byte{key, []byte(base64.StdEncoding.EncodeToString(key)), []byte(hex.EncodeToString(key))}
	holds := func(what string, b []byte) {
		for _, form := range forms {
			if bytes.Contains(b, form) {
				t.Errorf("%s has the key", what)
			}
		}
	}
	holds("the certificate", cert)
	err = filepath.WalkDir(f.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		holds(path, b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.start(Options{})
	c := f.client()
	if again, err := c.Authority(t.Context()); err != nil || !bytes.Equal(again, cert) {
		t.Errorf("the next engine has another certificate: %v", err)
	}
	s := f.open(c)
	for _, file := range []string{paths.Vault(f.home), paths.VaultKey(f.home), paths.Keys(f.home)} {
		ticket, err := s.Decide(context.Background(), act.Request{Verb: act.VerbEffect, Direct: []act.Effect{
			{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: file}},
		}})
		if err != nil || ticket.Verdict != act.Deny || ticket.Code != act.CodeTripwire {
			t.Errorf("reading %s: %s %s, %v", file, ticket.Verdict, ticket.Code, err)
		}
	}
}

// keeper keeps one key, as a vault does.
func keeper() func(func() ([]byte, error)) ([]byte, error) {
	var kept []byte
	return func(fresh func() ([]byte, error)) ([]byte, error) {
		if kept != nil {
			return kept, nil
		}
		var err error
		kept, err = fresh()
		return kept, err
	}
}

// TestAuthorityFile: the certificate is kept, made anew in time, and one that is not of
// the key is not used. A key that cannot be read is no reason to make another.
func TestAuthorityFile(t *testing.T) {
	dir := t.TempDir()
	certFile, kept := filepath.Join(dir, "a.pem"), keeper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fetch := func(keep func(func() ([]byte, error)) ([]byte, error)) *x509.Certificate {
		t.Helper()
		a := &authority{keep: keep, file: certFile, now: func() time.Time { return now }}
		cert, err := a.certificate()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(certFile); err != nil || !bytes.Equal(text, pemOf(cert)) {
			t.Errorf("the file has %q, %v", text, err)
		}
		return cert
	}
	first := fetch(kept)
	if life := first.NotAfter.Sub(first.NotBefore); life > authorityLife || !first.MaxPathLenZero || len(first.ExcludedIPRanges) != 2 {
		t.Errorf("good for %v, path %v, excluded %v", life, first.MaxPathLen, first.ExcludedIPRanges)
	}
	now = now.Add(authorityLife - authorityLeft - 2*clockSkew)
	if !fetch(kept).Equal(first) {
		t.Error("a certificate with time left was replaced")
	}
	now = now.Add(2 * clockSkew)
	second := fetch(kept)
	if second.Equal(first) || !bytes.Equal(second.SubjectKeyId, first.SubjectKeyId) || !bytes.Equal(second.RawSubject, first.RawSubject) {
		t.Error("the certificate was not made anew under its name")
	}
	if third := fetch(keeper()); third.Equal(second) || bytes.Equal(third.SubjectKeyId, second.SubjectKeyId) {
		t.Error("the certificate of another key is used")
	}
	for _, raw := range [][]byte{{}, []byte("{}"), make([]byte, 32), bytes.Repeat([]byte{0xff}, 32)} {
		a := &authority{keep: func(func() ([]byte, error)) ([]byte, error) { return raw, nil }, file: certFile, now: time.Now}
		if _, err := a.certificate(); err == nil {
			t.Errorf("the key %x is used", raw)
		}
	}
	locked := &authority{keep: func(func() ([]byte, error)) ([]byte, error) { return nil, errors.New("locked") }, file: certFile, now: time.Now}
	if _, err := locked.certificate(); err == nil {
		t.Error("without its key the authority has a certificate")
	}
}

// TestAuthoritySignsNamesOnly: what else the authority might sign verifies nowhere.
func TestAuthoritySignsNamesOnly(t *testing.T) {
	a := &authority{keep: keeper(), file: filepath.Join(t.TempDir(), "a.pem"), now: time.Now}
	parent, err := a.certificate()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parent)
	key, err := x509.ParsePKIXPublicKey(publicKey(t, elliptic.P256()))
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*x509.Certificate){
		"":               func(*x509.Certificate) {},
		"an address":     func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 7)} },
		"an IPv6":        func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv6loopback} },
		"a mail address": func(c *x509.Certificate) { c.EmailAddresses = []string{"a@example.com"} },
		"a URI":          func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "https", Host: "example.com"}} },
		"a client":       func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
	} {
		c := &x509.Certificate{
			DNSNames: []string{"example.com"}, NotBefore: parent.NotBefore, NotAfter: parent.NotAfter,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		change(c)
		signed, err := a.sign(c, parent, key.(*ecdsa.PublicKey))
		if err != nil {
			t.Fatal(err)
		}
		usages := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		if what == "a client" {
			usages = c.ExtKeyUsage
		}
		if _, err := signed.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: usages}); (err == nil) != (what == "") {
			t.Errorf("%q: %v", what, err)
		}
	}
}
