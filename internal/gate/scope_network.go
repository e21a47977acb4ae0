package gate

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// What leaves a box is asked about without a tool, and of a request the method, the address
// and what is lent are known, never the body: a yes for the session is for no less than that.

// The forms of a [Scope] that are for what leaves a box.
const (
	ScopeRequest    = "request"    // one method and path at one host, whatever its query
	ScopePath       = "path"       // one method beneath a directory of paths
	ScopeSubdomains = "subdomains" // a domain and every name beneath it, at one port by one scheme
)

// network adds what is for requests and connections to the scopes of d.
func (d *draft) network(all []Scope, does string) []Scope {
	first := d.res.Effects[0]
	if at, u, ok := d.request(first); ok && d.all(ScopeRequest, at) {
		host := u.Scheme + "://" + u.HostPort()
		all = append(all, Scope{ScopeRequest, at + ", with any query and body", at + "?q=other", "any other path or method", at})
		if dir := at[:strings.LastIndexByte(at, '/')+1]; u.Path != "/" && !strings.HasSuffix(dir, host+"/") && d.all(ScopePath, dir) {
			all = append(all, Scope{ScopePath, dir + " and whatever is beneath, with any query and body", dir + "deeper/page", "any other path, method or host", dir})
		}
	}
	if at := site(first); d.all(ScopeDomain, at) {
		all = append(all, Scope{ScopeDomain, does + " at " + at + ", whatever is said there", at + " with other content", "any other host, port or scheme", at})
	}
	if at, scheme := under(site(first)); d.all(ScopeSubdomains, scheme+at) {
		all = append(all, Scope{ScopeSubdomains, does + " at " + scheme + at + " and every name beneath that, whatever is said there", scheme + "any-name." + at, "any other domain, port or scheme", scheme + at})
	}
	return all
}

// request is the method and the address without query of an effect that a box asks for.
func (d *draft) request(e act.Effect) (at string, u weburl.URL, ok bool) {
	method, _ := d.res.Facts["/method"].(string)
	if d.req.Verb != act.VerbEffect || e.Resource.Type != act.URL || method == "" {
		return "", u, false
	}
	u, err := weburl.Parse(e.Resource.Text)
	return method + " " + u.Scheme + "://" + u.HostPort() + u.Path, u, err == nil && !twoReadings(u.Path)
}

// twoReadings reports whether some servers take path for one elsewhere.
func twoReadings(path string) bool {
	low := strings.ToLower(path)
	return slices.ContainsFunc([]string{"%2f", "%5c", "%2e", "\\", ";", "//"}, func(odd string) bool { return strings.Contains(low, odd) })
}

// under is the domain, with its port, whose names a person may mean who is asked about site:
// the one above its own name, but none under which anyone can register a name.
func under(site string) (domain, scheme string) {
	host, port, scheme, ok := splitSite(site)
	if !ok {
		return "", ""
	}
	name := host.String()
	if _, isAddr := host.Addr(); isAddr {
		return "", ""
	}
	own, err := publicsuffix.EffectiveTLDPlusOne(name)
	if err != nil {
		return "", ""
	}
	if name != own {
		_, name, _ = strings.Cut(name, ".")
	}
	return name + ":" + strconv.Itoa(int(port)), scheme
}

func splitSite(site string) (host weburl.Host, port uint16, scheme string, ok bool) {
	if head, rest, has := strings.Cut(site, "://"); has {
		scheme, site = head+"://", rest
	}
	host, port, err := weburl.ParseHostPort(site)
	return host, port, scheme, err == nil
}

// inNetwork is [draft.in] for the forms of this file.
func (d *draft) inNetwork(form, place string, e act.Effect) bool {
	switch form {
	case ScopeRequest:
		at, _, ok := d.request(e)
		return ok && at == place
	case ScopePath:
		at, _, ok := d.request(e)
		return ok && strings.HasPrefix(at, place)
	default: // ScopeSubdomains
		host, port, scheme, ok := splitSite(site(e))
		above, aport, ascheme, isPlace := splitSite(place)
		return ok && isPlace && port == aport && scheme == ascheme &&
			(host == above || strings.HasSuffix(host.String(), "."+above.String()))
	}
}

// leaves reports whether d is about what leaves a box, and nothing else.
func (d *draft) leaves() bool {
	return d.req.Verb == act.VerbEffect && !slices.ContainsFunc(d.res.Effects, func(e act.Effect) bool { return site(e) == "" })
}

// same is what [ScopeExact] is bound to. Of what leaves a box that is the method and the
// address: which process asked, and by which way, is of no account.
func (d *draft) same(g *Gate) [32]byte {
	if !d.leaves() {
		return d.digest(g)
	}
	method, _ := d.res.Facts["/method"].(string)
	of := *d
	of.res.Bytes = []byte(method)
	return of.digest(g)
}

// exact is the narrowest scope.
func (d *draft) exact() Scope {
	if !d.leaves() {
		return Scope{Form: ScopeExact, Text: "exactly this call, with the same arguments"}
	}
	method, _ := d.res.Facts["/method"].(string)
	if method == "" {
		method = d.kinds()[0]
	}
	return Scope{Form: ScopeExact, Text: "exactly this: " + method + " " + d.res.Effects[0].Resource.Text}
}
