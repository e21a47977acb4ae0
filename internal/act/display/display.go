// Package display makes text safe to show. It shows everything, and changes nothing
// for a machine: what encodes or compares text does not use it.
//
// Invariants:
//
//	T1  No character of the result does anything to a terminal but line feed and tab.
package display

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s as a terminal may get it: line feeds and tabs are obeyed, every other
// character without a shape is written as \u{…}, and a byte that is not UTF-8 as \x{…}.
func Text(s string) string { return show(s, acts) }

// Line is [Text] for what stands in a line with other text, such as the name of a file:
// line feeds and tabs are written as well, so that it cannot begin a line of its own.
func Line(s string) string {
	return show(s, func(r rune) bool { return r == '\n' || r == '\t' || acts(r) })
}

func show(s string, acts func(rune) bool) string {
	if strings.IndexFunc(s, acts) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x{%02x}`, s[0])
		case acts(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// acts reports whether a terminal might do something else than show r.
func acts(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
