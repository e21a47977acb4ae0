package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/vault"
)

const (
	pemCertificate = "CERTIFICATE"

	// clockSkew is how far the clock of a box may be behind.
	clockSkew     = 24 * time.Hour
	authorityLife = 365 * 24 * time.Hour
	// authorityLeft is how much of its life an authority has left when another takes its
	// place: more than any box runs.
	authorityLeft = 90 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour

	maxPublicKey  = 256 // bytes; that of P-256 has 91
	maxConnected  = 4096
	maxDNSName    = 253
	maxCommonName = 64
)

// authorityKey is the name of its key in the vault: the 32 bytes of a number of P-256.
const authorityKey = "authority"

// An authority signs the certificates that boxes trust in place of those of the servers
// they are allowed to. Its key is in the vault and in this process, from when it is first
// needed; who asks for a leaf gets signatures only.
//
// Its certificate signs names only: no addresses, mail addresses or URIs, no other
// authority, nothing but servers. It cannot be held to some names: which ones boxes are
// allowed to is decided while they run.
type authority struct {
	keep func(fresh func() ([]byte, error)) ([]byte, error) // returns its key, which fresh makes once
	file string                                             // of the certificate
	now  func() time.Time

	mu   sync.Mutex
	key  *ecdsa.PrivateKey // nil until it is needed
	cert *x509.Certificate // nil until it is needed
}

// newAuthority returns the authority whose key is in the vault of s.
func newAuthority(s *secrets, file string, now func() time.Time) *authority {
	return &authority{file: file, now: now, keep: func(fresh func() ([]byte, error)) (key []byte, err error) {
		err = s.opened(func(v *vault.Vault) error {
			key, err = v.Key(authorityKey, fresh)
			return err
		})
		return key, err
	}}
}

// open reads the key, or makes it. a.mu is held.
func (a *authority) open() error {
	if a.key != nil {
		return nil
	}
	raw, err := a.keep(func() ([]byte, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		return key.Bytes()
	})
	if err != nil {
		return fmt.Errorf("reading the key of the authority: %w", err)
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		return errors.New("reading the key of the authority: what the vault has is no key of P-256")
	}
	a.key = key
	return nil
}

// certificate returns that of the authority: the one in its file while that is of this
// key and has enough time left, else a new one.
func (a *authority) certificate() (*x509.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.open(); err != nil {
		return nil, err
	}
	if a.good(a.cert) {
		return a.cert, nil
	}
	data, err := os.ReadFile(a.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the certificate of the authority: %w", err)
	}
	if block, _ := pem.Decode(data); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && a.good(cert) {
			a.cert = cert
			return cert, nil
		}
	}
	cert, err := a.selfSigned()
	if err != nil {
		return nil, fmt.Errorf("making the certificate of the authority: %w", err)
	}
	if err := atomicfile.Write(a.file, pemOf(cert), 0o644); err != nil {
		return nil, fmt.Errorf("making the certificate of the authority: %w", err)
	}
	a.cert = cert
	return cert, nil
}

// good reports whether cert is of this key, as we make it, and has enough time left.
func (a *authority) good(cert *x509.Certificate) bool {
	if cert == nil || cert.CheckSignatureFrom(cert) != nil || !a.key.PublicKey.Equal(cert.PublicKey) {
		return false
	}
	now := a.now()
	return cert.MaxPathLenZero && len(cert.ExcludedIPRanges) == 2 &&
		!now.Before(cert.NotBefore) && now.Before(cert.NotAfter.Add(-authorityLeft))
}

func pemOf(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})
}

func (a *authority) selfSigned() (*x509.Certificate, error) {
	id, err := keyID(&a.key.PublicKey)
	if err != nil {
		return nil, err
	}
	start := a.now().Add(-clockSkew).UTC().Truncate(time.Second)
	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"ringfence"}, CommonName: "ringfence authority " + hex.EncodeToString(id[:4])},
		NotBefore:             start,
		NotAfter:              start.Add(authorityLife - time.Second),
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		SubjectKeyId: id,
		// Kinds of name of which it may sign none: all addresses are excluded, and of the
		// others one is permitted that cannot exist.
		PermittedDNSDomainsCritical: true,
		ExcludedIPRanges: []*net.IPNet{
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		},
		PermittedEmailAddresses: []string{"none.invalid"},
		PermittedURIDomains:     []string{"none.invalid"},
	}
	return a.sign(template, template, &a.key.PublicKey)
}

// leaf returns a certificate for name and that key, and the authority's, DER.
func (a *authority) leaf(name string, public *ecdsa.PublicKey) ([][]byte, error) {
	parent, err := a.certificate()
	if err != nil {
		return nil, err
	}
	id, err := keyID(public)
	if err != nil {
		return nil, err
	}
	start := a.now().Add(-clockSkew).UTC().Truncate(time.Second)
	end := start.Add(leafLife)
	if start.Before(parent.NotBefore) {
		start = parent.NotBefore
	}
	template := &x509.Certificate{
		NotBefore: start, NotAfter: end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		SubjectKeyId:          id,
		DNSNames:              []string{name},
	}
	if len(name) <= maxCommonName {
		template.Subject.CommonName = name
	}
	cert, err := a.sign(template, parent, public)
	if err != nil {
		return nil, err
	}
	return [][]byte{cert.Raw, parent.Raw}, nil
}

func (a *authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) (*x509.Certificate, error) {
	serial := make([]byte, 16)
	if _, err := rand.Read(serial); err != nil {
		return nil, err
	}
	serial[0] &= 0x7f
	template.SerialNumber = new(big.Int).SetBytes(serial)
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(raw)
}

// keyID is the identifier of a public key (RFC 7093 §2, method 1).
func keyID(public *ecdsa.PublicKey) ([]byte, error) {
	raw, err := public.Bytes()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return sum[:20], nil
}

// connected are the hosts that a session had something allowed to. The oldest are
// forgotten: who connects again has it decided again.
type connected struct {
	mu    sync.Mutex
	hosts map[string]int // names, and when each was noted last
	// always are hosts whose connections are opened before anything is decided: what is
	// said inside is. It is fixed while the session lives.
	always []string
	turn   int
}

// note takes in what a ticket allows.
func (c *connected) note(t act.Ticket) {
	if t.Verdict != act.Allow {
		return
	}
	for _, e := range t.Effects {
		host := hostOf(e)
		if host == "" {
			continue
		}
		c.mu.Lock()
		if c.hosts == nil {
			c.hosts = map[string]int{}
		}
		c.turn++
		c.hosts[host] = c.turn
		if len(c.hosts) > maxConnected {
			for h, turn := range c.hosts {
				if turn < c.turn-maxConnected/2 {
					delete(c.hosts, h)
				}
			}
		}
		c.mu.Unlock()
	}
}

// noteConnected notes what a ticket of that session allows.
func (e *Engine) noteConnected(id string, t act.Ticket) {
	if t.Verb != act.VerbEffect {
		return // nothing of it is connected to by a box
	}
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r != nil {
		r.connected.note(t)
	}
}

func (c *connected) has(host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.hosts[host]
	return ok || slices.Contains(c.always, host)
}

// hostOf returns the name of the host that an effect connects to, "" if it does not, or
// to an address.
func hostOf(e act.Effect) string {
	var host weburl.Host
	switch e.Kind {
	case act.Connect:
		h, _, err := weburl.ParseHostPort(e.Resource.Text)
		if err != nil {
			return ""
		}
		host = h
	case act.Fetch, act.Send:
		u, err := weburl.Parse(e.Resource.Text)
		if err != nil {
			return ""
		}
		host = u.Host
	default:
		return ""
	}
	if _, isAddr := host.Addr(); isAddr {
		return ""
	}
	return host.String()
}

// Authority returns the certificate of the authority, PEM.
func (e *Engine) Authority(context.Context, api.Caller) ([]byte, error) {
	cert, err := e.authority.certificate()
	if err != nil {
		return nil, err
	}
	return pemOf(cert), nil
}

// Mint signs a leaf for a host that the session had a connection allowed to, and for no
// other name: whoever holds a session could pretend to be any server otherwise.
func (e *Engine) Mint(_ context.Context, c api.Caller, id string, m api.MintRequest) ([][]byte, error) {
	r := e.owned(id, c)
	if r == nil {
		return nil, api.ErrNoSession
	}
	host, err := weburl.ParseHost(m.Host)
	if _, isAddr := host.Addr(); err != nil || isAddr || host.String() != m.Host || len(m.Host) > maxDNSName {
		return nil, api.Errorf(api.CodeBadRequest, "no certificate is signed for %.80q: only for names of hosts; TLS to an address passes where a clause lets the connection itself", m.Host)
	}
	if !r.connected.has(m.Host) {
		return nil, api.Errorf(api.CodeRefused, "no certificate is signed for %s: no connection to it was allowed in this session", m.Host)
	}
	if len(m.Key) > maxPublicKey {
		return nil, api.Errorf(api.CodeBadRequest, "the key of a certificate has %d bytes", len(m.Key))
	}
	key, err := x509.ParsePKIXPublicKey(m.Key)
	public, ok := key.(*ecdsa.PublicKey)
	if err != nil || !ok || public.Curve != elliptic.P256() {
		return nil, api.Errorf(api.CodeBadRequest, "the key of a certificate is not one of P-256")
	}
	return e.authority.leaf(m.Host, public)
}
