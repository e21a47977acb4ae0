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
//	J1  A text that any function here but [Envelope] accepts is one JSON value
//	    in valid UTF-8 without byte order mark, duplicate names, lone surrogates,
//	    U+0000, numbers beyond a double, more than the allowed nesting or more
//	    than the allowed bytes.
//	J2  Names are compared as decoded strings, case-sensitively.
//	J3  No number is rounded: it stays text, or it is refused.
//	J4  Offsets are byte offsets into the text that was passed in.
//	J5  IsCanonical(x) holds exactly when Canonical(x) returns x.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
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
	ErrNumber    = errors.New("number is beyond the range of an IEEE 754 double, or not exact as one")
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
	if ok, _ := plainly(src, l, nil); ok {
		return nil
	}
	return checkAny(src, l)
}

// checkAny is [CheckLimits] for texts that are not plain.
func checkAny(src []byte, l Limits) error {
	if err := checkBytes(src, l); err != nil {
		return err
	}
	if err := checkTokens(src, l, false); err != nil {
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
	if ok, err := plainly(src, l, see); ok {
		return err
	}
	return scanAny(src, l, see)
}

// scanAny is scan for texts that are not plain.
func scanAny(src []byte, l Limits, see func(event) error) error {
	if err := checkBytes(src, l); err != nil {
		return err
	}
	if err := checkTokens(src, l, false); err != nil {
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
	return checkUTF8(src)
}

// checkTokens looks for deep nesting and, unless lax, for escaped NULs and for
// numbers beyond a double. It follows strings, brackets and numbers only: of a
// text that is JSON it knows them exactly, and any other is the decoder's to
// refuse.
func checkTokens(src []byte, l Limits, lax bool) error {
	depth, quoted := 0, false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			if !lax && bytes.HasPrefix(src[i:], []byte(`\u0000`)) {
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
		case !lax && (c == '-' || c >= '0' && c <= '9'):
			n := numberLen(src[i:])
			if !inRange(src[i : i+n]) {
				return refuse(src, i, ErrNumber, clip(string(src[i:i+n])))
			}
			i += n - 1
		}
	}
	return nil
}

// numberLen returns how many bytes at the start of b can be in a number.
func numberLen(b []byte) int {
	for i, c := range b {
		if (c < '0' || c > '9') && c != '.' && c != 'e' && c != 'E' && c != '-' && c != '+' {
			return i
		}
	}
	return len(b)
}

// inRange reports whether a number is within the range of a double. One that
// is none is the decoder's to refuse.
func inRange(raw []byte) bool {
	if len(raw) <= 300 && bytes.IndexByte(raw, 'e') < 0 && bytes.IndexByte(raw, 'E') < 0 {
		return true
	}
	_, err := strconv.ParseFloat(string(raw), 64)
	return !errors.Is(err, strconv.ErrRange)
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
