package oauth

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// sameOrigin reports whether two URLs have the same scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if strings.EqualFold(u.Scheme, "https") {
		return "443"
	}
	return "80"
}

// origin is u without what follows its host.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// sharedSpace are the addresses of RFC 6598, which lead into the net of a provider.
var sharedSpace = netip.MustParsePrefix("100.64.0.0/10")

// isPublic reports whether an address is one that anybody could reach.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !sharedSpace.Contains(ip) && ip.Zone() == ""
}

// place parses a URL that somebody else named, and returns an error unless requests for
// this server may go there: https, with neither user nor fragment, and to no address
// that only this machine or its neighbours reach, unless the server itself is there.
// Names are not looked up: what carries the request does that, and decides too.
func (c *Client) place(text string) (*url.URL, error) {
	if len(text) > maxText {
		return nil, errors.New("a URL is too long")
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Host == "" || u.User != nil || u.Fragment != "" || strings.Contains(text, "#") {
		return nil, fmt.Errorf("%q is no URL that can be used", clip(text))
	}
	host, here := u.Hostname(), isLoopback(c.server.Hostname())
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("%q is no URL of the web", clip(text))
	case isLoopback(host) && !here:
		return nil, fmt.Errorf("%q leads to this machine, and the server is elsewhere", clip(text))
	case isLoopback(host):
		return u, nil
	case u.Scheme != "https":
		return nil, fmt.Errorf("%q is not https", clip(text))
	case strings.EqualFold(host, c.server.Hostname()):
		return u, nil // the person wrote that host
	}
	ip, err := netip.ParseAddr(host)
	if err == nil && !isPublic(ip) {
		return nil, fmt.Errorf("%q leads to an address that is not public", clip(text))
	}
	if err != nil && (!strings.Contains(host, ".") || strings.HasSuffix(host, ".") || numeric(host)) {
		return nil, fmt.Errorf("%q has a host that is no public name", clip(text))
	}
	return u, nil
}

// numeric reports whether a host ends in what some resolvers read as a number of an
// address (WHATWG URL, "ends in a number").
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && (last[0] >= '0' && last[0] <= '9')
}

// clip shortens what is quoted in an error.
func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
