package constitution

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	word   tokenKind = iota // letters, hyphens, apostrophes
	number                  // digits, or a number word; value in token.n
	atom                    // a path, host, address, tool, pattern: anything else that people write without spaces
	list                    // @name
	punct                   // , ; : ( ) and a dash between spaces
)

// A token is one word, name or mark of a sentence.
type token struct {
	kind  tokenKind
	text  string // as written, without markup
	low   string // in lower case; of compound words, the form the tables know
	at    int    // offset in the source
	n     int64  // of a number
	group int    // tokens of one code span or quotation share a number above 0
}

func (t token) is(low string) bool { return t.low == low && t.group == 0 }

// A scanner makes tokens of the text of one block.
type scanner struct {
	b    []byte
	at   []int
	i    int
	toks []token
	ends []int // indexes into toks at which a sentence ends
	grp  int
	open map[byte]int // emphasis that has begun and not ended, by its mark
	in   int          // the group of what is read now, 0 outside code and quotations
	fail func(at int, format string, args ...any)
}

// sentences returns the tokens of text, cut at full stops. None is empty.
func (s *segmenter) sentences(text spanned) [][]token {
	sc := scanner{b: text.b, at: text.at, open: map[byte]int{}, fail: func(at int, format string, args ...any) {
		s.report(Failure, at, format, args...)
	}}
	sc.run(len(sc.b))
	sc.ends = append(sc.ends, len(sc.toks))
	var all [][]token
	from := 0
	for _, end := range sc.ends {
		if end > from {
			all = append(all, compound(sc.toks[from:end]))
			from = end
		}
	}
	return all
}

// run reads up to offset end of the block.
func (s *scanner) run(end int) {
	for s.i < end {
		c := s.b[s.i]
		switch {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			s.i++
		case c == '`':
			s.code(end)
		case c == '"' || s.has("“") || s.has("«"):
			s.quotation(end)
		case s.has("~~"):
			s.fail(s.pos(), "struck-out text: remove it, or remove the tildes")
			s.i += 2
		case s.emphasis(end):
		case c == '[' && s.link(end):
		case strings.IndexByte(",;:()!?|[]", c) >= 0 && s.mark(end, c):
		default:
			s.chunk(end)
		}
	}
}

func (s *scanner) has(prefix string) bool {
	return strings.HasPrefix(string(s.b[s.i:min(len(s.b), s.i+4)]), prefix)
}

// maxSpan bounds how far the end of a code span, quotation or link is looked for.
const maxSpan = 2048

func (s *scanner) window(from, end int) []byte { return s.b[from:min(end, from+maxSpan)] }

func (s *scanner) pos() int { return s.at[min(s.i, len(s.at)-1)] }

func (s *scanner) push(k tokenKind, text string, i int) {
	s.toks = append(s.toks, token{kind: k, text: text, low: lower(text), at: s.at[i], group: s.in})
}

// stop ends the sentence before the next token.
func (s *scanner) stop() {
	if s.in == 0 {
		s.ends = append(s.ends, len(s.toks))
	}
}

// code reads a code span; its words are taken as they stand.
func (s *scanner) code(end int) {
	run := 1
	for s.i+run < end && s.b[s.i+run] == '`' {
		run++
	}
	fence := strings.Repeat("`", run)
	n := bytes.Index(s.window(s.i+run, end), []byte(fence))
	if n < 0 {
		s.fail(s.pos(), "a code span is not closed: add %s", fence)
		s.i += run
		return
	}
	s.grp++
	s.in = s.grp
	for from, to := s.i+run, s.i+run+n; from < to; {
		if s.b[from] == ' ' {
			from++
			continue
		}
		next := from
		for next < to && s.b[next] != ' ' {
			next++
		}
		s.push(classify(string(s.b[from:next])), string(s.b[from:next]), from)
		from = next
	}
	s.in = 0
	s.i += run + n + run
}

// quotation reads what stands between two quotation marks.
func (s *scanner) quotation(end int) {
	_, n := utf8.DecodeRune(s.b[s.i:])
	from := s.i + n
	closing := bytes.IndexAny(s.window(from, end), `"”»`)
	if closing < 0 || s.in != 0 {
		s.fail(s.pos(), "a quotation is not closed")
		s.i = from
		return
	}
	s.grp++
	s.i, s.in = from, s.grp
	s.run(from + closing)
	s.in = 0
	_, n = utf8.DecodeRune(s.b[from+closing:])
	s.i = from + closing + n
}

// emphasis skips the asterisks or underscores of *word* and **word**, at either
// end, and reports whether it did. Patterns such as *.pem and memory.* are not
// emphasis.
func (s *scanner) emphasis(end int) bool {
	c := s.b[s.i]
	if c != '*' && c != '_' {
		return false
	}
	run := 1
	for s.i+run < end && s.b[s.i+run] == c {
		run++
	}
	after, before := byte(' '), byte(' ')
	if s.i+run < end {
		after = s.b[s.i+run]
	}
	if s.i > 0 {
		before = s.b[s.i-1]
	}
	opens := strings.IndexByte(" (\"'", before) >= 0 && (isAlnum(after) || after == '`' || after == '@' || after == '~')
	closes := !opens && strings.IndexByte(" .,;:!?)\"'", after) >= 0 && (isAlnum(before) || strings.IndexByte("!?)`", before) >= 0)
	if opens && !bytes.Contains(s.window(s.i+run, end), s.b[s.i:s.i+run]) {
		return false
	}
	closes = closes && s.open[c] > 0
	if opens {
		s.open[c]++
	}
	if closes {
		s.open[c]--
	}
	if opens || closes {
		s.i += run
	}
	return opens || closes
}

// link reads [text](target) as its text, if the text does not hide the target.
func (s *scanner) link(end int) bool {
	rest := string(s.window(s.i, end))
	n := strings.Index(rest, "](")
	m := strings.IndexByte(rest, ')')
	if n < 0 || m < n {
		return false
	}
	text, target := rest[1:n], rest[n+2:m]
	if strings.Contains(text, ".") && !strings.Contains(text, " ") && !strings.Contains(target, text) {
		s.fail(s.pos(), "the link reads %q and leads to %q: which is meant?", text, target)
	}
	from := s.i
	s.i++
	s.run(from + n)
	s.i = from + m + 1
	return true
}

// mark reads punctuation. A colon or comma inside a word is part of it.
func (s *scanner) mark(end int, c byte) bool {
	next := byte(' ')
	if s.i+1 < end {
		next = s.b[s.i+1]
	}
	if (c == ':' || c == ',') && !strings.ContainsRune(" \"*_)`", rune(next)) && isAlnum(next) || c == '[' {
		return false
	}
	if c == '!' || c == '?' {
		s.stop()
	} else {
		s.push(punct, string(c), s.i)
	}
	s.i++
	return true
}

// chunk reads up to the next space, and takes the punctuation at its end off.
func (s *scanner) chunk(end int) {
	from := s.i
	for s.i < end && strings.IndexByte(" \t\r\n;()`\"", s.b[s.i]) < 0 && !s.has("“") && !s.has("”") {
		if s.b[s.i] == ',' && (s.i+1 == end || !isAlnum(s.b[s.i+1])) {
			break
		}
		s.i++
	}
	if s.i == from {
		s.i++
	}
	text := string(s.b[from:s.i])
	if from > 0 && s.b[from-1] != ' ' && strings.Trim(text, ".") == "" {
		s.stop()
		return
	}
	if i := strings.Index(text, "~~"); i > 0 {
		s.i = from + i
		text = text[:i]
	}
	body, tail := s.trimEnd(text)
	s.words(body, from)
	for i, c := range []byte(tail) {
		switch c {
		case '.', '!', '?':
			s.stop()
		case ':':
			s.push(punct, ":", from+len(body)+i)
		}
	}
}

// trimEnd splits off the full stop, colon, emphasis or apostrophe that ends a
// word but does not belong to it.
func (s *scanner) trimEnd(text string) (body, tail string) {
	switch strings.ToLower(text) {
	case "e.g.", "i.e.", "etc.", "vs.", ".", "..", "./", "../", "...":
		return text, ""
	}
	n := len(text)
	for n > 1 {
		c := text[n-1]
		if c == '*' || c == '_' {
			inner := strings.TrimRight(text[:n], string(c))
			if s.open[c] == 0 || inner == "" || strings.ContainsAny(inner, "/*") || strings.HasSuffix(inner, ".") && c == '*' && len(inner) == n-1 {
				return text[:n], text[n:]
			}
			s.open[c]--
			n = len(inner)
			continue
		}
		if strings.IndexByte(".:!?'", c) < 0 {
			break
		}
		n--
	}
	return text[:n], text[n:]
}

// words pushes the tokens of one chunk: contractions and alternatives written
// with a slash are several.
func (s *scanner) words(body string, at int) {
	body2 := strings.ReplaceAll(body, "’", "'")
	if inner := strings.TrimSuffix(strings.TrimPrefix(body2, "<"), ">"); len(inner) == len(body2)-2 && strings.ContainsAny(inner, ":@") {
		body, body2 = inner, inner // <https://example.org>
		at++
	}
	low := strings.ToLower(body2)
	switch {
	case body == "–" || body == "—" || body == "-" || body == "--" || body == "―":
		s.push(punct, "—", at)
		return
	case low == "cannot":
		s.push(word, "can", at)
		s.push(word, "not", at)
		return
	case strings.HasSuffix(low, "'re") || low == "it's" || low == "that's" || low == "there's":
		stem, verb, _ := strings.Cut(low, "'")
		s.push(word, stem, at)
		s.push(word, map[string]string{"re": "are", "s": "is"}[verb], at)
		return
	case strings.HasSuffix(low, "n't") && len(low) > 3:
		s.push(word, contracted(low), at)
		s.push(word, "not", at)
		return
	}
	if parts := strings.Split(body, "/"); len(parts) > 1 && s.in == 0 && allKnown(parts) {
		for i, p := range parts {
			if i > 0 {
				s.push(punct, "/", at)
			}
			s.push(classify(p), p, at)
			at += len(p) + 1
		}
		return
	}
	s.push(classify(body2), body2, at)
}

// contracted is the word that is short before "n't".
func contracted(low string) string {
	switch stem := strings.TrimSuffix(low, "n't"); stem {
	case "ca":
		return "can"
	case "wo":
		return "will"
	case "sha":
		return "shall"
	default:
		return stem
	}
}

func classify(text string) tokenKind {
	if isListName(text) {
		return list
	}
	if _, ok := numberOf(lower(text)); ok {
		return number
	}
	for _, r := range text {
		if !unicode.IsLetter(r) && r != '-' && r != '\'' {
			return atom
		}
	}
	if strings.HasPrefix(text, "-") || text == "'" {
		return atom
	}
	return word
}

// isListName reports whether text is the name of a list: @ and a lower-case name.
func isListName(text string) bool {
	if len(text) < 2 || text[0] != '@' {
		return false
	}
	for i := 1; i < len(text); i++ {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9' || i == 1) && (c != '-' || i == 1) {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

func lower(s string) string { return strings.ToLower(strings.ReplaceAll(s, "’", "'")) }
