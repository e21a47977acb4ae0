package inspect

import (
	"bytes"
	"slices"
	"sync"
	"unicode/utf8"
)

// A phrase is words that address a model rather than a reader, in lower case.
// then, if any, are words of which one of each row must follow nearby.
type phrase struct {
	text string
	then [][]string
	// match, if set, has the final say over what follows the phrase, and says what it is.
	match  func(s *scan, text []byte, from int) (start, end int, k Kind, v verdict)
	name   string // of what match finds
	inWord bool   // the phrase can be within a word
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
	{text: "ignore ", then: [][]string{earlier, orders}},
	{text: "disregard ", then: [][]string{earlier, orders}},
	{text: "forget ", then: [][]string{earlier, orders}},
	{text: "override ", then: [][]string{earlier, orders}},
	{text: "reveal ", then: [][]string{{"system prompt", "hidden instructions", "initial instructions"}}},
	{text: "do not tell the user"},
	{text: "don't tell the user"},
	{text: "do not inform the user"},
	{text: "do not mention this to the user"},
	{text: "without telling the user"},
	{text: "without informing the user"},
	{text: "without asking the user"},
	{text: "new instructions:"},
	{text: "new system prompt"},
	{text: "message to the ai"},
	{text: "attention ai"},
	{text: "if you are an ai"},
	{text: "if you are a language model"},
	{text: "as an ai agent, you must"},
	{text: "you are now in developer mode"},
	{text: "<important>"},
	{text: "<system>"},
	{text: "</tool_result>"},
	{text: "</function_results>"},
	{text: "<|im_start|>"},
	{text: "<|im_end|>"},
	{text: "<|system|>"},
	{text: "[inst]"},
	{text: "<<sys>>"},

	{text: "ssn", match: matchSSN, name: "social-security-number"},
	{text: "social security", match: matchSSN, name: "social-security-number"},
	{text: "data:", match: matchDataURL, name: "active-data-url"},
	{text: "password", match: matchAssigned, name: "assigned-secret", inWord: true},
	{text: "passwd", match: matchAssigned, name: "assigned-secret", inWord: true},
	{text: "secret", match: matchAssigned, name: "assigned-secret", inWord: true},
	{text: "token", match: matchAssigned, name: "assigned-secret", inWord: true},
	{text: "api_key", match: matchAssigned, name: "assigned-secret", inWord: true},
	{text: "api-key", match: matchAssigned, name: "assigned-secret", inWord: true},
	{text: "apikey", match: matchAssigned, name: "assigned-secret", inWord: true},
	{text: "access_key", match: matchAssigned, name: "assigned-secret", inWord: true},
	{text: "private_key", match: matchAssigned, name: "assigned-secret", inWord: true},
}

// A markTable is what the pass for signs looks for.
type markTable struct {
	triggers
	phrases map[uint16][]phrase
}

// marksTable is made when it is first needed.
var marksTable = sync.OnceValue(func() *markTable {
	t := &markTable{phrases: map[uint16][]phrase{}}
	for _, ph := range phrases {
		for _, a := range cases(ph.text[0]) {
			for _, b := range cases(ph.text[1]) {
				t.set(a, b)
				t.phrases[pair(a, b)] = append(t.phrases[pair(a, b)], ph)
			}
		}
	}
	return t
})

func cases(b byte) []byte {
	if 'a' <= b && b <= 'z' {
		return []byte{b, b - 'a' + 'A'}
	}
	return []byte{b}
}

// marks looks for signs, beginning at from. It returns the place at which one could begin that
// more text would decide, else the end.
func (s *scan) marks(v view, from int) int {
	text, t, filter := v.text, marksTable(), markFilter()
	for i := from; i < len(text); {
		if len(s.f.Signs) >= maxSigns || !s.signs {
			filter = fullFilter()
		}
		i = filter.next(text, i)
		if c := text[i]; c >= ' ' && c < 0x7f && i+1 < len(text) && !is(c, digitChar|upperChar) && !t.has(pair(c, text[i+1])) {
			i++ // as nearly every byte
			continue
		}
		var n int
		switch c := text[i]; {
		case len(s.f.Signs) >= maxSigns && s.private >= maxPrivate:
			return len(text)
		case c < ' ' || c == 0x7f:
			n = s.control(v, i)
		case c >= 0x80:
			n = s.beyond(v, i)
		case i+1 == len(text) && is(c, upperChar) && !s.whole:
			return i
		case is(c, digitChar) || is(c, upperChar) && i+1 < len(text) && is(text[i+1], upperChar):
			if n = s.numbers(v, i); n == 1 {
				n = s.phrase(v, i, t)
			}
		default:
			n = s.phrase(v, i, t)
		}
		if n == 0 {
			return i
		}
		i += n
	}
	return len(text)
}

// phrase looks for the phrases that begin at text[i]. It returns how many bytes to go on,
// 0 if more text decides.
func (s *scan) phrase(v view, i int, t *markTable) int {
	text := v.text
	if i+1 == len(text) {
		if t.first[text[i]] && !s.whole {
			return 0
		}
		return 1
	}
	p := pair(text[i], text[i+1])
	if !t.has(p) {
		return 1
	}
	for _, ph := range t.phrases[p] {
		switch end, found := s.hasPhrase(text, i, ph); {
		case found == more:
			return 0
		case found == no:
		case ph.match == nil:
			s.sign(mapped(i, end, v.steps), Injection, "addresses-the-model")
			return 1
		default:
			start, end, kind, found := ph.match(s, text, end)
			if found == more {
				return 0
			}
			if found == yes {
				s.sign(mapped(start, end, v.steps), kind, ph.name)
				return 1
			}
		}
	}
	return 1
}

// hasPhrase reports whether p is at text[i], and where it ends.
func (s *scan) hasPhrase(text []byte, i int, p phrase) (end int, found verdict) {
	if i > 0 && is(p.text[0], alnum) && !begins(text, i) && !p.inWord {
		return 0, no
	}
	if !hasFold(text[i:], p.text) {
		if rest := text[i:]; len(rest) < len(p.text) && hasFold(rest, p.text[:len(rest)]) && !s.whole {
			return 0, more
		}
		return 0, no
	}
	end = i + len(p.text)
	if len(p.then) == 0 {
		return end, yes
	}
	var room [nearby]byte
	after := lowered(&room, text[end:min(len(text), end+nearby)])
	undecided := func() (int, verdict) {
		if len(text) < end+nearby && !s.whole {
			return 0, more
		}
		return 0, no
	}
	if last := p.then[len(p.then)-1]; !slices.ContainsFunc(last, func(w string) bool { return bytes.Contains(after, []byte(w)) }) {
		return undecided() // as it mostly is
	}
	for _, words := range p.then {
		at := -1
		for _, w := range words {
			if k := bytes.Index(after, []byte(w)); k >= 0 && (at < 0 || k < at) {
				at = k
			}
		}
		if at < 0 {
			return undecided()
		}
		after = after[at:]
	}
	return end, yes
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

// lowered is text in lower case, in room if it is ASCII.
func lowered(room *[nearby]byte, text []byte) []byte {
	if len(text) > len(room) {
		return bytes.ToLower(text)
	}
	for i, c := range text {
		if c >= utf8.RuneSelf {
			return bytes.ToLower(text)
		}
		room[i] = fold(c)
	}
	return room[:len(text)]
}

func fold(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// control looks at a control character at text[i] and returns how many bytes to
// go on, 0 if more text decides.
func (s *scan) control(v view, i int) int {
	switch c := v.text[i]; c {
	case '\t', '\n', '\r':
		return 1
	case 0x1b:
		n, colour, found := escapeSequence(v.text[i:])
		if found == more && !s.whole {
			return 0
		}
		if !colour {
			s.sign(mapped(i, i+n, v.steps), Escape, "escape-sequence")
		}
		return n
	}
	s.sign(mapped(i, i+1, v.steps), Escape, "control-character")
	return 1
}

// maxEscape is how long a control sequence is taken to be at most, in bytes.
const maxEscape = 64

// escapeSequence is the length of the ECMA-48 control sequence at the start of
// b, and whether it only sets colours (SGR). found is more if it goes beyond b.
func escapeSequence(b []byte) (n int, colour bool, found verdict) {
	if len(b) < 2 {
		return 1, false, more
	}
	if b[1] != '[' {
		return 1, false, yes
	}
	for n = 2; n < len(b) && n < maxEscape; n++ {
		switch c := b[n]; {
		case 0x30 <= c && c <= 0x3f:
		case c == 'm':
			return n + 1, true, yes
		default:
			return n, false, yes
		}
	}
	if n < maxEscape {
		return n, false, more
	}
	return n, false, yes
}

// maxFlag is the length of the longest flag of a region in tags, in bytes.
const maxFlag = 7 * 4

// beyond looks at a character beyond ASCII at text[i] and returns how many
// bytes to go on, 0 if more text decides.
func (s *scan) beyond(v view, i int) int {
	if !s.whole && !utf8.FullRune(v.text[i:]) {
		return 0
	}
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
		if i+n >= len(v.text) && !s.whole {
			return 0
		}
		if i == 0 || v.text[i-1] < utf8.RuneSelf || i+n >= len(v.text) || v.text[i+n] < utf8.RuneSelf {
			k, name = Hidden, "zero-width" // joins nothing
		}
	case r == 0xfeff && i+s.off > 0:
		k, name = Hidden, "zero-width"
	case 0xe0100 <= r && r <= 0xe01ef:
		k, name = Hidden, "variation-selector"
	case r == 0x1f3f4:
		if len(v.text) < i+n+maxFlag && !s.whole {
			return 0
		}
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
