package strictjson

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A Kind says what a [Value] is.
type Kind byte

// The kinds of value, written as the first byte of their text.
const (
	Null   Kind = 'n'
	False  Kind = 'f'
	True   Kind = 't'
	String Kind = '"'
	Digits Kind = '0' // a number, whatever its first byte
	Object Kind = '{'
	Array  Kind = '['
)

// A Value is one value at its place in a text: src[Start:End] is Raw.
type Value struct {
	Pointer    string // RFC 6901, concrete: no wildcards
	Kind       Kind
	Start, End int
	Raw        []byte // part of the text that was passed in; do not modify
}

// Text returns the decoded string, or an error if v is not a string.
func (v Value) Text() (string, error) { return Text(v.Raw) }

// Walk checks src and then visits its leaves in the order of the text: every
// string, number and literal, and every object and array that is empty. It
// returns the first error of visit as it is.
func Walk(src []byte, visit func(Value) error) error {
	return WalkLimits(src, Limits{}, visit)
}

// WalkLimits is [Walk] with other bounds.
func WalkLimits(src []byte, l Limits, visit func(Value) error) error {
	l = l.orDefault()
	p := place{src: src}
	see := func(ev event) error {
		s, done, err := p.step(ev)
		if err != nil || !done {
			return err
		}
		if (s.kind == Object || s.kind == Array) && !p.empty {
			return nil
		}
		return visit(p.value(s))
	}
	if ok, err := plainly(src, l, see); ok {
		return err
	}
	if err := checkAny(src, l); err != nil {
		return err
	}
	return scanAny(src, l, see)
}

// Names checks src and then visits every member name in the order of the text.
// Pointer is that of the member; Start, End and Raw are the quoted name.
func Names(src []byte, visit func(Value) error) error {
	if err := Check(src); err != nil {
		return err
	}
	p := place{src: src}
	return scan(src, Limits{}, func(ev event) error {
		if _, _, err := p.step(ev); err != nil || !ev.name {
			return err
		}
		return visit(Value{Pointer: p.pointer(), Kind: String, Start: ev.start, End: ev.end, Raw: src[ev.start:ev.end]})
	})
}

// Values checks src and returns the values that pointer names, in the order of
// the text; none if there are none. The pointer is that of RFC 6901, and a
// token `*` stands for every element or member. In a token, `~2` is a literal
// asterisk. "" names the whole text.
func Values(src []byte, pointer string) ([]Value, error) {
	return ValuesLimits(src, Limits{}, pointer)
}

// ValuesLimits is [Values] with other bounds.
func ValuesLimits(src []byte, l Limits, pointer string) ([]Value, error) {
	want, err := parsePointer(pointer)
	if err != nil {
		return nil, err
	}
	var found []Value
	p := place{src: src}
	err = scan(src, l, func(ev event) error {
		s, done, err := p.step(ev)
		if err == nil && done && p.matches(want) {
			found = append(found, p.value(s))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b Value) int { return a.Start - b.Start })
	return found, nil
}

// Find checks src and returns the one value that pointer names. The boolean is
// false if there is none; more than one match of a wildcard is an error.
func Find(src []byte, pointer string) (Value, bool, error) {
	found, err := Values(src, pointer)
	switch {
	case err != nil || len(found) == 0:
		return Value{}, false, err
	case len(found) > 1:
		return Value{}, false, fmt.Errorf("finding %s: %d values match", clip(pointer), len(found))
	}
	return found[0], true, nil
}

type token struct {
	text string
	any  bool
}

// ErrPointer says that a pointer does not follow RFC 6901.
var ErrPointer = errors.New("not a JSON pointer")

func parsePointer(s string) ([]token, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, fmt.Errorf("%w: %q does not start with /", ErrPointer, clip(s))
	}
	parts := strings.Split(s[1:], "/")
	out := make([]token, len(parts))
	for i, part := range parts {
		for j := range len(part) {
			if part[j] == '~' && (j+1 == len(part) || part[j+1] < '0' || part[j+1] > '2') {
				return nil, fmt.Errorf("%w: %q has a ~ that is none of ~0, ~1, ~2", ErrPointer, clip(s))
			}
		}
		out[i] = token{text: unescape.Replace(part), any: part == "*"}
	}
	return out, nil
}

// The replacers read a text once from the left, as RFC 6901 §4 demands.
var (
	unescape = strings.NewReplacer("~0", "~", "~1", "/", "~2", "*")
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
)

// A level is one container that the walk is inside of.
type level struct {
	array bool
	index int    // of the current element; -1 before the first
	name  string // of the current member
	used  bool   // a value has been seen
	start int
}

// A place follows the events of a scan and knows where in the text they are.
type place struct {
	src   []byte
	stack []level
	empty bool // whether the container that step just closed was empty
}

// A seen is a value that ends.
type seen struct {
	kind       Kind
	start, end int
}

// step takes in one event. It reports done when the event ends a value, which
// is then the current one: pointer, value and matches speak of it.
func (p *place) step(ev event) (s seen, done bool, err error) {
	if ev.name {
		p.stack[len(p.stack)-1].name, err = Text(ev.raw)
		return s, false, err
	}
	switch ev.kind {
	case '{', '[':
		p.enter()
		p.stack = append(p.stack, level{array: ev.kind == '[', index: -1, start: ev.start})
		return s, false, nil
	case '}', ']':
		top := p.stack[len(p.stack)-1]
		p.stack = p.stack[:len(p.stack)-1]
		p.empty = !top.used
		kind := Object
		if top.array {
			kind = Array
		}
		return seen{kind, top.start, ev.end}, true, nil
	}
	p.enter()
	return seen{Kind(ev.kind), ev.start, ev.end}, true, nil
}

func (p *place) enter() {
	if len(p.stack) == 0 {
		return
	}
	top := &p.stack[len(p.stack)-1]
	top.used = true
	top.index++
}

func (p *place) value(s seen) Value {
	return Value{Pointer: p.pointer(), Kind: s.kind, Start: s.start, End: s.end, Raw: p.src[s.start:s.end:s.end]}
}

func (p *place) pointer() string {
	var b []byte
	for _, l := range p.stack {
		b = append(b, '/')
		if l.array {
			b = strconv.AppendInt(b, int64(l.index), 10)
			continue
		}
		b = append(b, escape.Replace(l.name)...)
	}
	return string(b)
}

func (p *place) matches(want []token) bool {
	if len(want) != len(p.stack) {
		return false
	}
	for i, w := range want {
		l := p.stack[i]
		switch {
		case w.any:
		case l.array && strconv.Itoa(l.index) != w.text:
			return false
		case !l.array && l.name != w.text:
			return false
		}
	}
	return true
}

// An Edit replaces the bytes from Start up to End by New.
type Edit struct {
	Start, End int
	New        []byte
}

// Splice returns src with the edits made; src stays as it is, and so does every
// byte outside the edits. Edits may come in any order. Edits that overlap or lie
// outside src are an error. Splice does not look at what New holds.
func Splice(src []byte, edits []Edit) ([]byte, error) {
	sorted := slices.Clone(edits)
	slices.SortStableFunc(sorted, func(a, b Edit) int { return a.Start - b.Start })
	size, at := len(src), 0
	for _, e := range sorted {
		if e.Start < at || e.End < e.Start || e.End > len(src) {
			return nil, fmt.Errorf("splicing: edit %d to %d does not fit between %d and %d", e.Start, e.End, at, len(src))
		}
		at = e.End
		size += len(e.New) - (e.End - e.Start)
	}
	out := make([]byte, 0, size)
	at = 0
	for _, e := range sorted {
		out = append(out, src[at:e.Start]...)
		out = append(out, e.New...)
		at = e.End
	}
	return append(out, src[at:]...), nil
}

// Text decodes one JSON string with its quotes. It refuses what [Check] refuses
// in a string, and anything that is not exactly one string.
func Text(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", refuse(raw, 0, ErrType, "a string was expected")
	}
	// Most strings hold no escape, and those need no decoder.
	if inner := raw[1 : len(raw)-1]; raw[len(raw)-1] == '"' && plain(inner) {
		return string(inner), nil
	}
	if err := Check(raw); err != nil {
		return "", err
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", syntax(raw, err)
	}
	return string(b), nil
}

// plain reports whether b can stand between quotes and mean itself.
func plain(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
	}
	return utf8.Valid(b)
}

// Quote returns s as a JSON string in its canonical form (RFC 8785 §3.2.2.2). It
// refuses invalid UTF-8 and U+0000.
func Quote(s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, refuse([]byte(s), 0, ErrUTF8, "")
	}
	if i := strings.IndexByte(s, 0); i >= 0 {
		return nil, refuse([]byte(s), i, ErrNUL, "")
	}
	return jsontext.AppendQuote(make([]byte, 0, len(s)+2), s)
}

// Escape returns s as one token of a pointer for [Values]; an asterisk in it
// stands for itself.
func Escape(s string) string {
	if s == "*" {
		return "~2"
	}
	return escape.Replace(s)
}
