package mitm

import (
	"container/list"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Sign has the authority sign a leaf for host and the public key (PKIX, DER). It
// returns the leaf and what it is signed by, DER, the leaf first. It refuses hosts that
// the session had no connection allowed to.
type Sign func(ctx context.Context, host string, public []byte) ([][]byte, error)

// LeafOptions say how a [Leafs] works. Sign must be set.
type LeafOptions struct {
	Sign Sign
	Max  int              // leafs that are kept; 0 is 1024
	Now  func() time.Time // nil is time.Now
}

// Leafs is a [Minter] that has leafs signed and keeps them while they are good for a
// while. Their private key is its own, never leaves this process and is new in each.
type Leafs struct {
	o      LeafOptions
	key    *ecdsa.PrivateKey
	public []byte

	mu     sync.Mutex
	byHost map[string]*list.Element // of *leaf
	recent *list.List               // the leaf that was asked for last first
}

// A leaf is a certificate, or one that is being signed.
type leaf struct {
	host string
	done chan struct{} // closed when cert or err is set
	cert *tls.Certificate
	err  error
}

const (
	defaultLeafs = 1024
	// A leaf with less than this part of its life left is signed anew.
	renewPart = 3
)

// NewLeafs returns an empty Leafs with a key of its own.
func NewLeafs(o LeafOptions) (*Leafs, error) {
	if o.Max <= 0 {
		o.Max = defaultLeafs
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for leafs: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("making a key for leafs: %w", err)
	}
	return &Leafs{o: o, key: key, public: public, byHost: map[string]*list.Element{}, recent: list.New()}, nil
}

// Leaf returns the leaf of host. Of several calls for one host one has it signed; when
// that fails, so do those that wait for it, and the next call tries again.
func (l *Leafs) Leaf(ctx context.Context, host string) (*tls.Certificate, error) {
	one, first := l.get(host)
	if !first {
		select {
		case <-one.done:
			return one.cert, one.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	one.cert, one.err = l.sign(ctx, host)
	if one.err != nil {
		l.drop(one)
	}
	close(one.done)
	return one.cert, one.err
}

// get returns the leaf of host, and whether the caller must have it signed.
func (l *Leafs) get(host string) (one *leaf, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byHost[host]; e != nil {
		one = e.Value.(*leaf)
		if l.good(one) {
			l.recent.MoveToFront(e)
			return one, false
		}
		l.recent.Remove(e)
	}
	one = &leaf{host: host, done: make(chan struct{})}
	l.byHost[host] = l.recent.PushFront(one)
	if l.recent.Len() > l.o.Max {
		last := l.recent.Back()
		l.recent.Remove(last)
		delete(l.byHost, last.Value.(*leaf).host)
	}
	return one, true
}

// good reports whether one is being signed, or has enough of its life left.
func (l *Leafs) good(one *leaf) bool {
	select {
	case <-one.done:
	default:
		return true
	}
	if one.err != nil {
		return false
	}
	c := one.cert.Leaf
	return l.o.Now().Before(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / renewPart))
}

// drop forgets one, unless another took its place.
func (l *Leafs) drop(one *leaf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byHost[one.host]; e != nil && e.Value == one {
		l.recent.Remove(e)
		delete(l.byHost, one.host)
	}
}

func (l *Leafs) sign(ctx context.Context, host string) (*tls.Certificate, error) {
	chain, err := l.o.Sign(ctx, host, l.public)
	if err != nil {
		return nil, err
	}
	if len(chain) == 0 {
		return nil, errors.New("the authority returned no certificate")
	}
	cert, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, fmt.Errorf("reading a leaf: %w", err)
	}
	if key, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !key.Equal(l.key.Public()) {
		return nil, errors.New("the authority signed another key")
	}
	if err := cert.VerifyHostname(host); err != nil {
		return nil, fmt.Errorf("the authority signed another name: %w", err)
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: l.key, Leaf: cert}, nil
}
