package display

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nc é 漢": "a\tb\nc é 漢", "\x1b[2J": `\u{1b}[2J`, "\xff": `\x{ff}`, "\u202e": `\u{202e}`, "\ufffd": "\ufffd", "": "",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got, want := Line("a\tb\nc\x1b é"), `a\u{9}b\u{a}c\u{1b} é`; got != want {
		t.Errorf("in a line: %q, want %q", got, want)
	}
}

// TestT1: whatever comes in.
func TestT1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "in"))
		out := Text(in)
		if strings.IndexFunc(out, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) >= 0 || Text(out) != out {
			t.Fatalf("%q became %q", in, out)
		}
	})
}
