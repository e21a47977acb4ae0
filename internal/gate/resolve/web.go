package resolve

import (
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// A urlSubject is an http or https URL.
type urlSubject struct{ url weburl.URL }

// parseURL reads the URL of a request. Escapes that servers undo are undone, so
// that one page has one text.
func parseURL(text string) (weburl.URL, error) {
	u, err := weburl.Parse(text)
	if err != nil {
		return u, bad("", "%s", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return u, bad("", "has the scheme %q: only http and https are accepted", u.Scheme)
	}
	u = u.Plain()
	for p, i := u.Path, 0; i < 3; i++ {
		p = weburl.Unescape(p)
		for part := range strings.FieldsFuncSeq(p, func(r rune) bool { return r == '/' || r == '\\' || r == ';' }) {
			if part == ".." {
				return u, bad("write the path without dots", `hides ".." behind escapes, which servers undo`)
			}
		}
	}
	return u, nil
}

// real is the URL with its fragment, which stays with the client.
func (s urlSubject) real() (string, bool) { return s.url.String(), true }

func (s urlSubject) on(k act.Kind, tree bool) ([]act.Effect, error) {
	switch k.On() {
	case act.URL:
		r := act.Resource{Type: act.URL, Text: s.url.Request().String(), Facts: hostFacts(s.url.Host)}
		return one(k, r, tree), nil
	case act.Host:
		return hostSubject{s.url.Host, s.url.Port}.on(k, tree)
	default:
		return nil, noEffect(k, "URL")
	}
}

func hostFacts(h weburl.Host) map[string]any {
	if c := classOfHost(h); c != "" {
		return map[string]any{act.FactClass: c}
	}
	return nil
}

// A hostSubject is a host and a port, 0 if none is given.
type hostSubject struct {
	host weburl.Host
	port uint16
}

func (s hostSubject) real() (string, bool) {
	if s.port == 0 {
		return s.host.String(), true
	}
	return s.host.WithPort(s.port), true
}

// on takes port 443 for a name that is only resolved: names have no ports, but
// the text of a Host does.
func (s hostSubject) on(k act.Kind, tree bool) ([]act.Effect, error) {
	if k.On() != act.Host {
		return nil, noEffect(k, "host")
	}
	port := s.port
	if port == 0 && k == act.Resolve {
		port = 443
	}
	if port == 0 {
		return nil, bad("write host:port", "has no port")
	}
	return one(k, act.Resource{Type: act.Host, Text: s.host.WithPort(port), Facts: hostFacts(s.host)}, tree), nil
}

// canonicalRecipient returns one mail address with its domain in ASCII and lower
// case. A display name in front is dropped: it says nothing about who receives.
func canonicalRecipient(s string) (string, error) {
	s = strings.TrimSpace(s)
	if open := strings.LastIndexByte(s, '<'); open >= 0 && strings.HasSuffix(s, ">") {
		s = s[open+1 : len(s)-1]
	}
	at := strings.LastIndexByte(s, '@')
	if at <= 0 || len(s) > 320 {
		return "", bad("write one address, as in someone@example.org", "is no mail address")
	}
	local, domain := s[:at], s[at+1:]
	if hasControl(local) || strings.ContainsAny(local, " \"(),:;<>[\\]@") {
		return "", bad("write one address, as in someone@example.org", "is no plain mail address")
	}
	h, err := weburl.ParseHost(domain)
	if err != nil {
		return "", bad("", "%s", err)
	}
	if _, isAddr := h.Addr(); isAddr || strings.ContainsAny(domain, ":[") {
		return "", bad("", "has an address in place of a domain")
	}
	return local + "@" + h.String(), nil
}

// canonicalName returns s if it can be the name of a secret, store, model,
// person or tool.
func canonicalName(s string) (string, error) {
	if s == "" || len(s) > maxName || hasControl(s) || strings.TrimSpace(s) != s {
		return "", bad("", "is no name: a name has 1 to %d bytes and no control characters", maxName)
	}
	return s, nil
}

// canonicalPackage returns "registry:name" or "registry:name@version". Only
// exact versions are accepted; what a range or tag stands for changes.
func canonicalPackage(registry, s string) (string, error) {
	if registry == "" {
		return "", bad("", "is a package of a registry that the annotation does not name")
	}
	name, version := s, ""
	if i := strings.LastIndexByte(s, '@'); i > 0 {
		name, version = s[:i], s[i+1:]
		if version == "" || strings.Trim(version, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+-_~:") != "" {
			return "", bad("write an exact version", "has no exact version")
		}
		version = "@" + version
	}
	if registry == "go" {
		if !modulePath(name) {
			return "", bad("", "is no path of a Go module")
		}
		return registry + ":" + name + version, nil
	}
	scope, base, scoped := strings.Cut(name, "/")
	if !scoped {
		scope, base = "@", name
	}
	if registry == "pypi" {
		base = pypiName(base)
	}
	if registry == "npm" && !strings.HasPrefix(scope, "@") || registry != "npm" && scoped || !packageName(scope[1:], true) || !packageName(base, false) {
		return "", bad("", "is no name of a package in the registry %s", registry)
	}
	if scoped {
		base = scope + "/" + base
	}
	return registry + ":" + base + version, nil
}

// modulePath reports whether s is a path of names (https://go.dev/ref/mod#go-mod-file-ident).
func modulePath(s string) bool {
	if len(s) > maxName {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if !packageName(part, false) || part[len(part)-1] == '.' {
			return false
		}
	}
	return true
}

func packageName(s string, mayBeEmpty bool) bool {
	if s == "" {
		return mayBeEmpty
	}
	const chars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return len(s) <= maxName && strings.IndexByte(chars+"_", s[0]) >= 0 && strings.Trim(s, chars+"._-~+") == ""
}

// pypiName is the normal form of PEP 503.
func pypiName(s string) string {
	parts := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return strings.Join(parts, "-")
}
