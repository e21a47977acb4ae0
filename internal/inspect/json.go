package inspect

import (
	"bytes"
	"encoding/json"
	"sort"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// isJSON reports whether content is one JSON value.
func isJSON(content []byte) bool {
	trimmed := bytes.TrimLeft(content, " \t\r\n")
	if len(trimmed) == 0 || bytes.IndexByte([]byte(`{["-0123456789tfn`), trimmed[0]) < 0 {
		return false
	}
	return json.Valid(content)
}

type tokenKind uint8

const (
	stringToken tokenKind = iota // start and end are those of the text between the quotes
	otherToken                   // number or literal
)

// A token is one string, number or literal of a JSON text.
type token struct {
	kind       tokenKind
	start, end int
	escaped    bool // a string with a backslash
}

// walk visits the tokens of valid JSON in order, until visit returns false.
func walk(content []byte, visit func(token) bool) {
	for i := 0; i < len(content); {
		switch content[i] {
		case ' ', '\t', '\r', '\n', ',', ':', '{', '}', '[', ']':
			i++
			continue
		}
		t := otherAt(content, i)
		next := t.end
		if content[i] == '"' {
			t = stringAt(content, i)
			next = t.end + 1
		}
		if !visit(t) {
			return
		}
		i = max(next, i+1)
	}
}

func stringAt(content []byte, quote int) token {
	t := token{kind: stringToken, start: quote + 1}
	for i := t.start; i < len(content); i++ {
		switch content[i] {
		case '"':
			t.end = i
			return t
		case '\\':
			t.escaped = true
			i++
		}
	}
	t.end = len(content) // not reached in valid JSON
	return t
}

func otherAt(content []byte, start int) token {
	end := start
	for end < len(content) && bytes.IndexByte([]byte(" \t\r\n,:{}[]\""), content[end]) < 0 {
		end++
	}
	return token{kind: otherToken, start: start, end: end}
}

// A view is a text to scan and how its offsets map to the content it is from.
type view struct {
	text    []byte
	steps   []step // in order; between steps offsets run in parallel
	scratch []byte // memory of text, to be used again
}

// A step is a place where text and content stop running in parallel: the bytes
// text[view:viewEnd] were written as content[raw:rawEnd].
type step struct{ view, viewEnd, raw, rawEnd int }

// decode returns the string t of content as a view, in the memory of scratch.
func decode(content []byte, t token, scratch []byte) view {
	v := view{steps: []step{{0, 0, t.start, t.start}}, scratch: scratch}
	if !t.escaped {
		v.text = content[t.start:t.end]
		return v
	}
	out := scratch
	for i := t.start; i < t.end; {
		if content[i] != '\\' {
			n := bytes.IndexByte(content[i:t.end], '\\')
			if n < 0 {
				n = t.end - i
			}
			out = append(out, content[i:i+n]...)
			i += n
			continue
		}
		r, n := unescape(content[i:t.end])
		s := step{view: len(out), raw: i, rawEnd: i + n}
		out = utf8.AppendRune(out, r)
		s.viewEnd = len(out)
		v.steps = append(v.steps, s)
		i += n
	}
	v.text, v.scratch = out, out
	return v
}

// unescape reads the escape at the start of b and returns its length.
func unescape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return utf8.RuneError, len(b)
	}
	switch b[1] {
	case 'n':
		return '\n', 2
	case 't':
		return '\t', 2
	case 'r':
		return '\r', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'u':
		r, n := hex4(b)
		if utf16.IsSurrogate(r) {
			if low, _ := hex4(b[n:]); utf16.DecodeRune(r, low) != utf8.RuneError {
				return utf16.DecodeRune(r, low), 2 * n
			}
			return utf8.RuneError, n
		}
		return r, n
	}
	return rune(b[1]), 2
}

// hex4 reads \uXXXX at the start of b.
func hex4(b []byte) (rune, int) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return utf8.RuneError, min(len(b), 2)
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 32)
	if err != nil {
		return utf8.RuneError, 6
	}
	return rune(n), 6
}

// A span is a range of bytes of the content.
type span struct{ start, end int }

// mapped maps a range of a view to the content. An escape is in the range as a
// whole or not at all.
func mapped(start, end int, steps []step) span {
	if len(steps) == 0 {
		return span{start, end}
	}
	first := at(start, steps)
	last := at(max(end-1, start), steps)
	return span{first.start, last.end}
}

// at maps one byte of a view.
func at(i int, steps []step) span {
	n := sort.Search(len(steps), func(k int) bool { return steps[k].view > i })
	s := steps[max(n-1, 0)]
	if i < s.viewEnd {
		return span{s.raw, s.rawEnd}
	}
	raw := s.rawEnd + i - s.viewEnd
	return span{raw, raw + 1}
}
