// Package strictjson reads JSON that strangers wrote. It accepts one reading of
// a text or none: what it passes, every other decoder understands in the same
// way, and what two decoders could understand differently it refuses.
//
// It is not a serialiser, and it holds no schema. Values are found by their
// place in the original bytes, so that a caller can change one of them and leave
// every other byte as it came.
//
// Invariants:
//
//	J1  A text that any function here accepts is one JSON value in valid UTF-8
//	    without byte order mark, duplicate names, lone surrogates, U+0000, more
//	    than the allowed nesting or more than the allowed bytes.
//	J2  Names are compared as decoded strings, case-sensitively.
//	J3  No number is rounded: it stays text, or it is refused.
//	J4  Offsets are byte offsets into the text that was passed in.
//	J5  IsCanonical(x) holds exactly when Canonical(x) returns x.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The bounds that apply where a caller names no others.
const (
	MaxSize  = 16 << 20 // bytes
	MaxDepth = 64       // nested objects and arrays
)

// Limits are bounds on a text. A zero field means the constant of its name.
type Limits struct {
	Size  int // bytes, [MaxSize] if 0
	Depth int // nested objects and arrays, [MaxDepth] if 0
}

func (l Limits) orDefault() Limits {
	if l.Size <= 0 {
		l.Size = MaxSize
	}
	if l.Depth <= 0 {
		l.Depth = MaxDepth
	}
	return l
}

// Why a text is refused; every [Error] wraps one of them.
var (
	ErrSyntax    = errors.New("not JSON")
	ErrTruncated = errors.New("the text ends inside a value")
	ErrTrailing  = errors.New("something follows the value")
	ErrUTF8      = errors.New("not valid UTF-8")
	ErrSurrogate = errors.New("a \\u escape is half of a surrogate pair")
	ErrNUL       = errors.New("U+0000 is not allowed")
	ErrBOM       = errors.New("a byte order mark is not allowed")
	ErrDuplicate = errors.New("duplicate member name")
	ErrDepth     = errors.New("nested too deeply")
	ErrSize      = errors.New("too large")
	ErrNumber    = errors.New("number is not exact as an IEEE 754 double")
	ErrUnknown   = errors.New("unknown member")
	ErrType      = errors.New("wrong type")
)

// An Error says where a text is refused and why.
type Error struct {
	Offset  int    // bytes from the start of the text
	Line    int    // from 1
	Column  int    // from 1, in bytes
	Pointer string // RFC 6901 pointer to the nearest value, may be ""
	Detail  string // what was found, may be ""
	Err     error  // one of the sentinels above
	lines   bool   // whether line and column are shown instead of the offset
}

// Error returns the place and the reason on one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.lines {
		fmt.Fprintf(&b, "%d:%d: ", e.Line, e.Column)
	} else {
		fmt.Fprintf(&b, "offset %d: ", e.Offset)
	}
	b.WriteString(e.Err.Error())
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

// Unwrap returns the sentinel.
func (e *Error) Unwrap() error { return e.Err }

func refuse(src []byte, offset int, reason error, detail string) *Error {
	offset = max(0, min(offset, len(src)))
	before := src[:offset]
	return &Error{
		Offset: offset,
		Line:   1 + bytes.Count(before, []byte{'\n'}),
		Column: offset - bytes.LastIndexByte(before, '\n'),
		Detail: detail,
		Err:    reason,
	}
}

// Check returns nil if src is acceptable within the default limits, and an
// [*Error] otherwise.
func Check(src []byte) error { return CheckLimits(src, Limits{}) }

// CheckLimits is [Check] with other bounds.
func CheckLimits(src []byte, l Limits) error {
	l = l.orDefault()
	if err := checkBytes(src, l); err != nil {
		return err
	}
	if err := checkNesting(src, l); err != nil {
		return err
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(src))
	if _, err := d.ReadValue(); err != nil {
		return syntax(src, err)
	}
	return checkEnd(src, int(d.InputOffset()))
}

// An event is one step through a text.
type event struct {
	name       bool // a member name; otherwise a scalar or one end of a container
	kind       byte // first byte of the token: " 0 t f n { } [ ]
	start, end int
	raw        []byte // names and scalars only; valid during the call
}

// scan checks src and shows each of its tokens to see. It stops at the first
// error of see and returns it as it is.
func scan(src []byte, l Limits, see func(event) error) error {
	l = l.orDefault()
	if err := checkBytes(src, l); err != nil {
		return err
	}
	if err := checkNesting(src, l); err != nil {
		return err
	}
	// A bytes.Buffer is read in place, without a copy.
	d := jsontext.NewDecoder(bytes.NewBuffer(src))
	for first := true; first || d.StackDepth() > 0; first = false {
		ev, err := next(d, src)
		if err != nil {
			return err
		}
		if err := see(ev); err != nil {
			return err
		}
	}
	return checkEnd(src, int(d.InputOffset()))
}

func checkEnd(src []byte, end int) error {
	if rest := bytes.TrimLeft(src[end:], " \t\r\n"); len(rest) > 0 {
		return refuse(src, len(src)-len(rest), ErrTrailing, "")
	}
	return nil
}

// checkBytes judges what needs no grammar.
func checkBytes(src []byte, l Limits) error {
	if len(src) > l.Size {
		return refuse(src[:l.Size], l.Size, ErrSize, fmt.Sprintf("%d bytes, at most %d", len(src), l.Size))
	}
	if bytes.HasPrefix(src, []byte("\xef\xbb\xbf")) {
		return refuse(src, 0, ErrBOM, "")
	}
	if i := bytes.IndexByte(src, 0); i >= 0 {
		return refuse(src, i, ErrNUL, "")
	}
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

// checkNesting looks for deep nesting and escaped NULs. It follows strings and
// brackets only: of a text that is JSON it knows both exactly, and of any other
// it may know neither, which the decoder then refuses.
func checkNesting(src []byte, l Limits) error {
	depth, quoted := 0, false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			if bytes.HasPrefix(src[i:], []byte(`\u0000`)) {
				return refuse(src, i, ErrNUL, "")
			}
			i++
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > l.Depth {
				return refuse(src, i, ErrDepth, fmt.Sprintf("at most %d levels", l.Depth))
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func next(d *jsontext.Decoder, src []byte) (event, error) {
	var ev event
	switch k := d.PeekKind(); k {
	case '{', '[', '}', ']':
		if _, err := d.ReadToken(); err != nil {
			return ev, syntax(src, err)
		}
		ev.kind, ev.end = byte(k), int(d.InputOffset())
		ev.start = ev.end - 1
		return ev, nil
	default:
		raw, err := d.ReadValue()
		if err != nil {
			return ev, syntax(src, err)
		}
		ev.kind, ev.raw, ev.end = byte(k), raw, int(d.InputOffset())
		ev.start = ev.end - len(raw)
		if k != '"' {
			return ev, nil
		}
		in, n := d.StackIndex(d.StackDepth())
		ev.name = in == '{' && n%2 == 1
		return ev, nil
	}
}

// syntax turns an error of the decoder into one of ours.
func syntax(src []byte, err error) error {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return refuse(src, len(src), ErrTruncated, "")
	}
	offset, reason, detail := int(s.ByteOffset), ErrSyntax, s.Err.Error()
	switch {
	case errors.Is(s.Err, jsontext.ErrDuplicateName):
		reason, detail = ErrDuplicate, fmt.Sprintf("%q", clip(s.JSONPointer.LastToken()))
	case strings.Contains(detail, "surrogate"):
		reason, detail = ErrSurrogate, ""
	case strings.Contains(detail, "unexpected EOF"):
		offset, reason, detail = len(src), ErrTruncated, ""
	}
	e := refuse(src, offset, reason, detail)
	e.Pointer = string(s.JSONPointer)
	return e
}

// clip keeps messages short whatever a stranger used as a name.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
