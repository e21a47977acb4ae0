package weburl

import (
	"errors"
	"fmt"
	"strings"
)

// A Site is a place, or many: a host, all names beneath a domain, or any host; at one port or
// at any. The zero Site is no place.
type Site struct {
	host    Host
	beneath bool // host, and every name beneath it
	any     bool // every host
	port    uint16
}

// ParseSite reads "example.com", that host only; "*.example.com", it and every name
// beneath; "*", any host; each at every port, or with ":8443" at that one. Errors read on
// after the name of what s stands for.
func ParseSite(s string) (Site, error) {
	if s == "*" {
		return Site{any: true}, nil
	}
	rest, beneath := strings.CutPrefix(s, "*.")
	h, port, err := ParseHostPort(rest)
	if err != nil {
		return Site{}, err
	}
	if strings.Contains(h.name, "*") {
		return Site{}, errors.New(`has a "*" that does not stand for the names beneath a domain, as in "*.example.com"`)
	}
	if _, isAddr := h.Addr(); beneath && isAddr {
		return Site{}, fmt.Errorf("has nothing beneath the address %s", h)
	}
	return Site{host: h, beneath: beneath, port: port}, nil
}

// Covers reports whether h at port is of s. With port 0 it is about the name alone.
func (s Site) Covers(h Host, port uint16) bool {
	if s.port != 0 && port != 0 && s.port != port {
		return false
	}
	switch {
	case h.IsZero():
		return false
	case s.any, h == s.host:
		return true
	}
	return s.beneath && strings.HasSuffix(h.name, "."+s.host.name)
}
