package desk

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many combining marks in a row are shown as they are. More
// would pile up over neighbouring lines.
const maxMarks = 2

// plain reports whether r looks like itself on a terminal: it has a shape, moves
// nothing, hides nothing and changes the order of nothing.
func plain(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return r >= ' ' && r != 0x7f
	case r >= 0x2400 && r <= 0x243f: // pictures of controls: ours alone
		return false
	case blank(r):
		return false
	}
	// Marks, letters, numbers, punctuation, symbols. Left out: every control,
	// format (bidi, zero-width, tag), surrogate, private and unassigned code
	// point, every space but U+0020, line and paragraph separators.
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}

// blank reports whether r is assigned and no space, and still shows nothing:
// fillers, the empty Braille cell, the grapheme joiner, variation selectors.
func blank(r rune) bool {
	switch r {
	case 0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x2800, 0x3164, 0xffa0:
		return true
	}
	return r >= 0x180b && r <= 0x180f || r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef
}

// Visible returns s as one line that shows every character of it. Controls
// become their pictures (ESC is ␛, line feed is ␊), other characters without a
// shape \u{202e}, bytes that are not UTF-8 \x{ff}. A backslash that would make
// text look like such an escape is itself escaped, so no two texts look alike
// for that reason. (Letters that resemble each other are not told apart.)
//
// A result longer than max bytes keeps its beginning and its end, and says in
// the middle how many bytes of s are left out; it may exceed max by that
// note. max below 32 counts as 32.
func Visible(s string, max int) string {
	if max < 32 {
		max = 32
	}
	head, used := visible(s, max)
	if used == len(s) {
		return head
	}
	head, used = visible(s, max*3/4)
	tail, start := visibleTail(s[used:], max/4)
	if start == 0 {
		return head + tail
	}
	return fmt.Sprintf("%s…[%d bytes left out]…%s", head, start, tail)
}

// visible renders s from its beginning, at most max bytes of result, and says
// how many bytes of s that took.
func visible(s string, max int) (text string, used int) {
	var b strings.Builder
	marks := 0
	for used < len(s) {
		piece, n := show(s[used:], &marks)
		if b.Len()+len(piece) > max {
			break
		}
		b.WriteString(piece)
		used += n
	}
	return b.String(), used
}

// visibleTail renders the end of s, at most max bytes of result, and says where
// in s it starts.
func visibleTail(s string, max int) (text string, start int) {
	start = len(s)
	for start > 0 && len(s)-start < max {
		_, n := utf8.DecodeLastRuneInString(s[:start])
		start -= n
	}
	for ; ; start++ {
		if start < len(s) && !utf8.RuneStart(s[start]) {
			continue
		}
		if text, used := visible(s[start:], max); used == len(s)-start {
			return text, start
		}
	}
}

// show renders the first character of s, which is not empty, and returns its
// length. marks counts combining marks since the last other character.
func show(s string, marks *int) (piece string, n int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		*marks = maxMarks
		return fmt.Sprintf(`\x{%02x}`, s[0]), 1
	}
	if unicode.Is(unicode.M, r) {
		*marks++
		if *marks > maxMarks {
			return fmt.Sprintf(`\u{%x}`, r), n
		}
	} else {
		*marks = 0
	}
	switch {
	case r < ' ':
		return string(0x2400 + r), n
	case r == 0x7f:
		return "␡", n
	case r == '\\' && (strings.HasPrefix(s[1:], "u{") || strings.HasPrefix(s[1:], "x{")):
		return `\u{5c}`, n
	case !plain(r):
		return fmt.Sprintf(`\u{%x}`, r), n
	}
	return s[:n], n
}

// JSON returns v as one line of JSON in which every character without a shape
// of its own is escaped, so that it may be printed on a terminal. Its value is
// that of json.Marshal.
func JSON(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return EscapeJSON(raw), nil
}

// EscapeJSON returns valid JSON without line feeds in which every character
// without a shape of its own is escaped. Its value is that of raw.
func EscapeJSON(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		switch {
		case plain(r):
			out = append(out, raw[:n]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		raw = raw[n:]
	}
	return out
}
