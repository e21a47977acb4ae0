package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
)

// NewNetwork returns the network of a machine by its settings, each of which may be
// absent: a resolver, special-purpose ranges that may be connected to, a proxy, and PEM
// texts of roots that count besides those of the machine.
func NewNetwork(resolver netip.AddrPort, private []netip.Prefix, proxy *url.URL, roots [][]byte) (Network, error) {
	n := Network{Private: private, Proxy: proxy}
	if resolver.IsValid() {
		n.Resolver = resolverAt(resolver)
	}
	if len(roots) == 0 {
		return n, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return Network{}, fmt.Errorf("reading the roots of the machine: %w", err)
	}
	for _, pem := range roots {
		if !pool.AppendCertsFromPEM(pem) {
			return Network{}, errors.New("reading further roots: a file holds no certificate in PEM form")
		}
	}
	n.Roots = pool
	return n, nil
}

// resolverAt asks one resolver, whatever the machine is set to.
func resolverAt(at netip.AddrPort) Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: lookUpWait}
		return d.DialContext(ctx, network, at.String())
	}}
}
