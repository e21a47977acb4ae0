package inspect

import (
	"bytes"
	"unicode/utf8"
)

// A phrase is words that address a model rather than a reader, in lower case.
// then, if any, are words of which one of each row must follow nearby.
type phrase struct {
	text string
	then [][]string
}

// nearby is how many bytes after a phrase the words of then may stand.
const nearby = 64

var (
	earlier = []string{"previous", "prior", "above", "earlier", "preceding", "existing", "all ", "any ", "your ", "system"}
	orders  = []string{"instruction", "prompt", "directive", "guideline", "rules"}
)

// phrases are the first, literal form of this detection: what published attacks
// say. A text that merely talks about instructions does not say it.
var phrases = []phrase{
	{"ignore ", [][]string{earlier, orders}},
	{"disregard ", [][]string{earlier, orders}},
	{"forget ", [][]string{earlier, orders}},
	{"override ", [][]string{earlier, orders}},
	{"reveal ", [][]string{{"system prompt", "hidden instructions", "initial instructions"}}},
	{"do not tell the user", nil},
	{"don't tell the user", nil},
	{"do not inform the user", nil},
	{"do not mention this to the user", nil},
	{"without telling the user", nil},
	{"without informing the user", nil},
	{"without asking the user", nil},
	{"new instructions:", nil},
	{"new system prompt", nil},
	{"message to the ai", nil},
	{"attention ai", nil},
	{"if you are an ai", nil},
	{"if you are a language model", nil},
	{"as an ai agent, you must", nil},
	{"you are now in developer mode", nil},
	{"<important>", nil},
	{"<system>", nil},
	{"</tool_result>", nil},
	{"</function_results>", nil},
	{"<|im_start|>", nil},
	{"<|im_end|>", nil},
	{"<|system|>", nil},
	{"[inst]", nil},
	{"<<sys>>", nil},
}

// hasPhrase reports whether p is at text[i], and where it ends.
func hasPhrase(text []byte, i int, p phrase) (end int, ok bool) {
	if i > 0 && is(p.text[0], alnum) && !begins(text, i) || !hasFold(text[i:], p.text) {
		return 0, false
	}
	end = i + len(p.text)
	if len(p.then) == 0 {
		return end, true
	}
	after := bytes.ToLower(text[end:min(len(text), end+nearby)])
	for _, words := range p.then {
		at := -1
		for _, w := range words {
			if k := bytes.Index(after, []byte(w)); k >= 0 && (at < 0 || k < at) {
				at = k
			}
		}
		if at < 0 {
			return 0, false
		}
		after = after[at:]
	}
	return end, true
}

// hasFold reports whether text begins with lower, whatever the case of its
// ASCII letters.
func hasFold(text []byte, lower string) bool {
	if len(text) < len(lower) {
		return false
	}
	for i := range len(lower) {
		if fold(text[i]) != lower[i] {
			return false
		}
	}
	return true
}

func fold(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// control looks at a control character at text[i] and returns how many bytes to
// go on.
func (s *scan) control(v view, i int) int {
	switch c := v.text[i]; c {
	case '\t', '\n', '\r':
		return 1
	case 0x1b:
		n, colour := escapeSequence(v.text[i:])
		if !colour {
			s.sign(mapped(i, i+n, v.steps), Escape, "escape-sequence")
		}
		return n
	}
	s.sign(mapped(i, i+1, v.steps), Escape, "control-character")
	return 1
}

// escapeSequence is the length of the ECMA-48 control sequence at the start of
// b, and whether it only sets colours (SGR).
func escapeSequence(b []byte) (n int, colour bool) {
	if len(b) < 2 || b[1] != '[' {
		return 1, false
	}
	for n = 2; n < len(b) && n < 64; n++ {
		switch c := b[n]; {
		case 0x30 <= c && c <= 0x3f:
		case c == 'm':
			return n + 1, true
		default:
			return n, false
		}
	}
	return n, false
}

// beyond looks at a character beyond ASCII at text[i] and returns how many
// bytes to go on.
func (s *scan) beyond(v view, i int) int {
	r, n := utf8.DecodeRune(v.text[i:])
	var k Kind
	name := ""
	switch {
	case 0x80 <= r && r <= 0x9f:
		k, name = Escape, "c1-control"
	case 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069:
		k, name = Bidi, "bidi-control"
	case r == 0x200b || r == 0x2060 || r == 0x180e || 0x2061 <= r && r <= 0x2064:
		k, name = Hidden, "zero-width"
	case r == 0x200c || r == 0x200d:
		if i == 0 || v.text[i-1] < utf8.RuneSelf || i+n >= len(v.text) || v.text[i+n] < utf8.RuneSelf {
			k, name = Hidden, "zero-width" // joins nothing
		}
	case r == 0xfeff && i > 0:
		k, name = Hidden, "zero-width"
	case 0xe0100 <= r && r <= 0xe01ef:
		k, name = Hidden, "variation-selector"
	case r == 0x1f3f4:
		return n + flagTags(v.text[i+n:])
	case 0xe0000 <= r && r <= 0xe007f:
		k, name = Hidden, "tag-characters"
	}
	if name != "" {
		s.sign(mapped(i, i+n, v.steps), k, name)
	}
	return n
}

// flagTags is the length of the tag characters that make a flag of a region
// (UTS #51): at most six, then the cancel tag.
func flagTags(b []byte) int {
	n := 0
	for range 7 {
		r, size := utf8.DecodeRune(b[n:])
		if r < 0xe0020 || r > 0xe007f {
			return 0
		}
		n += size
		if r == 0xe007f {
			return n
		}
	}
	return 0
}
