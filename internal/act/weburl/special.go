package weburl

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
	netip.MustParsePrefix("192.88.99.0/24"),  // relays of 6to4, RFC 7526
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

// Special reports whether a is not an address of the public internet, or carries one
// that is not to a gateway.
func Special(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || a.Is6() && !global.Contains(a) {
		return true
	}
	for _, p := range special {
		if p.Contains(a) {
			return true
		}
	}
	if v4, ok := (Host{addr: a}).Embedded(); ok && a.Is6() {
		return Special(v4)
	}
	return false
}

// metadata are names and addresses at which clouds hand out the credentials of the
// machine: AWS, ECS and EKS, Google, Azure, Alibaba, Oracle, Tencent, Scaleway and
// OpenStack.
var metadata = map[string]bool{
	"169.254.169.254": true, "169.254.170.2": true, "169.254.170.23": true,
	"169.254.169.253": true, "169.254.0.23": true, "169.254.42.42": true,
	"168.63.129.16": true, "100.100.100.200": true, "192.0.0.192": true,
	"[fd00:ec2::254]": true, "[fd00:ec2::23]": true, "[fd20:ce::254]": true, "[fd00:42::42]": true,
	"metadata": true, "metadata.google.internal": true, "metadata.goog": true,
	"metadata.azure.com": true, "metadata.azure.internal": true, "metadata.tencentyun.com": true,
	"instance-data": true, "instance-data.ec2.internal": true,
}

// Metadata reports whether h is a metadata service of a cloud, by name or address. An
// IPv4 address that an IPv6 address carries for a gateway counts as that address.
func (h Host) Metadata() bool {
	text := h.String()
	if v4, ok := h.Embedded(); ok {
		text = v4.String()
	}
	return metadata[text] || strings.HasSuffix(text, ".metadata.google.internal")
}

// AddrHost returns a as a Host.
func AddrHost(a netip.Addr) Host { return Host{addr: a.Unmap().WithZone("")} }
