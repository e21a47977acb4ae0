package policy

import (
	"crypto/ed25519"
	"errors"
	"io/fs"

	"ringfence/internal/act"
)

var errSoon = errors.New("loading policy: not built into this binary")

// English returns c in controlled English.
func English(c Clause) string { return c.Text }

// A Bundle is the content of a policy directory.
type Bundle struct {
	Manifest    Manifest
	Clauses     []Clause
	Layer       Layer
	Annotations map[string]*Annotation // by name, those that override shipped ones
}

// A Manifest names every file of a bundle with its hash.
type Manifest struct {
	Format       int               `json:"format"`       // 1
	Compiler     string            `json:"compiler"`     // version of the program that wrote it
	Constitution string            `json:"constitution"` // hex SHA-256 of constitution.md
	Policy       string            `json:"policy"`       // hex SHA-256 of policy.cedar
	Files        map[string]string `json:"files"`        // path in the bundle to hex SHA-256
}

// Options say how a bundle is loaded. The zero value accepts no bundle.
type Options struct {
	Trusted       []ed25519.PublicKey // keys that may sign; one suffices
	AllowUnsigned bool                // a directory with policy.cedar alone, or no manifest
	Binding       Binding
	Layers        []Layer // those below the bundle, "organisation" first
}

// LoadBundle reads and checks the bundle in fsys and loads its policy together
// with the layers of o.
func LoadBundle(fsys fs.FS, o Options) (*Policy, *Bundle, error) { return nil, nil, errSoon }

// Seal returns files (path in the bundle to content) with manifest.json and
// manifest.sig added.
func Seal(files map[string][]byte, compiler string, key ed25519.PrivateKey) (map[string][]byte, error) {
	return nil, errSoon
}

// A Finding is what lint has to say about one clause.
type Finding struct {
	Clause  string
	Line    int
	Kind    string // "duplicate" "dead" "no-effect" "missing-list" "unknown-tool" "contradiction"
	Message string
	Other   string // the other clause, if two are concerned
}

// LintOptions are what lint knows besides the clauses.
type LintOptions struct {
	Lower bool     // the clauses are of a layer below the granting one
	Lists []string // names of lists that exist
	Tools []string // "server.tool" of every known tool; nil skips the check
}

// Lint returns findings in the order of the clauses.
func Lint(clauses []Clause, o LintOptions) []Finding { return nil }

var _ = act.Deny
