// Package inspect looks at content on its way in and out: arguments of calls
// and results of tools. It finds secrets, known ones in any usual encoding and
// unknown ones by their shape, and signs that a text tries to steer a model or a
// terminal. It says what labels follow, and can replace secrets.
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
	Signs   []Match     // of Escape, Hidden, Bidi, Injection; at most 32, the first ones
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
	s := &scan{in: in, f: &f, signs: o != Arguments}
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
	f.spans = nil
	if len(f.Matches) > 0 || f.Whole {
		f.Labels = append(f.Labels, act.LabelSecret)
	}
	if len(f.Signs) > 0 {
		f.Labels = append(f.Labels, act.LabelUntrusted)
	}
	return f
}

// A scan is one scan under way.
type scan struct {
	in      *Inspector
	f       *Findings
	signs   bool
	scratch []byte
	noEnd   int // matchPEM: no block that begins before here has an end
}

// text scans one text, decoded if it was a JSON string.
func (s *scan) text(v view) {
	s.scratch = v.scratch
	s.known(v.text, v.steps)
	s.shapes(v)
}

// known looks for registered secrets.
func (s *scan) known(text []byte, steps []step) {
	s.in.secrets.find(text, func(start, end int, name string) bool {
		return s.add(mapped(start, end, steps), KnownSecret, name)
	})
}

// add keeps one match. It reports whether the scan should go on.
func (s *scan) add(at span, k Kind, name string) bool {
	if len(s.f.spans) >= maxMatches {
		s.f.Whole = true
		return false
	}
	s.f.spans = append(s.f.spans, Match{Start: at.start, End: at.end, Kind: k, Name: name})
	return true
}

// sign keeps one sign, if there is room.
func (s *scan) sign(at span, k Kind, name string) {
	if s.signs && len(s.f.Signs) < maxSigns {
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
