package policy

import (
	"ringfence/internal/act"
)

// English returns c in controlled English.
func English(c Clause) string { return c.Text }

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
