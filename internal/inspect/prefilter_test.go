package inspect

import (
	"bytes"
	"testing"
)

// TestPrefilter: nothing that begins as a form does is passed over, wherever it stands.
func TestPrefilter(t *testing.T) {
	forms := map[*prefilter][]string{
		markFilter(): {"\x00", "\x1b[", "\x7f", "\u0080", "\u009f", "\u180e", "\u200b", "\u202e", "\u2069", "\ufeff", "\U0001f3f4", "\U000e0067", "\U000e01ef", "1234", "DE89"},
		fullFilter(): {"\x1b[", "\U0001f3f4", "4111", "GB82"},
	}
	for _, s := range shapes {
		forms[tokenFilter()] = append(forms[tokenFilter()], s.prefix)
	}
	for _, s := range specials {
		forms[tokenFilter()] = append(forms[tokenFilter()], s.prefix)
	}
	for _, p := range phrases {
		for _, f := range []*prefilter{markFilter(), fullFilter()} {
			forms[f] = append(forms[f], p.text, string(bytes.ToUpper([]byte(p.text))))
		}
	}
	for p, fs := range forms {
		for _, form := range fs {
			for at := range 24 {
				text := append(bytes.Repeat([]byte(" "), at), form+"                "[:16-at%16]...)
				for from := range at + 1 {
					if n := p.next(text, from); n > at {
						t.Fatalf("%q at %d is passed over from %d: %d", form, at, from, n)
					}
				}
			}
		}
		if n := p.next(bytes.Repeat([]byte("of it "), 100), 0); n < 590 {
			t.Errorf("stops at ordinary text: %d", n)
		}
	}
}
