// Package inspect looks at content on its way in and out: arguments of calls
// and results of tools. It finds secrets, known ones in any usual encoding and
// unknown ones by their shape, and signs that a text tries to steer a model or a
// terminal. It says what labels follow, and can replace secrets.
//
// A whole content is read as JSON where it is that; a [Stream] reads text as it comes.
//
// It is pure: no clock, no I/O, no randomness; the same bytes give the same
// findings. It decides nothing, and it is no proof of absence: a hostile sender
// can always encode a secret in a way that nobody looks for. The shapes of
// tokens are those that their issuers document.
//
// Invariants:
//
//	N1  No content makes it panic; time is linear in its length, and findings
//	    are bounded ([Findings.Whole]).
//	N2  After [Inspector.Redact] no registered secret is left, in plain or in any
//	    form of [forms], in the bytes or in any JSON string as decoded.
//	N3  What was valid JSON is valid JSON after Redact, with the same structure
//	    unless everything had to be withheld.
//	N4  Values of secrets are in no finding, no error and no text.
package inspect

import (
	"slices"

	"ringfence/internal/act"
)

// An Origin says where content comes from, which decides what labels follow.
type Origin uint8

// The origins.
const (
	Anywhere  Origin = iota // unknown: every label that could follow
	Arguments               // written by the agent
	Result                  // came back from a tool
)

// A Kind says what sort of thing a [Match] is.
type Kind string

// The kinds. The first two are replaced by Redact; the others are signs.
const (
	KnownSecret Kind = "known-secret" // a registered secret; Name is its name
	Token       Kind = "token"        // the shape of a credential; Name says which, "github-token"

	Escape    Kind = "terminal-escape" // moves the cursor, talks to the terminal; colours alone are none
	Hidden    Kind = "hidden-text"     // zero-width or tag characters where no script needs them
	Bidi      Kind = "bidi"            // explicit reordering
	Injection Kind = "injection"       // words addressed to a model
	Active    Kind = "active-data-url" // a data: URL that a reader may run
	Private   Kind = "private-data"    // a number of a card or an account, or of a person
	Suspect   Kind = "possible-secret" // what is assigned to a name of a secret, and looks random
)

// A Match is one passage: the bytes from Start up to End of the content.
type Match struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Kind  Kind   `json:"kind"`
	Name  string `json:"name"`
}

const (
	maxMatches = 4096
	maxSigns   = 32
)

// Findings are what a scan found.
type Findings struct {
	Labels  []act.Label // that follow from the content, without repetition
	Matches []Match     // passages to replace, in order, not overlapping; at most 4096
	Signs   []Match     // of the other kinds; at most 32, the first ones
	// Whole says that there were more matches than are kept: Redact withholds
	// everything.
	Whole bool

	json  bool    // the content is valid JSON
	spans []Match // raw matches, as found
}

// An Inspector scans content for a fixed set of secrets. The zero Inspector
// knows no secrets, only shapes. It is immutable and safe for concurrent use.
type Inspector struct {
	secrets matcher
}

// Scan is [Inspector.ScanFrom] for content of unknown origin.
func (in *Inspector) Scan(content []byte) Findings { return in.ScanFrom(content, Anywhere) }

// ScanFrom looks at content. Of valid JSON every string is read as decoded, so
// that an escaped secret is found; offsets are those of content itself.
func (in *Inspector) ScanFrom(content []byte, o Origin) Findings {
	f := Findings{json: isJSON(content)}
	s := &scan{in: in, f: &f, signs: o != Arguments, whole: true}
	if f.json {
		s.known(content, nil) // also what spans strings
		var name token        // the string before: of a member, its name
		walk(content, func(t token) bool {
			if t.kind == stringToken {
				s.text(decode(content, t, s.scratch[:0]))
				s.awsMember(content[name.start:name.end], content[t.start:t.end], t.start)
				name = t
			}
			return !f.Whole
		})
	} else {
		s.text(view{text: content})
	}
	f.Matches = merge(f.spans)
	f.Signs = unmatched(f.Signs, f.Matches)
	f.spans = nil
	f.label(s.private > 0)
	return f
}

// unmatched returns signs without what only might be a secret and is one of matches.
func unmatched(signs, matches []Match) []Match {
	return slices.DeleteFunc(signs, func(s Match) bool {
		at, _ := slices.BinarySearchFunc(matches, s.Start, func(m Match, start int) int { return m.End - start - 1 })
		return s.Kind == Suspect && at < len(matches) && matches[at].Start < s.End
	})
}

// label sets the labels that follow from what was found.
func (f *Findings) label(private bool) {
	f.Labels = nil
	suspect, untrusted := false, false
	for _, m := range f.Signs {
		suspect = suspect || m.Kind == Suspect
		private = private || m.Kind == Private
		untrusted = untrusted || m.Kind != Suspect && m.Kind != Private
	}
	if len(f.Matches) > 0 || f.Whole || suspect {
		f.Labels = append(f.Labels, act.LabelSecret)
	}
	if untrusted {
		f.Labels = append(f.Labels, act.LabelUntrusted)
	}
	if private {
		f.Labels = append(f.Labels, act.LabelPrivate)
	}
}

// sign keeps one sign, if there is room. Of what an agent wrote only what may not leave is
// one.
func (s *scan) sign(at span, k Kind, name string) {
	at.start, at.end = at.start+s.off, at.end+s.off
	if k == Private {
		s.private++
	}
	if (s.signs || k == Private || k == Suspect) && len(s.f.Signs) < maxSigns {
		s.f.Signs = append(s.f.Signs, Match{Start: at.start, End: at.end, Kind: k, Name: name})
	}
}

// merge orders matches and joins those that overlap. A known secret gives its
// name to what it is joined with.
func merge(ms []Match) []Match {
	slices.SortStableFunc(ms, func(a, b Match) int { return a.Start - b.Start })
	var out []Match
	for _, m := range ms {
		if n := len(out); n > 0 && m.Start < out[n-1].End {
			last := &out[n-1]
			last.End = max(last.End, m.End)
			if m.Kind == KnownSecret && last.Kind != KnownSecret {
				last.Kind, last.Name = m.Kind, m.Name
			}
			continue
		}
		out = append(out, m)
	}
	return out
}
