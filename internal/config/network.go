package config

import (
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"ringfence/internal/egress/registry"
)

// A Network is what the machine is connected to, as far as it is not the public internet
// by the machine's own settings.
type Network struct {
	Resolver netip.AddrPort // that names are looked up by; the zero AddrPort: that of the machine
	Private  []netip.Prefix // ranges beside the public internet that may be connected to, if a policy allows it
	Proxy    *url.URL       // "http://host:port" that connects for us; nil: none
	// Registries are where packages come from, besides those that the settings of package
	// managers name.
	Registries []registry.Place
	CA         []string // absolute paths of PEM files with roots besides those of the machine
}

type network struct {
	Resolver   *string      `json:"resolver"`
	Private    []string     `json:"private"`
	Proxy      *string      `json:"proxy"`
	CA         []string     `json:"ca"`
	Registries []registryAt `json:"registries"`
}

func (l *loader) network(n *network) error {
	if n == nil {
		n = &network{}
	}
	to, resolver, proxy := &l.config.Network, "", ""
	if n.Resolver != nil {
		at, err := netip.ParseAddrPort(*n.Resolver)
		if err != nil || at.Port() == 0 {
			return l.invalid("/network/resolver", `%q is no address with a port, as in "10.0.0.53:53"`, *n.Resolver)
		}
		to.Resolver, resolver = at, at.String()
	}
	var private []string
	for i, s := range n.Private {
		p, err := netip.ParsePrefix(s)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return l.invalid("/network/private/"+strconv.Itoa(i), `%q is no range of addresses, as in "10.1.0.0/16"`, s)
		}
		to.Private, private = append(to.Private, p), append(private, p.String())
	}
	if n.Proxy != nil {
		u, err := url.Parse(*n.Proxy)
		if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
			return l.invalid("/network/proxy", `it is not the URL of a proxy, as in "http://proxy.example.com:3128"`)
		}
		to.Proxy, proxy = u, u.Redacted()
	}
	for i, path := range n.CA {
		if path == "" {
			return l.invalid("/network/ca/"+strconv.Itoa(i), "a file has no name")
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(l.home, path)
		}
		to.CA = append(to.CA, filepath.Clean(path))
	}
	l.settings = append(l.settings,
		l.setting("network.resolver", resolver, n.Resolver != nil),
		l.setting("network.private", strings.Join(private, ", "), n.Private != nil),
		l.setting("network.proxy", proxy, n.Proxy != nil),
		l.setting("network.ca", strings.Join(to.CA, ", "), n.CA != nil))
	return l.registries(n.Registries)
}
