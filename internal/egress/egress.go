// Package egress is the only way out of a box: it takes the connections of one box from
// one socket, has every name, connection and request decided, and carries the allowed.
//
// It decides nothing: it holds an [act.Decider]. It starts nothing and keeps no keys;
// what TLS is opened with, and secrets on loan, come from others. How connections come
// out of a box is package bridge, what is in a TLS connection that is opened is package
// mitm, and neither is trusted with a decision.
//
// Invariants:
//
//	E1  Nothing is looked up or connected to before a ticket allowed it: a denied name
//	    makes no query leave.
//	E2  What is connected to is an address that was checked, and the one that was
//	    checked: a name is looked up once for each connection.
//	E3  Who asks is the socket. Nothing in a stream says which box or session it is.
//	E4  The name of a connection, the name in TLS and the host of each request in it are
//	    one. Where they cannot be compared the connection is refused.
//	E5  Every ticket that allowed is finished, with what was carried, also when a side
//	    dies; Serve does not return before.
//	E6  Memory and time of each connection are bounded, and so is their number.
//	E7  An error is a denial: of the decider, of the resolver, of a parser.
//
// Locks: those of a table are held for the table only, never over a decision, a look-up
// or a dial.
package egress

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/egress/provider"
	"ringfence/internal/egress/registry"
)

// A Resolver looks names up. *net.Resolver is one.
type Resolver interface {
	// LookupNetIP returns the addresses of host; network is "ip", "ip4" or "ip6".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// An Interceptor opens TLS; *mitm.Interceptor is the one outside of tests. It speaks to
// conn as the server at host, which is "name:port", and hands each request for that host
// to h. It returns when the connection is over and every request of it has been handled,
// and closes conn. The first bytes that conn gives are those of the ClientHello.
type Interceptor interface {
	Serve(ctx context.Context, conn net.Conn, host string, h http.Handler) error
}

// A Network says what the machine is connected to. Its zero value is the public internet,
// by the resolver and the roots of the machine.
type Network struct {
	Resolver Resolver       // nil: that of the machine
	Private  []netip.Prefix // special-purpose ranges that may be connected to
	Proxy    *url.URL       // "http://host:port" that connects for us; nil: none
	Roots    *x509.CertPool // whom servers are verified by; nil: the roots of the machine
}

// Limits bound what one box can use. A zero member is the default in brackets.
type Limits struct {
	Connections int           // at once [1024]
	PlaceWait   time.Duration // that one more waits for one of them to end [2 s]
	Header      int           // bytes of one head of a request [64 KiB]
	HeadWait    time.Duration // until a head, a greeting or a hello is whole [10 s]
	Idle        time.Duration // without a byte in either direction [10 min]
	Names       int           // names with a fake address [4096]
}

func (l Limits) withDefaults() Limits {
	l.Connections = cmp.Or(max(l.Connections, 0), 1024)
	l.PlaceWait = cmp.Or(max(l.PlaceWait, 0), 2*time.Second)
	l.Header = cmp.Or(max(l.Header, 0), 64<<10)
	l.HeadWait = cmp.Or(max(l.HeadWait, 0), 10*time.Second)
	l.Idle = cmp.Or(max(l.Idle, 0), 10*time.Minute)
	l.Names = cmp.Or(max(l.Names, 0), 4096)
	return l
}

// Options are what a way out is made of. Decider is required.
type Options struct {
	Decider   act.Decider
	Network   Network
	Intercept Interceptor     // nil: TLS that no clause lets pass as it is, is refused
	Sentinels []loan.Sentinel // what stands for secrets in the box
	// Registries are where packages come from: what is asked there is decided as installs.
	Registries []registry.Place
	// Models are the services that run models: what is asked there is decided as infers.
	Models *provider.Table
	Prices provider.Prices
	// Profile has another of them answer what one is asked.
	Profile provider.Profile
	Limits  Limits
	// Quiet are hosts by name that programs of the box ask again and again for what nobody
	// there wants, such as reports to the maker of an agent. Nobody is asked about them: what
	// no clause allows by itself is denied at once, and equal denials are counted from the
	// second on.
	Quiet []string
	// Local are the ranges whose addresses stand for names in the box, one of IPv4 and one
	// of IPv6 at most; nil: 198.18.0.0/15 and fd52:6633::/64.
	Local []netip.Prefix
	Now   func() time.Time // nil: time.Now
}

// errNoDecider says that nothing can be allowed.
var errNoDecider = errors.New("nobody decides about connections")
