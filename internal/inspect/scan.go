package inspect

import (
	"bytes"
	"sync"
)

// triggers is what stops a pass over a text: the first two bytes of whatever it looks
// for, those of phrases in either case.
type triggers struct {
	bits  [1 << 16 / 64]uint64
	first [256]bool // bytes with which a pair begins
}

func pair(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

func (t *triggers) set(a, b byte) {
	p := pair(a, b)
	t.bits[p/64] |= 1 << (p % 64)
	t.first[a] = true
}

func (t *triggers) has(p uint16) bool { return t.bits[p/64]&(1<<(p%64)) != 0 }

// A tokenTable is what the pass for credentials looks for.
type tokenTable struct {
	triggers
	shapes   map[uint16][]shape
	specials map[uint16][]special
}

// tokens is made when it is first needed: most starts of this program scan nothing.
var tokens = sync.OnceValue(func() *tokenTable {
	t := &tokenTable{shapes: map[uint16][]shape{}, specials: map[uint16][]special{}}
	for _, s := range shapes {
		p := pair(s.prefix[0], s.prefix[1])
		t.set(s.prefix[0], s.prefix[1])
		t.shapes[p] = append(t.shapes[p], s)
	}
	for _, s := range specials {
		p := pair(s.prefix[0], s.prefix[1])
		t.set(s.prefix[0], s.prefix[1])
		t.specials[p] = append(t.specials[p], s)
	}
	return t
})

// A scan is one scan under way: of a whole content, or of the part of a stream that is
// not decided yet.
type scan struct {
	in      *Inspector
	f       *Findings
	signs   bool
	scratch []byte

	whole   bool // nothing follows the text
	off     int  // where the text begins in the content
	private int  // private data found
	// What has to come before the pass for credentials need look again: a byte that is
	// not of wait, or so many that the text has wanted bytes.
	wait   class
	wanted int

	runs  []classReach
	slugs [3]reach // of the parts of a JWT
	armor reach    // of the text of a key
	foot  reach    // from a place to the next line that ends a key
}

// A reach is how far what was looked for goes from one place on, so that it need not be
// gone again from each place within.
type reach struct{ from, to int }

// A classReach is how far the run of a class goes.
type classReach struct {
	class
	reach
}

// run returns the reach of c; there are few classes.
func (s *scan) run(c class) *reach {
	for i := range s.runs {
		if s.runs[i].class == c {
			return &s.runs[i].reach
		}
	}
	s.runs = append(s.runs, classReach{class: c})
	return &s.runs[len(s.runs)-1].reach
}

// end is where the run of c from text[i] on ends, no later than most bytes from there.
func (r *reach) end(text []byte, i int, c class, most int) int {
	if i < r.from || i >= r.to {
		*r = reach{i, i}
	}
	if r.to < i+most {
		r.to += run(text[r.to:], c, i+most-r.to)
	}
	return min(r.to, i+most)
}

// until says that a match is not decided before a byte comes that is not of c, or the
// text has n bytes; where nothing follows there is none.
func (s *scan) until(c class, n int) verdict {
	if s.whole {
		return no
	}
	s.wait, s.wanted = c, n
	return more
}

// text scans one text, decoded if it was a JSON string.
func (s *scan) text(v view) {
	s.scratch = v.scratch
	s.known(v.text, v.steps)
	s.credentials(v, 0)
	s.marks(v, 0)
}

// known looks for registered secrets.
func (s *scan) known(text []byte, steps []step) {
	s.in.secrets.find(text, 0, true, func(start, end int, p *pattern) bool {
		at := mapped(start, end, steps)
		return s.add(Match{Start: at.start, End: at.end, Kind: KnownSecret, Name: p.name})
	})
}

// add keeps one match. It reports whether the scan should go on.
func (s *scan) add(m Match) bool {
	if len(s.f.spans) >= maxMatches {
		s.f.Whole = true
		return false
	}
	m.Start, m.End = m.Start+s.off, m.End+s.off
	s.f.spans = append(s.f.spans, m)
	return true
}

// credentials looks for tokens, beginning at from. It returns the place at which one could
// begin that more text would decide, else the end.
func (s *scan) credentials(v view, from int) int {
	text, t, filter := v.text, tokens(), tokenFilter()
	s.runs, s.slugs, s.armor, s.foot = s.runs[:0], [3]reach{}, reach{}, reach{}
	for i := from; i < len(text); {
		i = filter.next(text, i)
		if i+1 == len(text) {
			if !s.whole && t.first[text[i]] {
				s.until(0, 0)
				return i
			}
			break
		}
		p := pair(text[i], text[i+1])
		if !t.has(p) {
			i++
			continue
		}
		switch m, v := s.at(v, i, t, p); v {
		case more:
			return i
		case yes:
			i = m
		default:
			i++
		}
		if s.f.Whole {
			break
		}
	}
	return len(text)
}

// at looks for the token that begins at text[i]; end is where it does.
func (s *scan) at(v view, i int, t *tokenTable, p uint16) (end int, found verdict) {
	for _, sh := range t.shapes[p] {
		start := 0
		if found = s.prefixed(v.text[i:], sh.prefix); found == yes {
			start, end, found = sh.match(s, v.text, i)
		}
		if found != no {
			return end, s.token(v, start, end, found, sh.name)
		}
	}
	for _, sp := range t.specials[p] {
		start := 0
		if found = s.prefixed(v.text[i:], sp.prefix); found == yes {
			start, end, found = sp.match(s, v.text, i)
		}
		if found != no {
			return end, s.token(v, start, end, found, sp.name)
		}
	}
	return 0, no
}

// token keeps what was found, if it was.
func (s *scan) token(v view, start, end int, found verdict, name string) verdict {
	if found == yes {
		at := mapped(start, end, v.steps)
		s.add(Match{Start: at.start, End: at.end, Kind: Token, Name: name})
	}
	return found
}

// prefixed reports whether rest begins with prefix, as far as it goes.
func (s *scan) prefixed(rest []byte, prefix string) verdict {
	switch {
	case hasPrefix(rest, prefix):
		return yes
	case len(rest) < len(prefix) && bytes.HasPrefix([]byte(prefix), rest):
		return s.until(0, 0)
	}
	return no
}

func hasPrefix(text []byte, prefix string) bool {
	return len(text) >= len(prefix) && string(text[:len(prefix)]) == prefix
}
