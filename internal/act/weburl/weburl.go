// Package weburl reads URLs and hosts the way clients do (WHATWG URL standard,
// https://url.spec.whatwg.org) and writes each in one canonical form, so that
// what is judged is what a client will connect to.
//
// It is not a general URL library: it knows http, https, ws and wss, absolute
// URLs only. It resolves no names and opens nothing.
//
// Where it differs from the standard it accepts less, or writes two spellings of
// one thing as one: user names and passwords, port 0, empty labels and names that
// DNS cannot hold are refused; a dot at the end of a host is dropped; an IPv6
// address that only wraps an IPv4 address (::ffff:a.b.c.d) is that IPv4 address.
//
// Invariants:
//
//	U1  Parse(u.String()) equals u for every u that Parse returned.
//	U2  A Host is an IP address or a lower-case ASCII name that no client reads
//	    as an IP address.
package weburl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxLen is the length in bytes above which input is refused.
const MaxLen = 32 << 10

// A URL is an absolute URL of a scheme that [Parse] accepts. It is comparable.
type URL struct {
	Scheme      string // "http", "https", "ws" or "wss"
	Host        Host
	Port        uint16 // the port that is connected to; never 0
	Path        string // begins with "/", percent-encoded, no dot segments
	Query       string // without "?"
	HasQuery    bool   // there was a "?"
	Fragment    string // without "#"
	HasFragment bool   // there was a "#"
}

// String returns the URL in canonical form: default port left out.
func (u URL) String() string {
	var b strings.Builder
	b.Grow(len(u.Scheme) + len(u.Path) + len(u.Query) + len(u.Fragment) + 64)
	b.WriteString(u.Scheme)
	b.WriteString("://")
	b.WriteString(u.Host.String())
	if u.Port != DefaultPort(u.Scheme) {
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(int(u.Port)))
	}
	b.WriteString(u.Path)
	if u.HasQuery {
		b.WriteByte('?')
		b.WriteString(u.Query)
	}
	if u.HasFragment {
		b.WriteByte('#')
		b.WriteString(u.Fragment)
	}
	return b.String()
}

// Request returns u as it goes over the wire: without the fragment.
func (u URL) Request() URL {
	u.Fragment, u.HasFragment = "", false
	return u
}

// Plain returns u with every needless percent-escape of path and query undone
// and the rest in upper case (RFC 3986 §6.2.2), so that "/%73ecret" and
// "/secret", which servers do not tell apart, are one text.
func (u URL) Plain() URL {
	u.Path = plainEscapes(u.Path)
	u.Query = plainEscapes(u.Query)
	return u
}

// HostPort returns "host:port", IPv6 in brackets.
func (u URL) HostPort() string { return u.Host.WithPort(u.Port) }

// DefaultPort returns the default port of a scheme that [Parse] accepts, else 0.
func DefaultPort(scheme string) uint16 {
	switch scheme {
	case "http", "ws":
		return 80
	case "https", "wss":
		return 443
	}
	return 0
}

var (
	errUserinfo = errors.New("names a user or password: credentials in URLs are refused, use a named secret")
	errRelative = errors.New(`is not an absolute URL: write it with its scheme, as in "https://example.org/"`)
	errLong     = fmt.Errorf("is longer than %d bytes", MaxLen)
)

// Parse reads an absolute URL. The error says what is wrong with s in words that
// follow s: "names a user or password: …".
func Parse(s string) (URL, error) {
	if len(s) > MaxLen {
		return URL{}, errLong
	}
	if !utf8.ValidString(s) {
		return URL{}, errors.New("is not valid UTF-8")
	}
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	s = dropTabsAndLines(s)
	scheme, rest, err := cutScheme(s)
	if err != nil {
		return URL{}, err
	}
	u := URL{Scheme: scheme}
	rest = strings.TrimLeft(rest, `/\`)
	end := strings.IndexAny(rest, `/\?#`)
	if end < 0 {
		end = len(rest)
	}
	if u.Host, u.Port, err = authority(rest[:end]); err != nil {
		return URL{}, err
	}
	if u.Port == 0 {
		u.Port = DefaultPort(scheme)
	}
	rest = rest[end:]
	rest, u.Fragment, u.HasFragment = strings.Cut(rest, "#")
	rest, u.Query, u.HasQuery = strings.Cut(rest, "?")
	u.Fragment = encode(u.Fragment, fragmentSet)
	u.Query = encode(u.Query, querySet)
	u.Path = cleanPath(rest)
	return u, nil
}

func dropTabsAndLines(s string) string {
	if !strings.ContainsAny(s, "\t\n\r") {
		return s
	}
	return strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(s)
}

func cutScheme(s string) (scheme, rest string, err error) {
	i := strings.IndexByte(s, ':')
	if i <= 0 {
		return "", "", errRelative
	}
	scheme = asciiLower(s[:i])
	for j := 0; j < len(scheme); j++ {
		c := scheme[j]
		letter := 'a' <= c && c <= 'z'
		if !letter && (j == 0 || !('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return "", "", errRelative
		}
	}
	if DefaultPort(scheme) == 0 {
		return "", "", fmt.Errorf("has the scheme %q: only http, https, ws and wss are accepted", scheme)
	}
	return scheme, s[i+1:], nil
}

// authority reads "host" or "host:port"; port 0 means that none is given.
func authority(s string) (Host, uint16, error) {
	if strings.Contains(s, "@") {
		return Host{}, 0, errUserinfo
	}
	host, port, err := cutPort(s)
	if err != nil {
		return Host{}, 0, err
	}
	h, err := ParseHost(host)
	return h, port, err
}

func cutPort(s string) (string, uint16, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.IndexByte(s[i:], ']') >= 0 {
		return s, 0, nil
	}
	host, digits := s[:i], s[i+1:]
	if strings.IndexByte(host, ':') >= 0 && !strings.HasPrefix(host, "[") {
		return "", 0, errors.New(`has more than one ":" in its host: write IPv6 addresses in brackets`)
	}
	if digits == "" {
		return host, 0, nil
	}
	var n uint32
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return "", 0, fmt.Errorf("has the port %q: a port is a number from 1 to 65535", digits)
		}
		if n = n*10 + uint32(c-'0'); n > 65535 {
			return "", 0, fmt.Errorf("has the port %q: a port is a number from 1 to 65535", digits)
		}
	}
	if n == 0 {
		return "", 0, errors.New("has the port 0: a port is a number from 1 to 65535")
	}
	return host, uint16(n), nil
}

// cleanPath encodes a path and removes its dot segments; "\" is "/".
func cleanPath(s string) string {
	if s == "" || s == "/" {
		return "/"
	}
	s = strings.ReplaceAll(s, `\`, "/")[1:]
	parts := strings.Split(s, "/")
	out := make([]string, 0, len(parts))
	for i, p := range parts {
		last := i == len(parts)-1
		switch dots(p) {
		case 2:
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		case 1:
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, encode(p, pathSet))
		}
	}
	return "/" + strings.Join(out, "/")
}

// dots returns 1 for a single-dot segment, 2 for a double-dot segment, else 0.
func dots(seg string) int {
	if len(seg) > len("%2e%2e") || seg == "" || seg[0] != '.' && seg[0] != '%' {
		return 0
	}
	switch strings.ReplaceAll(asciiLower(seg), "%2e", ".") {
	case ".":
		return 1
	case "..":
		return 2
	}
	return 0
}
