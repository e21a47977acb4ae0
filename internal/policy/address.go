package policy

import (
	"net/netip"
	"strings"

	"ringfence/internal/act/weburl"
)

// privateSuffixes end names that no public resolver answers for.
var privateSuffixes = []string{".internal", ".local", ".localhost", ".home.arpa"}

// privateHost reports whether host (canonical: a name, an IPv4 address, or an
// IPv6 address in brackets) may lead to something that is not on the public
// internet. It looks at the text alone; where a public name leads is for who
// resolves it.
func privateHost(host string) bool {
	if addr, ok := hostAddr(host); ok {
		return weburl.Special(addr)
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
