package inspect

import (
	"math"
	"math/bits"
	"strings"
	"sync"
)

// A prefilter tells quickly where in a text nothing begins that a pass looks for. It looks
// at a window of four bytes at every second place: for each place in the window a table
// says of a byte which buckets of forms have it there, and a bucket that has all four may
// hold one that begins in the window or the byte before. (The method is that of the Teddy
// search of Hyperscan, without vectors.)
//
// It errs to one side: what it passes over is the beginning of nothing.
type prefilter struct {
	// Thirty-two buckets for each place in the window: the first and third, and the second
	// and fourth.
	even, odd [256]uint64
	buckets   [32][window]byteSet
}

// window is the length of a window, in bytes.
const window = 4

// A byteSet is a set of bytes.
type byteSet [4]uint64

func (b *byteSet) join(o byteSet) {
	for w := range b {
		b[w] |= o[w]
	}
}

func (b *byteSet) add(c byte) { b[c/64] |= 1 << (c % 64) }
func (b *byteSet) size() (n int) {
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

func (b *byteSet) has(c byte) bool { return b[c/64]&(1<<(c%64)) != 0 }

// setOf is the set of the bytes for which in holds.
func setOf(in func(c byte) bool) (b byteSet) {
	for c := range 256 {
		if in(byte(c)) {
			b.add(byte(c))
		}
	}
	return b
}

var (
	anyByte = setOf(func(byte) bool { return true })
	digit   = setOf(func(c byte) bool { return is(c, digitChar) })
	upper   = setOf(func(c byte) bool { return is(c, upperChar) })
)

func oneOf(chars string) byteSet {
	return setOf(func(c byte) bool { return strings.IndexByte(chars, c) >= 0 })
}

// add takes in a form by the sets of its first bytes, for wherever it begins in regard of
// windows.
func (p *prefilter) add(form ...byteSet) {
	p.put(form)
	if len(form) > window {
		p.put(form[1:])
	} else {
		p.put(append([]byteSet{anyByte}, form...))
	}
}

// put takes in what can be in a window, into the bucket in which it lets fewest others
// through.
func (p *prefilter) put(at []byteSet) {
	for len(at) < window {
		at = append(at, anyByte)
	}
	best, least := 0, math.Inf(1)
	for k, b := range p.buckets {
		before, after := 1.0, 1.0
		for i := range window {
			before *= float64(b[i].size())
			b[i].join(at[i])
			after *= float64(b[i].size())
		}
		if after-before < least {
			best, least = k, after-before
		}
	}
	for i := range window {
		p.buckets[best][i].join(at[i])
	}
}

// text takes in a form by its first characters, which each may be in either case if fold is
// set.
func (p *prefilter) text(prefix string, fold bool) {
	var form []byteSet
	for i := range min(len(prefix), window+1) {
		set := oneOf(prefix[i : i+1])
		if fold {
			for _, c := range cases(prefix[i]) {
				set.add(c)
			}
		}
		form = append(form, set)
	}
	p.add(form...)
}

// finish makes the tables.
func (p *prefilter) finish() *prefilter {
	for k := range p.buckets {
		for i := range window {
			t := &p.even
			if i%2 == 1 {
				t = &p.odd
			}
			for c := range 256 {
				if p.buckets[k][i].has(byte(c)) {
					t[c] |= 1 << (32*(i/2) + k)
				}
			}
		}
	}
	return p
}

// next returns a place from i on before which nothing begins: one where something may, or
// one that only few bytes follow.
func (p *prefilter) next(text []byte, i int) int {
	const step = 4 * 2 // four windows
	first := i
	if i+2 > len(text) {
		return first
	}
	a := p.even[text[i]] & p.odd[text[i+1]]
	for ; i+2+step <= len(text); i += step {
		w := text[i+2 : i+2+step : i+2+step]
		b := p.even[w[0]] & p.odd[w[1]]
		c := p.even[w[2]] & p.odd[w[3]]
		d := p.even[w[4]] & p.odd[w[5]]
		e := p.even[w[6]] & p.odd[w[7]]
		q, r, s, t := a&(b>>32), b&(c>>32), c&(d>>32), d&(e>>32)
		if uint32(q|r|s|t) != 0 {
			switch {
			case uint32(q) != 0:
			case uint32(r) != 0:
				i += 2
			case uint32(s) != 0:
				i += 4
			default:
				i += 6
			}
			break
		}
		a = e
	}
	return max(first, i-1)
}

// tokenFilter is the prefilter of the pass for credentials.
var tokenFilter = sync.OnceValue(func() *prefilter {
	p := &prefilter{}
	for _, short := range []bool{true, false} {
		for _, s := range shapes {
			if len(s.prefix) < window == short {
				p.text(s.prefix, false)
			}
		}
		for _, s := range specials {
			if len(s.prefix) < window == short {
				p.text(s.prefix, false)
			}
		}
	}
	return p.finish()
})

// markFilter is the prefilter of the pass for signs.
var markFilter = sync.OnceValue(func() *prefilter {
	p := &prefilter{}
	p.add(setOf(func(c byte) bool { return (c < ' ' || c == 0x7f) && c != '\t' && c != '\n' && c != '\r' }))
	p.add(oneOf("\xc2"), setOf(func(c byte) bool { return 0x80 <= c && c <= 0x9f })) // U+0080
	p.add(oneOf("\xe1"), oneOf("\xa0"))                                              // U+180E
	p.add(oneOf("\xe2"), oneOf("\x80\x81"))                                          // U+200B to 2069
	p.add(oneOf("\xef"), oneOf("\xbb"))                                              // U+FEFF
	p.add(oneOf("\xf3"), oneOf("\xa0"))                                              // U+E0000
	markForms(p)
	return p.finish()
})

// fullFilter is that of the same pass when no more signs are kept: what remains is what is
// counted, and what is passed over as a whole.
var fullFilter = sync.OnceValue(func() *prefilter {
	p := &prefilter{}
	p.add(oneOf("\x1b"))
	markForms(p)
	return p.finish()
})

func markForms(p *prefilter) {
	for _, short := range []bool{true, false} {
		for _, ph := range phrases {
			if len(ph.text) < window == short {
				p.text(ph.text, true)
			}
		}
	}
	p.add(oneOf("\xf0"), oneOf("\x9f"), oneOf("\x8f"), oneOf("\xb4")) // U+1F3F4
	p.add(digit, digit, digit, digit)
	p.add(upper, upper, digit, digit)
}
