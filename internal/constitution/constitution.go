// Package constitution turns the English of a constitution into typed clauses
// and a policy, without a model: the same text gives the same policy, in
// milliseconds. The English it knows is written down in docs/constitution.md.
//
// It decides nothing: what clauses mean for a call is the business of package
// policy. It does not guess either: a sentence that it does not understand is an
// error with its line, never a weaker or a wider rule.
//
// Invariants:
//
//	C1  Every sentence ends as clauses that are enforced, as advice that is
//	    listed as such, or as an error.
//	C2  Where a word can be read narrowly and widely, a permission takes the
//	    narrow and a restriction the wide reading.
//	C3  What is written to a bundle has decided its own scenarios correctly, in
//	    the form in which it was written.
//	C4  A bundle is replaced whole; the last good one stays until the new one is
//	    verified.
//	C5  No input makes it panic or take more than linear time in the number of
//	    sentences.
package constitution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/policy"
)

// A Severity says how much a [Finding] matters.
type Severity string

// The severities. Only a Failure stops a bundle from being made.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Failure Severity = "error"
)

// A Finding is something to know about one place of a constitution.
type Finding struct {
	Line       int      `json:"line"`   // 1-based
	Column     int      `json:"column"` // 1-based, in bytes
	Severity   Severity `json:"severity"`
	Message    string   `json:"message"`
	Suggestion string   `json:"suggestion,omitempty"` // the nearest thing that is understood
	Clause     string   `json:"clause,omitempty"`     // the id of the clause it is about
}

// An Errors is everything that is wrong with a constitution, by line.
type Errors struct { //nolint:errname // it is all errors of a document
	Name     string // of the source
	Findings []Finding
}

// Error returns one line for each finding: "name:line:column: message (try:
// suggestion)".
func (e *Errors) Error() string {
	var b strings.Builder
	for i, f := range e.Findings {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s", e.Name, f.Line, f.Column, f.Message)
		if f.Suggestion != "" {
			fmt.Fprintf(&b, " (try: %s)", f.Suggestion)
		}
	}
	return b.String()
}

// A Source is one constitution.
type Source struct {
	Name  string // for messages: a file name
	Text  []byte // markdown, UTF-8, at most 256 KiB
	Layer string // "" for the layer that grants; else the name of a layer below it
}

// Options say what a constitution is compiled for. The zero value compiles a
// layer that only narrows, with no lists.
type Options struct {
	Granting bool                   // the layer permits nothing by itself; else it permits by default
	Lists    map[string]policy.List // by name, without @; a list that is not here matches nothing
	Tools    []string               // "server.tool" of every known tool; nil knows none and checks none
	Personas []string               // names that may be subjects; nil checks none
	// NoScenarios leaves scenarios out, for text whose scenarios have passed
	// before: that of the shipped constitutions. [Write] makes and runs them.
	NoScenarios bool
}

// A Compiled is what a constitution became.
type Compiled struct {
	Source    Source
	Granting  bool
	Clauses   []policy.Clause // in document order, advice included
	Cedar     []byte
	Lists     map[string]policy.List // those that the clauses name and that exist
	Findings  []Finding              // by line; none is a Failure
	Scenarios []Scenario             // none with NoScenarios
}

// Bounds on one document.
const (
	maxClauses     = 3000
	maxFindings    = 1000
	maxComplements = 64 // each "any other" repeats what the clauses before it name
)

// A compiler holds what is known while a document is read.
type compiler struct {
	src      Source
	opts     Options
	lines    []int // offsets at which lines begin
	findings []Finding
	drafts   []draft
	ordinal  int
	known    *surroundings
}

// surroundings are what sentences can refer to, and what reading one has cost.
type surroundings struct {
	last   []object // what the statement before was about: what "them" means
	inside bool     // that statement is in the same sentence
	work   int      // steps taken so far for the sentence
}

// Compile reads a constitution. The error is an [*Errors] that names everything
// that is wrong, by line.
func Compile(src Source, opts Options) (*Compiled, error) {
	c := &compiler{src: src, opts: opts, known: &surroundings{}}
	c.lines = lineStarts(src.Text)
	report := func(s Severity, at int, format string, args ...any) { c.report(s, at, "", format, args...) }
	if checkText(src.Text, report) {
		s := &segmenter{src: src.Text, report: report}
		for _, u := range s.unitsOf(s.blockUp()) {
			if c.unit(u); len(c.drafts) > maxClauses || len(c.findings) > maxFindings {
				c.fail(u.toks[0].at, "", "a constitution has at most %d rules, and its mistakes are listed up to here", maxClauses)
				break
			}
		}
		c.complete()
	}
	if err := c.errors(); err != nil {
		return nil, err
	}
	out := &Compiled{Source: src, Granting: opts.Granting, Lists: map[string]policy.List{}}
	for _, d := range c.drafts {
		out.Clauses = append(out.Clauses, d.Clause)
	}
	var err error
	if out.Cedar, err = policy.Cedar(out.Clauses, opts.Granting); err != nil {
		return nil, c.inexpressible(out, err)
	}
	c.lists(out)
	c.lint(out)
	if err := c.errors(); err != nil {
		return nil, err
	}
	out.Findings = c.sorted()
	if opts.NoScenarios {
		return out, nil
	}
	out.Scenarios = scenarios(out)
	if err := verify(out); err != nil {
		return nil, err
	}
	return out, nil
}

// inexpressible returns err, which says that a clause cannot be written as a
// policy, with the places of the clauses it is about.
func (c *compiler) inexpressible(out *Compiled, err error) error {
	for i := range out.Clauses {
		cl := &out.Clauses[i]
		if _, err := policy.Cedar(out.Clauses[i:i+1], out.Granting); err != nil {
			c.fail(c.offset(cl), "", "this cannot be enforced: %v", err)
		}
	}
	if found := c.errors(); found != nil {
		return found
	}
	return fmt.Errorf("writing the policy of %s: %w", c.src.Name, err)
}

func (c *compiler) sorted() []Finding {
	slices.SortStableFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return c.findings
}

func (c *compiler) errors() error {
	var bad []Finding
	for _, f := range c.sorted() {
		if f.Severity == Failure {
			bad = append(bad, f)
		}
	}
	if bad == nil {
		return nil
	}
	return &Errors{Name: c.src.Name, Findings: bad}
}

func lineStarts(text []byte) []int {
	starts := []int{0}
	for i, b := range text {
		if b == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// position returns line and column of an offset.
func (c *compiler) position(at int) (line, column int) {
	i, exact := slices.BinarySearch(c.lines, at)
	if !exact {
		i--
	}
	return i + 1, at - c.lines[i] + 1
}

func (c *compiler) report(s Severity, at int, clause, format string, args ...any) *Finding {
	line, column := c.position(at)
	c.findings = append(c.findings, Finding{Line: line, Column: column, Severity: s, Clause: clause, Message: fmt.Sprintf(format, args...)})
	return &c.findings[len(c.findings)-1]
}

func (c *compiler) fail(at int, hint, format string, args ...any) {
	c.report(Failure, at, "", format, args...).Suggestion = hint
}
