package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Ways are how programs in a box with NetworkPolicy, which know nothing of Spec.Egress,
// come to it: by a proxy and a resolver on the loopback of the box, and by connecting to
// addresses that the resolver made up. The zero Ways are none: then only the socket is there.
type Ways struct {
	// Proxy and Resolver are ports on 127.0.0.1; the proxy listens on ::1 too, where there is
	// IPv6, and the resolver over UDP and TCP. Both, or neither.
	Proxy, Resolver uint16
	// Tools is one more port on 127.0.0.1, at which who makes the box serves it what is no
	// way out: tools. 0 for none.
	Tools uint16
	// Ports, beside these, are those that are listened at on every address of the box. A
	// program in it cannot listen there itself.
	Ports []uint16
	// Local are addresses that become the box's own beyond its loopback: of 198.18.0.0/15
	// (RFC 2544) and fd00::/8 (RFC 4193), so that they lead nowhere else, or of 127.0.0.0/8,
	// which are its own anyway. A tier that can make none its own refuses the first two.
	Local []netip.Prefix
	// Take is given what listens, once, when the box is complete and before Spec.Confirm. An
	// error of it is one of Start. Without it nothing listens, and the box sees the socket.
	Take func(Listening) error
}

// Listening are listening sockets of a box, open outside of it, non-blocking or not. They
// belong to who takes them.
type Listening struct {
	Proxy, Resolver, Packets, Direct, Tools []*os.File
}

// The kinds of sockets, as they are told from each other.
const (
	listensProxy = iota + 1
	listensResolver
	listensPacket
	_ // any other
	listensTools
)

// Add adds a socket of a kind: 1 the proxy, 2 the resolver, 3 the resolver over UDP, 5 that
// of tools, 4 any other, as package entrance numbers them.
func (l *Listening) Add(kind int, f *os.File) {
	switch kind {
	case listensProxy:
		l.Proxy = append(l.Proxy, f)
	case listensResolver:
		l.Resolver = append(l.Resolver, f)
	case listensPacket:
		l.Packets = append(l.Packets, f)
	case listensTools:
		l.Tools = append(l.Tools, f)
	default:
		l.Direct = append(l.Direct, f)
	}
}

// Close closes all of them.
func (l Listening) Close() error {
	var all []error
	for _, f := range slices.Concat(l.Proxy, l.Resolver, l.Packets, l.Direct, l.Tools) {
		all = append(all, f.Close())
	}
	return errors.Join(all...)
}

// Any reports whether there are any.
func (w Ways) Any() bool { return w.Proxy != 0 }

// Beyond returns those of Local that are beyond loopback.
func (w Ways) Beyond() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(w.Local), func(p netip.Prefix) bool { return p.Addr().IsLoopback() })
}

// A Seen is what a kernel says of the network of a box.
type Seen struct {
	Interfaces []string
	Routes     []string       // that lead anywhere but to the box itself
	Local      []netip.Prefix // its own addresses, beyond single ones and loopback
	Listening  []string       // "tcp 127.0.0.1:53", "udp …"
}

// Judge holds what is seen of the network of a box of s, which is by policy, against s. It
// returns what the record says, and what is not as it must be.
func (s Spec) Judge(n Seen) (evidence string, err error) {
	if len(n.Interfaces) != 1 || n.Interfaces[0] != "lo" || len(n.Routes) > 0 {
		return "", fmt.Errorf("interfaces: %s; routes: %s", strings.Join(n.Interfaces, " "), strings.Join(n.Routes, " "))
	}
	evidence = "interfaces: lo; no route leads out of the box; "
	if s.ShowsEgress() {
		return evidence + "the way out is " + s.Egress, nil
	}
	six := slices.ContainsFunc(n.Listening, func(l string) bool { return strings.Contains(l, "[") })
	var locals []string
	for _, p := range n.Local {
		locals = append(locals, p.String())
	}
	for _, p := range s.Ways.Beyond() {
		if !slices.Contains(n.Local, p) && (p.Addr().Is4() || six) {
			return "", fmt.Errorf("%v is not an address of the box", p)
		}
	}
	want := s.Ways.wanted(six)
	for _, l := range n.Listening {
		if !slices.Contains(want, l) {
			return "", fmt.Errorf("%s listens, which nobody asked for", l)
		}
	}
	for _, l := range want {
		if !slices.Contains(n.Listening, l) {
			return "", fmt.Errorf("%s does not listen", l)
		}
	}
	return evidence + fmt.Sprintf("addresses beyond loopback that are the box's own: %s; listening, and handed out to who decides: %s",
		cmp.Or(strings.Join(locals, " "), "none"), strings.Join(n.Listening, ", ")), nil
}

// wanted is what listens for w.
func (w Ways) wanted(six bool) []string {
	all := []string{fmt.Sprintf("tcp 127.0.0.1:%d", w.Proxy), fmt.Sprintf("tcp 127.0.0.1:%d", w.Resolver), fmt.Sprintf("udp 127.0.0.1:%d", w.Resolver)}
	if six {
		all = append(all, fmt.Sprintf("tcp [::1]:%d", w.Proxy))
	}
	if w.Tools != 0 {
		all = append(all, fmt.Sprintf("tcp 127.0.0.1:%d", w.Tools))
	}
	for _, p := range w.Ports {
		all = append(all, fmt.Sprintf("tcp 0.0.0.0:%d", p))
		if six {
			all = append(all, fmt.Sprintf("tcp [::]:%d", p))
		}
	}
	return all
}

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
	case w.Tools != 0 && (!w.Any() || w.Tools == w.Proxy || w.Tools == w.Resolver):
		return fmt.Errorf("spec: port %d of tools is that of the proxy or resolver, or there are none", w.Tools)
	case !w.Any() && len(w.Ports)+len(w.Local) > 0:
		return errors.New("spec: ports or addresses are given, but no resolver")
	case len(w.Ports) > maxPorts || len(w.Local) > maxLocal || len(s.Placed) > maxPlacings:
		return fmt.Errorf("spec: %d ports, %d ranges and %d placed files, at most %d, %d and %d", len(w.Ports), len(w.Local), len(s.Placed), maxPorts, maxLocal, maxPlacings)
	}
	for i, p := range w.Ports {
		if p == 0 || p == w.Proxy || p == w.Resolver || p == w.Tools || slices.Contains(w.Ports[:i], p) {
			return fmt.Errorf("spec: port %d is zero, twice, or that of the proxy, resolver or tools", p)
		}
	}
	for _, p := range w.Local {
		within := func(r netip.Prefix) bool { return r.Contains(p.Addr()) && r.Bits() <= p.Bits() }
		if p != p.Masked() || !slices.ContainsFunc(localRanges, within) && !p.Addr().IsLoopback() {
			return fmt.Errorf("spec: %v is no part of 198.18.0.0/15, fd00::/8 or 127.0.0.0/8", p)
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
