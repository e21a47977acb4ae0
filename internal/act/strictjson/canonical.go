package strictjson

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxExact is 2^53: up to it, every whole number is one double.
const maxExact = 1 << 53

// Canonical returns src in the form of RFC 8785 (JCS): members in the order of
// their UTF-16 code units, numbers as ECMAScript prints them, strings with the
// fewest escapes, no white space.
//
// JCS rounds numbers to doubles. Here a number is refused with [ErrNumber] if
// that would change its decimal value, or if its magnitude is above 2^53: two
// texts with the same canonical form then say the same thing.
func Canonical(src []byte) ([]byte, error) {
	return canonical(src, exact)
}

// CanonicalRounded is [Canonical] as RFC 8785 has it: numbers are rounded to
// doubles. Different texts can have the same rounded form; do not use it for what
// is signed.
func CanonicalRounded(src []byte) ([]byte, error) {
	return canonical(src, func([]byte) bool { return true })
}

func canonical(src []byte, accept func([]byte) bool) ([]byte, error) {
	if out, ok := plainCanonical(src); ok { // its numbers are accepted by both
		return out, nil
	}
	return canonicalAny(src, accept)
}

// canonicalAny is canonical for texts that are not plain.
func canonicalAny(src []byte, accept func([]byte) bool) ([]byte, error) {
	err := scan(src, Limits{}, func(ev event) error {
		if ev.kind == '0' && !accept(ev.raw) {
			return refuse(src, ev.start, ErrNumber, clip(string(ev.raw)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	v := jsontext.Value(bytes.Clone(src))
	if err := v.Canonicalize(); err != nil {
		return nil, syntax(src, err)
	}
	return v, nil
}

// exact reports whether raw keeps its decimal value in canonical form.
func exact(raw []byte) bool {
	if len(raw) <= 15 && digits(raw) {
		return true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(f) > maxExact {
		return false
	}
	var buf [32]byte
	return sameDecimal(raw, appendNumber(buf[:0], f))
}

// digits reports whether b is a plain integer, perhaps negative.
func digits(b []byte) bool {
	b = bytes.TrimPrefix(b, []byte{'-'})
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// appendNumber prints f as RFC 8785 §3.2.2.3 has it, which knows no -0.
func appendNumber(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	return jsontext.AppendFloat(dst, f, 64)
}

// sameDecimal reports whether two JSON numbers have the same decimal value.
func sameDecimal(a, b []byte) bool {
	negA, digitsA, expA := decimal(a)
	negB, digitsB, expB := decimal(b)
	if len(digitsA) == 0 || len(digitsB) == 0 {
		return len(digitsA) == len(digitsB) // zero, of either sign
	}
	return negA == negB && expA == expB && bytes.Equal(digitsA, digitsB)
}

// decimal takes a JSON number apart: its value is 0.d₁d₂d₃… × 10^exp, with
// neither d₁ nor the last digit zero. No digits mean zero. Exponents saturate.
func decimal(raw []byte) (neg bool, significand []byte, exp int) {
	raw, neg = bytes.CutPrefix(raw, []byte{'-'})
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		exp = exponent(raw[i+1:])
		raw = raw[:i]
	}
	whole, frac, _ := bytes.Cut(raw, []byte{'.'})
	exp += len(whole)
	all := append(append(make([]byte, 0, len(raw)), whole...), frac...)
	trimmed := bytes.TrimLeft(all, "0")
	exp -= len(all) - len(trimmed)
	return neg, bytes.TrimRight(trimmed, "0"), exp
}

func exponent(b []byte) int {
	const most = 1 << 30
	n, sign := 0, 1
	for _, c := range b {
		switch {
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9' && n < most/10:
			n = n*10 + int(c-'0')
		case c >= '0' && c <= '9':
			n = most
		}
	}
	return sign * n
}

// IsCanonical reports whether src is what [Canonical] would return for it. It
// allocates nothing and reads src once.
func IsCanonical(src []byte) bool {
	if len(src) > MaxSize {
		return false
	}
	c := canon{src: src}
	return c.value(0) && c.at == len(src)
}

// A canon reads canonical JSON, whose grammar is much smaller than that of JSON.
type canon struct {
	src []byte
	at  int
}

func (c *canon) value(depth int) bool {
	if c.at >= len(c.src) || depth > MaxDepth {
		return false
	}
	switch b := c.src[c.at]; b {
	case '{':
		return depth < MaxDepth && c.object(depth+1)
	case '[':
		return depth < MaxDepth && c.array(depth+1)
	case '"':
		_, ok := c.text()
		return ok
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	}
	return c.number()
}

func (c *canon) literal(s string) bool {
	if len(c.src)-c.at < len(s) || string(c.src[c.at:c.at+len(s)]) != s {
		return false
	}
	c.at += len(s)
	return true
}

// take consumes b if it comes next.
func (c *canon) take(b byte) bool {
	if c.at >= len(c.src) || c.src[c.at] != b {
		return false
	}
	c.at++
	return true
}

func (c *canon) object(depth int) bool {
	c.at++
	if c.take('}') {
		return true
	}
	var last []byte
	for first := true; ; first = false {
		name, ok := c.text()
		if !ok || !first && compareNames(last, name) >= 0 {
			return false
		}
		last = name
		if !c.take(':') || !c.value(depth) {
			return false
		}
		if c.take('}') {
			return true
		}
		if !c.take(',') {
			return false
		}
	}
}

func (c *canon) array(depth int) bool {
	c.at++
	if c.take(']') {
		return true
	}
	for {
		if !c.value(depth) {
			return false
		}
		if c.take(']') {
			return true
		}
		if !c.take(',') {
			return false
		}
	}
}

// text reads one canonical string and returns what is between its quotes.
func (c *canon) text() ([]byte, bool) {
	if !c.take('"') {
		return nil, false
	}
	start, ascii := c.at, true
	for {
		c.at += plainRun(c.src[c.at:])
		if c.at == len(c.src) {
			return nil, false
		}
		switch b := c.src[c.at]; {
		case b == '"':
			inner := c.src[start:c.at]
			c.at++
			return inner, ascii || utf8.Valid(inner)
		case b == '\\':
			n := escapeLen(c.src[c.at:])
			if n == 0 {
				return nil, false
			}
			c.at += n
		case b < 0x20:
			return nil, false
		default:
			ascii = false
			c.at++
		}
	}
}

// plainRun returns how many bytes at the start of b stand for themselves in a string:
// ASCII, and neither control characters nor quotation marks nor backslashes.
func plainRun(b []byte) (n int) {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote, back := x^ones*'"', x^ones*'\\'
		// The lowest bit is exact: a byte borrows from the next only if it is itself found.
		if odd := ((x-ones*0x20)&^x | (quote-ones)&^quote | (back-ones)&^back | x) & high; odd != 0 {
			return n + bits.TrailingZeros64(odd)/8
		}
	}
	for n < len(b) && b[n] >= 0x20 && b[n] < utf8.RuneSelf && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// escapeLen returns the length of the canonical escape at the start of b, 0 if
// there is none. U+0000 has none here.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case 'b', 't', 'n', 'f', 'r', '"', '\\':
		return 2
	case 'u':
	default:
		return 0
	}
	if len(b) < 6 || b[2] != '0' || b[3] != '0' {
		return 0
	}
	const short = "089acd" // NUL, and the characters that have a short form
	low := b[5]
	switch hex := low >= '0' && low <= '9' || low >= 'a' && low <= 'f'; {
	case hex && b[4] == '1':
		return 6
	case hex && b[4] == '0' && strings.IndexByte(short, low) < 0:
		return 6
	}
	return 0
}

func (c *canon) number() bool {
	start := c.at
	for c.at < len(c.src) && bytes.IndexByte([]byte("+-.0123456789e"), c.src[c.at]) >= 0 {
		c.at++
	}
	raw := c.src[start:c.at]
	if len(raw) == 0 || len(raw) > 25 { // no double prints longer
		return false
	}
	if n := len(raw); n <= 15 && digits(raw) {
		lead := raw[0]
		return lead != '-' && (lead != '0' || n == 1) || lead == '-' && raw[1] != '0'
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(f) > maxExact {
		return false
	}
	var buf [32]byte
	return bytes.Equal(appendNumber(buf[:0], f), raw)
}

// compareNames orders the insides of two canonical strings by UTF-16 code unit.
func compareNames(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for i < n && a[i] == b[i] && a[i] != '\\' {
		i++
	}
	if i == n {
		return len(a) - len(b)
	}
	if x, y := a[i], b[i]; x|y < utf8.RuneSelf && x != '\\' && y != '\\' {
		return int(x) - int(y)
	}
	for len(a) > 0 && len(b) > 0 {
		x, n := nameRune(a)
		y, m := nameRune(b)
		if x != y {
			return unit(x) - unit(y)
		}
		a, b = a[n:], b[m:]
	}
	return len(a) - len(b)
}

// nameRune decodes the first character of the inside of a canonical string.
func nameRune(b []byte) (r rune, n int) {
	if b[0] != '\\' {
		if b[0] < utf8.RuneSelf {
			return rune(b[0]), 1
		}
		return utf8.DecodeRune(b)
	}
	switch b[1] {
	case 'b':
		return '\b', 2
	case 't':
		return '\t', 2
	case 'n':
		return '\n', 2
	case 'f':
		return '\f', 2
	case 'r':
		return '\r', 2
	case 'u':
		hex := rune(b[5] - '0')
		if b[5] >= 'a' {
			hex = rune(b[5]-'a') + 10
		}
		return rune(b[4]-'0')<<4 | hex, 6
	}
	return rune(b[1]), 2
}

// unit maps characters to numbers that sort as their UTF-16 code units do: those
// beyond the basic plane start with a surrogate, below U+E000.
func unit(r rune) int {
	if r >= 0xE000 && r <= 0xFFFF {
		return int(r) + 0x110000
	}
	return int(r)
}
