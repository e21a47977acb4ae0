package policy

import (
	"net/netip"
	"strings"
)

// special are the address ranges that are not of the public internet: the
// special-purpose registries of IANA (RFC 6890) that are not globally reachable,
// multicast, and the IPv6 forms that carry an IPv4 address to a gateway.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("10.0.0.0/8"),      // RFC 1918
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT, RFC 6598
	netip.MustParsePrefix("127.0.0.0/8"),     // loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // link-local, metadata services
	netip.MustParsePrefix("172.16.0.0/12"),   // RFC 1918
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.168.0.0/16"),  // RFC 1918
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarking
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("224.0.0.0/3"),     // multicast, reserved, broadcast

	netip.MustParsePrefix("2001::/23"),     // protocol assignments: Teredo, ORCHID
	netip.MustParsePrefix("2001:db8::/32"), // documentation
	netip.MustParsePrefix("2002::/16"),     // 6to4
	netip.MustParsePrefix("3fff::/20"),     // documentation
}

// global is what of IPv6 is routed on the public internet. All else is special:
// loopback, mapped and compatible forms, NAT64, unique local, link-local and
// multicast addresses.
var global = netip.MustParsePrefix("2000::/3")

// privateSuffixes end names that no public resolver answers for.
var privateSuffixes = []string{".internal", ".local", ".localhost", ".home.arpa"}

// privateHost reports whether host (canonical: a name, an IPv4 address, or an
// IPv6 address in brackets) may lead to something that is not on the public
// internet. It looks at the text alone; where a public name leads is for who
// resolves it.
func privateHost(host string) bool {
	if addr, ok := hostAddr(host); ok {
		return privateAddr(addr)
	}
	if !strings.Contains(host, ".") {
		return true
	}
	for _, s := range privateSuffixes {
		if strings.HasSuffix(host, s) {
			return true
		}
	}
	return false
}

func privateAddr(a netip.Addr) bool {
	a = a.Unmap()
	if a.Is6() && !global.Contains(a.WithZone("")) {
		return true
	}
	for _, p := range special {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// hostAddr returns the address that a canonical host is, if it is one.
func hostAddr(host string) (netip.Addr, bool) {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	} else if host == "" || host[len(host)-1] < '0' || host[len(host)-1] > '9' {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(host)
	return a, err == nil
}

// cutHostPort splits "host:port"; port is "" if there is none. An IPv6 address
// is in brackets.
func cutHostPort(s string) (host, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") {
		return s, ""
	}
	return s[:i], s[i+1:]
}
