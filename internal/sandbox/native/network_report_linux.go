package native

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/readback"
)

// network judges what the kernel says of the network of a box by policy: it has loopback
// and nothing else, no route leads away, and what listens is what was asked for.
func (r *reporter) network(pid int, s sandbox.Spec) error {
	if s.Network != sandbox.NetworkPolicy {
		return nil
	}
	n, err := readback.ReadNetwork(pid)
	if err != nil {
		return err
	}
	if len(n.Interfaces) != 1 || n.Interfaces[0] != "lo" || len(n.Routes) > 0 {
		r.lacks(sandbox.LayerNetwork, fmt.Sprintf("interfaces: %s; routes: %s", strings.Join(n.Interfaces, " "), strings.Join(n.Routes, " ")))
	}
	evidence := "interfaces: lo; no route leads out of the box; "
	if s.ShowsEgress() {
		r.has(sandbox.LayerNetwork, string(sandbox.NetworkPolicy), evidence+"the way out is "+s.Egress)
		return nil
	}
	six := slices.ContainsFunc(n.Listening, func(l readback.Listener) bool { return l.At.Addr().Is6() })
	var locals, listening []string
	for _, p := range n.Local {
		locals = append(locals, p.String())
	}
	for _, p := range s.Ways.Local {
		if !slices.Contains(n.Local, p) && (p.Addr().Is4() || six) {
			r.lacks(sandbox.LayerNetwork, p.String()+" is not an address of the box")
		}
	}
	want := wanted(s.Ways, six)
	for _, l := range n.Listening {
		listening = append(listening, l.Protocol+" "+l.At.String())
		if !slices.Contains(want, l) {
			r.lacks(sandbox.LayerNetwork, fmt.Sprintf("%s %v listens, which nobody asked for", l.Protocol, l.At))
		}
	}
	for _, l := range want {
		if !slices.Contains(n.Listening, l) {
			r.lacks(sandbox.LayerNetwork, fmt.Sprintf("%s %v does not listen", l.Protocol, l.At))
		}
	}
	evidence += fmt.Sprintf("addresses beyond loopback that are the box's own: %s; listening, and handed out to who decides: %s",
		strings.Join(locals, " "), strings.Join(listening, ", "))
	r.has(sandbox.LayerNetwork, string(sandbox.NetworkPolicy), evidence)
	return nil
}

// wanted is what listens for w.
func wanted(w sandbox.Ways, six bool) []readback.Listener {
	loopback, loopback6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	all := []readback.Listener{
		{Protocol: "tcp", At: netip.AddrPortFrom(loopback, w.Proxy)},
		{Protocol: "tcp", At: netip.AddrPortFrom(loopback, w.Resolver)},
		{Protocol: "udp", At: netip.AddrPortFrom(loopback, w.Resolver)},
	}
	if six {
		all = append(all, readback.Listener{Protocol: "tcp", At: netip.AddrPortFrom(loopback6, w.Proxy)})
	}
	for _, p := range w.Ports {
		all = append(all, readback.Listener{Protocol: "tcp", At: netip.AddrPortFrom(netip.IPv4Unspecified(), p)})
		if six {
			all = append(all, readback.Listener{Protocol: "tcp", At: netip.AddrPortFrom(netip.IPv6Unspecified(), p)})
		}
	}
	return all
}
