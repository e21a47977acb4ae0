package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A Secret is a value that must not be seen.
type Secret struct {
	Name  string // shown in place of the value: 1 to 64 of a-z, 0-9, '.', '_', '-'
	Value []byte // 8 bytes to 16 KiB
	Mask  string // what a [Stream] puts in the place of the value; "[redacted:name]" if ""
}

// Bounds of a registered secret, and of how many there can be. Below minSecret
// bytes a value occurs by chance.
const (
	minSecret  = 8
	maxSecret  = 16 << 10
	maxSecrets = 1024
)

// ErrSecret says that a value cannot be registered, and why. Rotate it to one
// that can.
var ErrSecret = errors.New("secret cannot be looked for")

var nameForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9._-]{1,64}$`)
})

// New returns an inspector that knows secrets. The values are copied. The
// error, ErrSecret, names the secret and not its value.
func New(secrets []Secret) (*Inspector, error) {
	if len(secrets) > maxSecrets {
		return nil, fmt.Errorf("%w: %d of them, at most %d", ErrSecret, len(secrets), maxSecrets)
	}
	in := &Inspector{}
	for _, s := range secrets {
		switch {
		case !nameForm().MatchString(s.Name):
			return nil, fmt.Errorf("%w: name %q: want 1 to 64 of a-z 0-9 . _ -", ErrSecret, s.Name)
		case len(s.Value) < minSecret || len(s.Value) > maxSecret:
			return nil, fmt.Errorf("%w: %s has %d bytes; below %d it cannot be told from other text, and it has at most %d", ErrSecret, s.Name, len(s.Value), minSecret, maxSecret)
		case bytes.Contains([]byte(`"`+withheld+`"`), s.Value):
			return nil, fmt.Errorf("%w: %s is part of the text %s", ErrSecret, s.Name, withheld)
		}
		for _, f := range forms(s.Value) {
			in.secrets.insert(f, s.Name, s.Mask)
		}
	}
	in.secrets.finish()
	return in, nil
}

// A form is one way in which a secret is written.
type form struct {
	text   string
	base64 bool // the inner part of a base64 text; what touches it belongs to it
}

// forms returns value as it is and as it is usually encoded: hexadecimal,
// base64 (both alphabets, at each of the three alignments within a larger
// text), percent encoding, HTML and JSON escapes.
func forms(value []byte) []form {
	v := string(value)
	fs := []form{{text: v}}
	add := func(text string) { fs = append(fs, form{text: text}) }

	add(hex.EncodeToString(value))
	add(strings.ToUpper(hex.EncodeToString(value)))
	for _, esc := range []string{url.QueryEscape(v), url.PathEscape(v)} {
		add(esc)
		add(lowerPercent().ReplaceAllStringFunc(esc, strings.ToLower))
	}
	add(html.EscapeString(v))
	if quoted, err := json.Marshal(v); err == nil {
		inner := string(quoted[1 : len(quoted)-1])
		add(inner)
		bare := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(inner)
		add(bare)
		add(strings.ReplaceAll(bare, "/", `\/`))
	}
	for shift := range 3 {
		padded := append(make([]byte, shift), value...)
		// The characters whose six bits are all the secret's.
		first, last := (8*shift+5)/6, 8*len(padded)/6
		fs = append(fs,
			form{text: base64.RawStdEncoding.EncodeToString(padded)[first:last], base64: true},
			form{text: base64.RawURLEncoding.EncodeToString(padded)[first:last], base64: true})
	}
	return fs
}

var lowerPercent = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`%[0-9A-F]{2}`)
})

// A matcher finds any of many patterns of at least minSecret bytes in one pass. It looks
// at the eight bytes that begin at each position: a bit set rejects almost all, a map
// holds the patterns that begin so. More is compared only as far as a sender knows a
// secret, so time is linear.
type matcher struct {
	bits    []uint64   // 1<<bitsLog bits, nil without patterns
	filter  *prefilter // nil: there are too many
	begin   map[uint64][]pattern
	partial map[string]struct{} // what is shorter than eight bytes, and begins a pattern
}

type pattern struct {
	text   []byte
	name   string
	mask   string
	base64 bool
}

const bitsLog = 16

func beginning(b []byte) uint64 { return binary.LittleEndian.Uint64(b[:minSecret]) }

// slot spreads a beginning over the bit set (Fibonacci hashing).
func slot(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - bitsLog) }

func (m *matcher) insert(f form, name, mask string) {
	if m.bits == nil {
		m.bits = make([]uint64, 1<<bitsLog/64)
		m.begin, m.partial = map[uint64][]pattern{}, map[string]struct{}{}
	}
	p := pattern{text: []byte(f.text), name: name, mask: mask, base64: f.base64}
	key := beginning(p.text)
	if slices.ContainsFunc(m.begin[key], func(o pattern) bool { return bytes.Equal(o.text, p.text) }) {
		return
	}
	m.begin[key] = append(m.begin[key], p)
	s := slot(key)
	m.bits[s/64] |= 1 << (s % 64)
	for n := 1; n < minSecret; n++ {
		m.partial[f.text[:n]] = struct{}{}
	}
}

// maxFiltered is how many patterns are few enough for a prefilter: with more it would pass
// over too little.
const maxFiltered = 64

// finish orders patterns with one beginning so that the longest is found.
func (m *matcher) finish() {
	few := len(m.begin) > 0 && len(m.begin) <= maxFiltered
	if few {
		m.filter = &prefilter{}
	}
	for _, ps := range m.begin {
		slices.SortFunc(ps, func(a, b pattern) int { return len(b.text) - len(a.text) })
		if few {
			m.filter.text(string(ps[0].text[:minSecret]), false)
		}
	}
	if few {
		m.filter.finish()
	}
}

// next is [prefilter.next], if there is a filter.
func (m *matcher) next(text []byte, i int) int {
	if m.filter == nil {
		return i
	}
	return m.filter.next(text, i)
}

// find calls found for the longest pattern that begins at each position, the first of
// them from, until it returns false. It returns the first position at which a pattern could begin
// that more text would complete: the end, if whole says that there is no more.
func (m *matcher) find(text []byte, from int, whole bool, found func(start, end int, p *pattern) bool) int {
	if m.bits == nil {
		return len(text)
	}
	for i := m.next(text, from); i+minSecret <= len(text); i = m.next(text, i+1) {
		key := beginning(text[i:])
		if s := slot(key); m.bits[s/64]&(1<<(s%64)) == 0 {
			continue
		}
		for k := range m.begin[key] {
			p := &m.begin[key][k]
			if len(p.text) > len(text)-i {
				if !whole && bytes.HasPrefix(p.text, text[i:]) {
					return i
				}
				continue
			}
			if !bytes.HasPrefix(text[i:], p.text) {
				continue
			}
			start, end := i, i+len(p.text)
			if p.base64 {
				if !whole && len(text)-end < widest && run(text[end:], base64Char, widest) == len(text)-end {
					return i
				}
				start, end = widen(text, start, end)
			}
			if !found(start, end, p) {
				return len(text)
			}
			break
		}
	}
	if whole {
		return len(text)
	}
	for i := max(from, len(text)-minSecret+1); i < len(text); i++ {
		if _, ok := m.partial[string(text[i:])]; ok {
			return i
		}
	}
	return len(text)
}

// widest is how many characters after a base64 text can belong to it, narrow how many
// before it.
const (
	widest = 4
	narrow = 2
)

// widen takes in the characters around an inner part of a base64 text that hold
// some bits of the secret, and padding.
func widen(text []byte, start, end int) (int, int) {
	for n := 0; n < narrow && start > 0 && is(text[start-1], base64Char); n++ {
		start--
	}
	for n := 0; n < widest && end < len(text) && is(text[end], base64Char); n++ {
		end++
	}
	return start, end
}
