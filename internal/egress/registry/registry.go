// Package registry reads what package managers ask of the registries that this
// machine is set up for, and lets through only what may be installed: the read verbs
// of npm, PyPI, Cargo, Go and Debian, lists of versions without those that may not be
// had, and files whose bytes are those that the list promised.
//
// It decides nothing: what may be installed it asks a [Judge], one package and version
// at a time, with its age. It connects to nothing: what goes upstream takes the way
// that it is given. It is no cache of packages, and it knows no registry by name: which
// addresses are registries is an argument.
//
// Invariants:
//
//	G1  Only GET and HEAD go upstream, without body, query, credentials or cookies, to
//	    a path that the ecosystem's protocol has for reading.
//	G2  No file goes to the client before the Judge has allowed installing its package
//	    and version; a file that no metadata names is refused, but for Debian and Go.
//	G3  An age is known only from the registry's own metadata of that version or file.
//	    Where it has none the resource has no age, and rules about age do not allow it.
//	G4  Where metadata has a hash, the last bytes of the file are held back until the
//	    hash of all is right. Go and Debian clients check theirs against signed lists.
//	G5  Metadata is bounded by [MaxMetadata], what is remembered by [maxRemembered].
package registry

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act/weburl"
)

// An Ecosystem is a kind of registry; its text is the prefix of a canonical package.
type Ecosystem string

// The ecosystems.
const (
	NPM    Ecosystem = "npm"
	PyPI   Ecosystem = "pypi"
	Cargo  Ecosystem = "cargo"
	Go     Ecosystem = "go"
	Debian Ecosystem = "debian"
)

// protocols are how each ecosystem is spoken.
var protocols = map[Ecosystem]protocol{NPM: npm{}, PyPI: pypi{}, Cargo: cargo{}, Go: golang{}, Debian: debian{}}

// Ecosystems returns all of them, in order.
func Ecosystems() []Ecosystem { return []Ecosystem{NPM, PyPI, Cargo, Go, Debian} }

// Known reports whether e is one of [Ecosystems].
func (e Ecosystem) Known() bool { return protocols[e] != nil }

// A Place is one registry: its ecosystem and the address that clients are set up with.
// Everything below the address belongs to it.
type Place struct {
	Ecosystem Ecosystem
	URL       weburl.URL // https, or http; without query
	// Files are hosts that serve nothing but files of this registry.
	Files []weburl.Host
}

// below returns the rest of u's path below p, without slash at its beginning.
func (p Place) below(u weburl.URL) (string, bool) {
	if u.Scheme != p.URL.Scheme || u.Host != p.URL.Host || u.Port != p.URL.Port {
		return "", false
	}
	rest, ok := strings.CutPrefix(u.Path, strings.TrimSuffix(p.URL.Path, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}

// A kind says what a request is for.
type kind uint8

const (
	refused  kind = iota // the zero kind: nothing goes out
	metadata             // what versions of a package there are
	artifact             // one file of one version
	passed               // what the client checks itself, or what names no package
	settings             // of an index: where its files are
	answered             // by us, with ask.answer
)

// An ask is what one request is for.
type ask struct {
	kind          kind
	name, version string // canonical, without the ecosystem
	why           string // of refused
	answer        string // of answered: JSON
	file          string // artifact: what it is remembered by
}

func refuse(format string, args ...any) ask { return ask{why: fmt.Sprintf(format, args...)} }

// A protocol is how one ecosystem is spoken.
type protocol interface {
	// read says what a request for the path below a place is for.
	read(method, path string) ask
	// versions reads metadata as it came from the registry.
	versions(h *Handler, t trip, a ask, header http.Header, body []byte) (page, error)
}

// A version is one version of a package, or one file of it, as metadata has it.
type version struct {
	name, version string
	published     time.Time // zero: unknown
	hash          hash      // zero: none
	file          string    // what an artifact of it is remembered by
	place         int       // in the page, for write
}

// A page is metadata that was read. write returns it without the versions withheld, as
// the client of header accepts it, and its media type.
type page interface {
	versions() []version
	write(withheld func(place int) bool, accept string) (body []byte, media string, err error)
}

// MaxMetadata is how many bytes the metadata of a package may have.
const MaxMetadata = 96 << 20

// A Handler serves requests for registries. Make it with [New].
type Handler struct {
	o     Options
	mu    sync.Mutex
	files map[string]known      // artifact → what metadata said
	order []string              // of files, oldest first
	hosts map[weburl.Host]Place // of files
	dl    map[weburl.URL]string // of an index of crates: the pattern of its files
}

// Options say which registries there are and how they are reached.
type Options struct {
	Places []Place
	// Upstream takes a request to the registry. It checks names and addresses, and
	// decides nothing.
	Upstream http.RoundTripper
	Now      func() time.Time // nil: the clock
}

// New returns a handler, or says which place cannot be one.
func New(o Options) (*Handler, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Handler{o: o, files: map[string]known{}, hosts: map[weburl.Host]Place{}, dl: map[weburl.URL]string{}}
	for _, p := range o.Places {
		if protocols[p.Ecosystem] == nil {
			return nil, fmt.Errorf("registry %s: %q is none of %v", p.URL, p.Ecosystem, Ecosystems())
		}
		if p.URL.Host.IsZero() || p.URL.Query != "" {
			return nil, fmt.Errorf("registry %s: no address, or one with a query", p.URL)
		}
		for _, f := range p.Files {
			h.hosts[f] = p
		}
	}
	return h, nil
}

// Host reports whether something at host is part of a registry, so that what is said to
// it has to be seen.
func (h *Handler) Host(host weburl.Host) bool {
	if h == nil {
		return false
	}
	if slices.ContainsFunc(h.o.Places, func(p Place) bool { return p.URL.Host == host }) {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.hosts[host]
	return ok
}

// find returns the registry that u is part of and the path below it; of several the one
// with the longest address.
func (h *Handler) find(u weburl.URL) (best Place, path string, ok bool) {
	for _, p := range h.o.Places {
		if rest, in := p.below(u); in && (!ok || len(p.URL.Path) > len(best.URL.Path)) {
			best, path, ok = p, rest, true
		}
	}
	if ok {
		return best, path, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	best, ok = h.hosts[u.Host]
	return best, "", ok
}

// Ecosystem is that of the registry at u, "" if none is there.
func (h *Handler) Ecosystem(u weburl.URL) Ecosystem {
	p, _, _ := h.find(u)
	return p.Ecosystem
}

// Serves reports whether a request for u is one for a registry.
func (h *Handler) Serves(u weburl.URL) bool {
	if h == nil {
		return false
	}
	_, _, ok := h.find(u)
	return ok
}
