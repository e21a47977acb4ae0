package attach

import (
	"testing"

	"pgregory.net/rapid"
)

// TestModes: what a program leaves switched on is switched off, and on again; the rest is
// left alone.
func TestModes(t *testing.T) {
	for wrote, want := range map[string]string{
		"":                                "|",
		"plain \x1b[31mred\x1b[0m":        "|",
		"\x1b[?1049h\x1b[?25l\x1b[?2004h": "\x1b[?25l\x1b[?1049h\x1b[?2004h|\x1b[?2004l\x1b[?1049l\x1b[?25h\x1b[0m",
		"\x1b[?1049h\x1b[?1049l":          "|",
		"\x1b[?1000;1006h":                "\x1b[?1000h\x1b[?1006h|\x1b[?1006l\x1b[?1000l\x1b[0m",
		"\x1b[?25l\x1b[?25h":              "|",
		"\x1b[>1u":                        "\x1b[>1u|\x1b[<1u\x1b[0m",
		"\x1b[>1u\x1b[<u":                 "|",
		"\x1b[=31;1u":                     "\x1b[=31u|\x1b[=0u\x1b[0m",
		"\x1b[=8;2u\x1b[=1;2u\x1b[=8;3u":  "\x1b[=1u|\x1b[=0u\x1b[0m",
		"\x1b[=u":                         "|",
		"\x1b[>4;2m":                      "\x1b[>4;2m|\x1b[>4m\x1b[0m",
		"\x1b[>4;2m\x1b[>4m":              "|",
		"\x1b[?7h\x1b[?12h":               "|",
		"\x1b[?10\x1b[?49h":               "|",
	} {
		var m modes
		m.feed([]byte(wrote))
		if got := string(m.on()) + "|" + string(m.off()); got != want {
			t.Errorf("%q: %q, want %q", wrote, got, want)
		}
	}
}

// TestModesInPieces: in whatever pieces it comes, it is the same; and what switches on makes
// another terminal the same, from which off leaves nothing.
func TestModesInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h", "\x1b[?1002;1006h", "\x1b[?2004l", "\x1b[>1u", "\x1b[<u", "\x1b[=5u", "\x1b[>4;2m", "x", "\x1b", "[", "?", "9", ";", "h"})).Draw(t, "parts")
		var whole []byte
		for _, p := range parts {
			whole = append(whole, p...)
		}
		var one, many modes
		one.feed(whole)
		for len(whole) > 0 {
			n := rapid.IntRange(1, len(whole)).Draw(t, "n")
			many.feed(whole[:n])
			whole = whole[n:]
		}
		if string(one.on()) != string(many.on()) {
			t.Fatalf("%q in one piece, %q in many", one.on(), many.on())
		}
		var again modes
		again.feed(one.on())
		if string(again.off()) != string(one.off()) {
			t.Fatalf("%q, and %q for who comes later", one.off(), again.off())
		}
		again.feed(again.off())
		if len(again.on()) > 0 {
			t.Fatalf("%q is left", again.on())
		}
	})
}
