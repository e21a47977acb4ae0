// Package loan holds the words about secrets that are lent: where one may go, in which
// place of a request, and what stands in for it until then.
//
// It keeps no secret and swaps none on a wire; it holds bindings against URLs, reads and
// writes credentials of request heads, and makes sentinels. What model providers expect is
// data (providers.json).
//
// Invariants:
//
//	N1  A [Binding] covers nothing that it does not name: the zero Binding covers no
//	    request, a host is one host, a scheme is https unless the binding says otherwise.
//	N2  A path prefix covers no path that a server could read as lying outside of it.
//	N3  A sentinel has at least 64 random bits, no part of the value beyond a public
//	    prefix, and is never the value.
package loan

import (
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act/weburl"
)

// A Binding says where a secret may go.
type Binding struct {
	Host    string   `json:"host"`              // one host, as weburl writes it
	Port    uint16   `json:"port,omitempty"`    // 0: the default port of the scheme
	Plain   bool     `json:"plain,omitempty"`   // over http, where anybody on the way can read it; https is then not covered
	Methods []string `json:"methods,omitempty"` // upper case; none: all
	Prefix  string   `json:"prefix,omitempty"`  // of the path: "/v1" covers /v1 and /v1/x, not /v1x; "" covers all
	Position
}

// A Position is the place of a request in which a secret belongs: a header or a
// parameter of the query.
type Position struct {
	Header string `json:"header,omitempty"` // its name, in lower case
	// Form is the value of the header, with {} for the secret: "Bearer {}". "Basic {}" is
	// the base64 of user and secret (RFC 7617).
	Form  string `json:"form,omitempty"`
	User  string `json:"user,omitempty"`  // of "Basic {}"; "": whichever the client sends
	Query string `json:"query,omitempty"` // the name of the parameter
}

// Bounds of what a person can bind.
const (
	MaxBindings = 16 // of one secret
	maxMethods  = 16
	maxText     = 1 << 10 // bytes of a prefix, a form, a name
)

// ErrBinding says that a binding cannot be, and why.
var ErrBinding = errors.New("no such binding")

const (
	basicForm = "Basic {}"
	hole      = "{}"
)

var (
	tokenForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$") })
	nameForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`) })
	envForm   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`) })
)

// CheckName refuses what cannot be the name of a secret. Names are a part of policies and
// records: 1 to 64 of a-z, 0-9, '.', '_' and '-'.
func CheckName(name string) error {
	if !nameForm().MatchString(name) {
		return fmt.Errorf("%w: %q is no name of a secret: use 1 to 64 of a-z 0-9 . _ -", ErrBinding, name)
	}
	return nil
}

// reserved are variables of the environment that say which program runs, or how: a
// sentinel in them would be a way to break a box.
var reserved = []string{"PATH", "HOME", "SHELL", "TMPDIR", "USER", "LANG", "TERM", "IFS", "PWD"}

// CheckEnv refuses what cannot be the variable in which a sentinel is shown.
func CheckEnv(name string) error {
	if !envForm().MatchString(name) || slices.Contains(reserved, name) || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") {
		return fmt.Errorf("%w: %q is no variable in which a secret can be shown", ErrBinding, name)
	}
	return nil
}

// Canonical returns b as it is compared and kept. The error is ErrBinding.
func (b Binding) Canonical() (Binding, error) {
	h, err := weburl.ParseHost(b.Host)
	if err != nil {
		return b, fmt.Errorf("%w: host %q %w", ErrBinding, b.Host, err)
	}
	if b.Host = h.String(); strings.Contains(b.Host, "*") {
		return b, fmt.Errorf("%w: host %q: a secret is bound to each host by its name", ErrBinding, b.Host)
	}
	if len(b.Methods) > maxMethods || len(b.Prefix)+len(b.Form)+len(b.User) > maxText {
		return b, fmt.Errorf("%w: it is too long", ErrBinding)
	}
	b.Methods = slices.Clone(b.Methods)
	for i, m := range b.Methods {
		if b.Methods[i] = strings.ToUpper(m); !tokenForm().MatchString(m) {
			return b, fmt.Errorf("%w: %q is no method", ErrBinding, m)
		}
	}
	if b.Prefix != "" {
		if b.Prefix, err = canonicalPrefix(b.Prefix); err != nil {
			return b, err
		}
	}
	b.Position, err = b.position()
	return b, err
}

// canonicalPrefix returns a prefix as paths are compared with it: without a slash at its
// end, "" for all.
func canonicalPrefix(prefix string) (string, error) {
	u, err := weburl.Parse("https://host" + prefix)
	if err != nil || !strings.HasPrefix(prefix, "/") || u.HasQuery || u.HasFragment {
		return "", fmt.Errorf("%w: %q is no path", ErrBinding, prefix)
	}
	path := u.Plain().Path
	if slippery(path) {
		return "", fmt.Errorf("%w: the path %q can be read in several ways", ErrBinding, prefix)
	}
	return strings.TrimRight(path, "/"), nil
}

// position returns p as it is kept, with what is usual where it says nothing.
func (p Position) position() (Position, error) {
	switch {
	case p.Query != "" && (p.Header != "" || p.Form != "" || p.User != ""):
		return p, fmt.Errorf("%w: a secret is in a header or in the query, not in both", ErrBinding)
	case p.Query != "":
		if !tokenForm().MatchString(p.Query) {
			return p, fmt.Errorf("%w: %q is no name of a parameter", ErrBinding, p.Query)
		}
		return p, nil
	}
	if p.Header == "" {
		p.Header = "authorization"
	}
	if p.Form == "" {
		p.Form = hole
		if p.Header == "authorization" {
			p.Form = "Bearer " + hole
		}
	}
	p.Header = strings.ToLower(p.Header)
	switch {
	case !tokenForm().MatchString(p.Header) || slices.Contains(unfit, p.Header):
		return p, fmt.Errorf("%w: a secret cannot be in the header %q", ErrBinding, p.Header)
	case strings.Count(p.Form, hole) != 1 || strings.ContainsFunc(p.Form, func(r rune) bool { return r < ' ' || r >= 0x7f }):
		return p, fmt.Errorf("%w: the form %q of a header has the text {} once, and printable characters", ErrBinding, p.Form)
	case p.User != "" && p.Form != basicForm:
		return p, fmt.Errorf("%w: only the form %q has a user", ErrBinding, basicForm)
	case strings.ContainsFunc(p.User, func(r rune) bool { return r < ' ' || r == ':' || r == 0x7f }):
		return p, fmt.Errorf("%w: %q is no user", ErrBinding, p.User)
	}
	return p, nil
}

// unfit are headers that say how a message travels, and where to.
var unfit = []string{
	"host", "content-length", "content-type", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect",
	"proxy-authorization", "proxy-connection", "keep-alive", "range", "forwarded", "location",
}

// Covers reports whether a request with that method to u may carry a secret that is bound
// so. b is canonical.
func (b Binding) Covers(method string, u weburl.URL) bool {
	scheme := "https"
	if b.Plain {
		scheme = "http"
	}
	switch u.Scheme {
	case "ws":
		u.Scheme = "http"
	case "wss":
		u.Scheme = "https"
	}
	port := b.Port
	if port == 0 {
		port = weburl.DefaultPort(scheme)
	}
	if b.Host == "" || u.Host.String() != b.Host || u.Scheme != scheme || u.Port != port {
		return false
	}
	if len(b.Methods) > 0 && !slices.Contains(b.Methods, method) {
		return false
	}
	if b.Prefix == "" {
		return true
	}
	path := u.Plain().Path
	rest, found := strings.CutPrefix(path, b.Prefix)
	return found && (rest == "" || rest[0] == '/') && !slippery(path)
}

// slippery reports whether a server could read path as another one, by undoing escapes
// once more than we do or by reading a backslash as a slash.
func slippery(path string) bool {
	for range 3 {
		if strings.Contains(path, `\`) || strings.Contains(path, "//") {
			return true
		}
		for seg := range strings.SplitSeq(path, "/") {
			if name, _, _ := strings.Cut(seg, ";"); name == ".." || name == "." {
				return true
			}
		}
		next := weburl.Unescape(path)
		if next == path {
			return strings.ContainsRune(path, 0)
		}
		path = next
	}
	return true
}

// Place names p for people: "authorization: Bearer {}" or "?key={}".
func (p Position) Place() string {
	if p.Query != "" {
		return "?" + p.Query + "=" + hole
	}
	return textproto.CanonicalMIMEHeaderKey(p.Header) + ": " + p.Form
}

// String returns b for people: "https://api.example.com/v1 in X-Api-Key: {}".
func (b Binding) String() string {
	u := "https://" + b.Host
	if b.Plain {
		u = "http://" + b.Host
	}
	if b.Port != 0 {
		u = fmt.Sprintf("%s:%d", u, b.Port)
	}
	if len(b.Methods) > 0 {
		u = strings.Join(b.Methods, ",") + " " + u
	}
	return u + b.Prefix + " in " + b.Place()
}
