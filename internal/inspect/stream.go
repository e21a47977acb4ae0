package inspect

import (
	"errors"
	"slices"
)

// A Redaction says what a [Stream] replaces.
type Redaction uint8

// The redactions.
const (
	Nothing Redaction = iota // it only looks, and holds nothing back
	Known                    // registered secrets
	All                      // and tokens known by their shape
)

// A Stream is a scan of content that comes in pieces. It finds what [Inspector.ScanFrom]
// finds in content that is not JSON, however the pieces are cut, and keeps no more than
// the longest thing that it looks for (N1): 64 KiB and a piece.
//
// It may hold back the end of a piece as long as what follows can make it a part of
// something that is replaced, and no longer: what cannot be is returned at once. It is not
// safe for concurrent use.
type Stream struct {
	in   *Inspector
	mode Redaction

	buf                  []byte // of the content from off on
	off                  int
	known, tokens, marks int // how far each pass has decided, in buf
	emitted              int // how much of buf was returned
	pending              []masked
	out                  []byte

	s        scan
	f        Findings
	redacted int
	ended    bool
}

// A masked is a match that is to be replaced.
type masked struct {
	Match
	mask string
}

// lookBehind is how many bytes before a place the passes look at.
const lookBehind = 32

// Errors for errors.Is.
var (
	ErrEnded = errors.New("the stream has ended")
	// ErrTooMany: what is left cannot be replaced. It must not go on.
	ErrTooMany = errors.New("there is too much in it that looks like a secret")
)

// Stream returns a scan of content from o, of which r is replaced.
func (in *Inspector) Stream(o Origin, r Redaction) *Stream {
	st := &Stream{in: in, mode: r}
	st.s = scan{in: in, f: &st.f, signs: o != Arguments}
	return st
}

// Push takes the next piece, and returns what may go on, which is valid until the next
// call. The piece is not kept.
func (st *Stream) Push(piece []byte) ([]byte, error) {
	if st.ended {
		return nil, ErrEnded
	}
	st.buf = append(st.buf, piece...)
	waits := st.s.wait != 0 && len(st.buf) < st.s.wanted && run(piece, st.s.wait, len(piece)) == len(piece)
	st.scan(!waits)
	if st.mode == Nothing {
		st.drop()
		return piece, nil
	}
	if st.mode == All && st.f.Whole {
		return nil, ErrTooMany
	}
	out := st.emit()
	st.drop()
	return out, nil
}

// End says that nothing follows, and returns the rest.
func (st *Stream) End() ([]byte, error) {
	if st.ended {
		return nil, ErrEnded
	}
	st.ended, st.s.whole = true, true
	st.scan(true)
	if st.mode == Nothing {
		return nil, nil
	}
	if st.mode == All && st.f.Whole {
		return nil, ErrTooMany
	}
	return st.emit(), nil
}

// Findings returns what was found so far; after End it is all. Matches are the first 4096.
func (st *Stream) Findings() Findings {
	f := st.f
	f.Signs = slices.Clone(f.Signs)
	f.Matches = merge(slices.Clone(f.spans))
	f.Signs = unmatched(f.Signs, f.Matches)
	f.spans = nil
	f.label(st.s.private > 0)
	return f
}

// Redacted is how many passages were replaced so far.
func (st *Stream) Redacted() int { return st.redacted }

// scan takes each pass as far as it can decide; that for credentials only if it can get
// any further.
func (st *Stream) scan(credentials bool) {
	s := &st.s
	s.off = st.off
	st.known = st.in.secrets.find(st.buf, st.known, s.whole, func(start, end int, p *pattern) bool {
		st.found(Match{Start: start, End: end, Kind: KnownSecret, Name: p.name}, p.mask)
		return true
	})
	before := len(st.f.spans)
	if credentials {
		s.wait, s.wanted = 0, 0
		st.tokens = s.credentials(view{text: st.buf}, st.tokens)
	}
	if st.mode == All {
		for _, m := range st.f.spans[before:] {
			m.Start, m.End = m.Start-st.off, m.End-st.off
			st.pending = append(st.pending, masked{Match: m})
		}
	}
	st.marks = s.marks(view{text: st.buf}, st.marks)
}

// found keeps a registered secret. Findings are bounded; what is replaced is not.
func (st *Stream) found(m Match, mask string) {
	st.s.add(m)
	if st.mode != Nothing {
		st.pending = append(st.pending, masked{m, mask})
	}
}

// emit returns what is decided and was not returned, with its matches replaced.
func (st *Stream) emit() []byte {
	limit := st.known
	if st.mode == All {
		limit = min(limit, st.tokens)
	}
	if !st.s.whole && st.in.secrets.bits != nil {
		// Characters before the inner part of a base64 text belong to it.
		for n := 0; n < narrow && limit > st.emitted && is(st.buf[limit-1], base64Char); n++ {
			limit--
		}
	}
	st.out = st.out[:0]
	joined := join(st.pending)
	for len(joined) > 0 && joined[0].Start < limit {
		m := joined[0]
		if m.End > limit {
			limit = m.Start
			break
		}
		st.out = append(st.out, st.buf[st.emitted:m.Start]...)
		st.out = append(st.out, m.mask...)
		st.emitted = m.End
		st.redacted++
		joined = joined[1:]
	}
	st.pending = joined
	if limit > st.emitted {
		st.out = append(st.out, st.buf[st.emitted:limit]...)
		st.emitted = limit
	}
	return st.out
}

// join is merge for what is replaced.
func join(ms []masked) []masked {
	slices.SortStableFunc(ms, func(a, b masked) int { return a.Start - b.Start })
	out := ms[:0]
	for _, m := range ms {
		if m.mask == "" {
			m.mask = marker(m.Match)
		}
		if n := len(out); n > 0 && m.Start < out[n-1].End {
			last := &out[n-1]
			last.End = max(last.End, m.End)
			if m.Kind == KnownSecret && last.Kind != KnownSecret {
				last.Kind, last.Name, last.mask = m.Kind, m.Name, m.mask
			}
			continue
		}
		out = append(out, m)
	}
	return out
}

// drop forgets what nothing looks at any more.
func (st *Stream) drop() {
	least := min(st.known, st.tokens, st.marks)
	if st.mode != Nothing {
		least = min(least, st.emitted)
	}
	n := least - lookBehind
	if n < len(st.buf)/2 || n <= 0 {
		return
	}
	st.buf = st.buf[:copy(st.buf, st.buf[n:])]
	st.off += n
	st.known, st.tokens, st.marks, st.emitted = st.known-n, st.tokens-n, st.marks-n, st.emitted-n
	for i := range st.pending {
		st.pending[i].Start -= n
		st.pending[i].End -= n
	}
	if st.s.wanted > 0 {
		st.s.wanted -= n
	}
}

// Contains reports whether a registered secret is in b, in any of its forms.
func (in *Inspector) Contains(b []byte) (name string, found bool) {
	in.secrets.find(b, 0, true, func(_, _ int, p *pattern) bool {
		name, found = p.name, true
		return false
	})
	return name, found
}

// Mask returns b with every registered secret in it replaced by its mask.
func (in *Inspector) Mask(b []byte) []byte {
	if _, found := in.Contains(b); !found {
		return b
	}
	st := in.Stream(Anywhere, Known)
	out, err := st.Push(b)
	out = append([]byte(nil), out...)
	rest, rerr := st.End()
	if err != nil || rerr != nil {
		return []byte(withheld)
	}
	return append(out, rest...)
}
