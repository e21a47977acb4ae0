package strictjson

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// A Member is one member of an object; src[Start:End] is its value.
type Member struct {
	Name       string // decoded
	At         int    // where the quoted name starts
	Escaped    bool   // whether the name was written with escapes
	Start, End int
}

// maxMembers bounds an envelope, whose names are compared one by one.
const maxMembers = 64

// Members checks src, which must be one object, and returns its members in
// their order.
func Members(src []byte, l Limits) ([]Member, error) {
	l = l.orDefault()
	if out, ok := plainMembers(src, l); ok {
		return out, nil
	}
	if err := checkAny(src, l); err != nil {
		return nil, err
	}
	return members(src, false)
}

// Envelope is [Members] for texts whose inner values are not to be judged: the
// whole must be JSON in UTF-8 within the limits, and the names of src itself
// must differ and be at most 64; but within the values, duplicate names, lone
// surrogates, U+0000 and large numbers pass.
func Envelope(src []byte, l Limits) ([]Member, error) {
	l = l.orDefault()
	if out, ok := plainMembers(src, l); ok {
		return out, nil
	}
	if err := checkBytes(src, l); err != nil {
		return nil, err
	}
	if err := checkTokens(src, l, true); err != nil {
		return nil, err
	}
	return members(src, true)
}

// plainMembers reads an object that is plain. Those have less than maxMembers.
func plainMembers(src []byte, l Limits) ([]Member, bool) {
	out := make([]Member, 0, 8)
	depth := 0
	ok, err := plainly(src, l, func(ev event) error {
		switch {
		case depth == 0 && ev.kind != '{':
			return ErrType // for the decoder to say where
		case ev.kind == '{' || ev.kind == '[':
			if depth++; depth == 2 {
				out[len(out)-1].Start = ev.start
			}
		case ev.kind == '}' || ev.kind == ']':
			if depth--; depth == 1 {
				out[len(out)-1].End = ev.end
			}
		case depth > 1:
		case ev.name:
			out = append(out, Member{Name: string(ev.raw[1 : len(ev.raw)-1]), At: ev.start})
		default:
			out[len(out)-1].Start, out[len(out)-1].End = ev.start, ev.end
		}
		return nil
	})
	return out, ok && err == nil
}

func members(src []byte, lax bool) ([]Member, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(src), jsontext.AllowDuplicateNames(lax), jsontext.AllowInvalidUTF8(lax))
	if d.PeekKind() != '{' {
		if _, err := d.ReadValue(); err != nil {
			return nil, syntax(src, err)
		}
		return nil, refuse(src, 0, ErrType, "an object was expected")
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, syntax(src, err)
	}
	out := make([]Member, 0, 8)
	for d.PeekKind() != '}' {
		m, err := member(d, src)
		if err != nil {
			return nil, err
		}
		for i := range out {
			if lax && out[i].Name == m.Name {
				return nil, refuse(src, m.At, ErrDuplicate, fmt.Sprintf("%q", clip(m.Name)))
			}
		}
		if out = append(out, m); lax && len(out) > maxMembers {
			return nil, refuse(src, m.At, ErrSize, fmt.Sprintf("more than %d members", maxMembers))
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, syntax(src, err)
	}
	if err := checkEnd(src, int(d.InputOffset())); err != nil {
		return nil, err
	}
	return out, nil
}

func member(d *jsontext.Decoder, src []byte) (Member, error) {
	raw, err := d.ReadValue()
	if err != nil {
		return Member{}, syntax(src, err)
	}
	at := int(d.InputOffset()) - len(raw)
	m := Member{At: at, Escaped: bytes.IndexByte(raw, '\\') >= 0}
	if m.Name, err = Text(raw); err != nil {
		return Member{}, refuse(src, at, ErrSyntax, "in a member name")
	}
	value, err := d.ReadValue()
	if err != nil {
		return Member{}, syntax(src, err)
	}
	m.End = int(d.InputOffset())
	m.Start = m.End - len(value)
	return m, nil
}

// checkUTF8 returns where src stops being UTF-8.
func checkUTF8(src []byte) error {
	if utf8.Valid(src) {
		return nil
	}
	at := 0
	for at < len(src) {
		r, n := utf8.DecodeRune(src[at:])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		at += n
	}
	return refuse(src, at, ErrUTF8, "")
}
