package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
)

// Ways are how programs in a box with NetworkPolicy, which know nothing of Spec.Egress,
// come to it: by a proxy and a resolver on the loopback of the box, and by connecting to
// addresses that the resolver made up. The zero Ways are none: then only the socket is there.
type Ways struct {
	// Proxy and Resolver are ports on 127.0.0.1; the proxy listens on ::1 too, where there is
	// IPv6, and the resolver over UDP and TCP. Both, or neither.
	Proxy, Resolver uint16
	// Ports, beside these, are those that are listened at on every address of the box. A
	// program in it cannot listen there itself.
	Ports []uint16
	// Local are addresses that become the box's own beyond its loopback: of 198.18.0.0/15
	// (RFC 2544) and fd00::/8 (RFC 4193), so that they lead nowhere else. A tier that cannot
	// do that leaves them out; there only those of 127.0.0.0/8 do.
	Local []netip.Prefix
	// Take is given what listens, once, when the box is complete and before Spec.Confirm. An
	// error of it is one of Start. It is called by tiers whose sockets can be handed out. In
	// others Bridge runs in the box, with "--socket PATH" of Spec.Egress, and the ports.
	Take func(Listening) error
	// Bridge is the path of a static program (command bridge) that the box can be given. It is
	// only needed where sockets cannot be handed out.
	Bridge string
}

// Listening are listening sockets of a box, open outside of it, non-blocking or not. They
// belong to who takes them.
type Listening struct {
	Proxy, Resolver, Packets, Direct []*os.File
}

// Close closes all of them.
func (l Listening) Close() error {
	var all []error
	for _, f := range slices.Concat(l.Proxy, l.Resolver, l.Packets, l.Direct) {
		all = append(all, f.Close())
	}
	return errors.Join(all...)
}

// Any reports whether there are any.
func (w Ways) Any() bool { return w.Proxy != 0 }

// A Placing puts a file of the host where a program of the box looks for one of its own:
// roots that it verifies servers by. It is read-only, whatever else the Spec says of the
// place.
type Placing struct {
	Path string // in the box
	File string // on the host: regular, no link
	// Usual says that it is one of several usual places: in a directory of the host that has
	// no such file nothing is placed. Others must be placed.
	Usual bool
}

// What there may be at most.
const (
	maxPorts    = 32
	maxPlacings = 64
	maxLocal    = 8
)

// localRanges are those of which nothing is anybody's outside.
var localRanges = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("fd00::/8")}

// ShowsEgress reports whether the program is to see the socket itself.
func (s Spec) ShowsEgress() bool { return s.Network == NetworkPolicy && s.Ways.Take == nil }

func (s Spec) checkWays() error {
	w := s.Ways
	if s.Network != NetworkPolicy {
		if w.Any() || len(w.Ports)+len(w.Local)+len(s.Placed) > 0 {
			return errors.New("spec: ways to a network are given, but no network by policy is asked for")
		}
		return nil
	}
	switch {
	case w.Proxy != 0 != (w.Resolver != 0) || w.Proxy == w.Resolver && w.Proxy != 0:
		return fmt.Errorf("spec: ports %d and %d of proxy and resolver are not two", w.Proxy, w.Resolver)
	case !w.Any() && len(w.Ports)+len(w.Local) > 0:
		return errors.New("spec: ports or addresses are given, but no resolver")
	case len(w.Ports) > maxPorts || len(w.Local) > maxLocal || len(s.Placed) > maxPlacings:
		return fmt.Errorf("spec: %d ports, %d ranges and %d placed files, at most %d, %d and %d", len(w.Ports), len(w.Local), len(s.Placed), maxPorts, maxLocal, maxPlacings)
	}
	if w.Bridge != "" {
		if err := checkPath("bridge", w.Bridge); err != nil {
			return err
		}
	}
	for i, p := range w.Ports {
		if p == 0 || p == w.Proxy || p == w.Resolver || slices.Contains(w.Ports[:i], p) {
			return fmt.Errorf("spec: port %d is zero, twice, or that of the proxy or resolver", p)
		}
	}
	for _, p := range w.Local {
		within := func(r netip.Prefix) bool { return r.Contains(p.Addr()) && r.Bits() <= p.Bits() }
		if p != p.Masked() || !slices.ContainsFunc(localRanges, within) {
			return fmt.Errorf("spec: %v is no part of 198.18.0.0/15 or fd00::/8", p)
		}
	}
	return s.checkPlaced()
}

func (s Spec) checkPlaced() error {
	for i, p := range s.Placed {
		if err := errors.Join(checkPath("place", p.Path), checkPath("placed file", p.File)); err != nil {
			return err
		}
		if slices.ContainsFunc(s.Placed[:i], func(o Placing) bool { return o.Path == p.Path }) {
			return fmt.Errorf("spec: two files are placed at %s", p.Path)
		}
	}
	return nil
}
