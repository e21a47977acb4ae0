package constitution

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDocument bounds a constitution; a longer one is refused whole.
const maxDocument = 256 << 10

// maxDepth bounds how deep lists may nest.
const maxDepth = 8

// A unit is one sentence, with what stands above it.
type unit struct {
	toks    []token
	intros  [][]token // sentences that end in a colon and introduce this list, outermost first
	heading []token   // the nearest heading, which may say something too
	first   bool      // the sentence is the first of its paragraph or list item
}

type blockKind uint8

const (
	paragraph blockKind = iota
	heading
	item
)

// A block is one heading, paragraph or list item without its nested lists.
type block struct {
	kind  blockKind
	depth int // of an item: 0 for the outermost list; of a paragraph: 1 more than the item it belongs to
	text  spanned
}

// A spanned is text together with the offset in the source of each of its bytes.
type spanned struct {
	b  []byte
	at []int
}

func (s *spanned) add(src []byte, from, to int) {
	if len(s.b) > 0 {
		s.b = append(s.b, ' ')
		s.at = append(s.at, from)
	}
	for i := from; i < to; i++ {
		s.b = append(s.b, src[i])
		s.at = append(s.at, i)
	}
}

// A segmenter cuts a markdown document into blocks. It knows what people use in
// plain documents: headings, paragraphs, nested lists, quotations, fenced and
// indented code, comments, front matter.
type segmenter struct {
	src    []byte
	blocks []block
	open   *block // the block that the next line may continue
	marks  []mark // list items that are open, outermost first
	report func(severity Severity, at int, format string, args ...any)
}

// A mark is an open list item: the columns of its marker and of its text.
type mark struct{ at, text int }

// blockUp returns the blocks of src.
func (s *segmenter) blockUp() []block {
	src := s.hideComments(s.src)
	pos, blank, fence := s.frontMatter(src), true, ""
	for pos < len(src) {
		end := pos + bytes.IndexByte(src[pos:], '\n')
		if end < pos {
			end = len(src)
		}
		line := bytes.TrimRight(src[pos:end], " \t\r")
		switch trimmed := bytes.TrimLeft(line, " \t>"); {
		case fence != "":
			if bytes.HasPrefix(trimmed, []byte(fence)) {
				fence = ""
			}
		case bytes.HasPrefix(trimmed, []byte("```")), bytes.HasPrefix(trimmed, []byte("~~~")):
			fence = string(trimmed[:3])
			s.open = nil
			s.report(Info, pos+len(line)-len(trimmed), "a code block is not part of the constitution")
		case len(trimmed) == 0:
			s.open = nil
			blank = true
		default:
			s.line(src, pos, pos+len(line), blank)
			blank = false
		}
		pos = end + 1
	}
	if fence != "" {
		s.report(Failure, max(0, len(src)-1), "a code block is not closed: add a line %s", fence)
	}
	return s.blocks
}

// hideComments returns src with every HTML comment made blank, and reports them.
func (s *segmenter) hideComments(src []byte) []byte {
	out := src
	for pos := 0; ; {
		i := bytes.Index(out[pos:], []byte("<!--"))
		if i < 0 {
			return out
		}
		from := pos + i
		n := bytes.Index(out[from:], []byte("-->"))
		if n < 0 {
			s.report(Failure, from, "a comment is not closed: add -->")
			n = len(out) - from - 3
		}
		if pos == 0 {
			out = bytes.Clone(out)
		}
		to := min(len(out), from+n+3)
		for j := from; j < to; j++ {
			if out[j] != '\n' {
				out[j] = ' '
			}
		}
		s.report(Info, from, "a comment is not part of the constitution")
		pos = to
	}
}

// frontMatter returns where the document begins after a block of settings
// between two lines of three dashes.
func (s *segmenter) frontMatter(src []byte) int {
	if !bytes.HasPrefix(src, []byte("---\n")) {
		return 0
	}
	n := bytes.Index(src[4:], []byte("\n---\n"))
	if n < 0 {
		return 0
	}
	s.report(Info, 0, "front matter is not part of the constitution")
	return 4 + n + len("\n---\n")
}

// line takes in the line src[from:to], which is not blank.
func (s *segmenter) line(src []byte, from, to int, afterBlank bool) {
	column := 0
	for from < to {
		switch src[from] {
		case '\t':
			column += 4 - column%4
		case '>':
			column++
		case ' ':
			column++
		default:
			s.content(src, from, to, column, afterBlank)
			return
		}
		from++
	}
}

// content takes in a line from its first letter, which stands in column.
func (s *segmenter) content(src []byte, from, to, column int, afterBlank bool) {
	text := src[from:to]
	if s.open != nil && s.open.kind == paragraph && underline(text) {
		s.open.kind = heading
		s.open = nil
		return
	}
	if rule(text) {
		s.open, s.marks = nil, nil
		return
	}
	if n := headingMark(text); n > 0 {
		end := len(bytes.TrimRight(text, "# "))
		if end > n {
			s.begin(heading, 0, src, from+n, from+end)
		}
		s.open, s.marks = nil, nil
		return
	}
	if text[0] == '|' {
		s.report(Failure, from, "tables are not understood: write a list")
		return
	}
	if n := itemMark(text); n > 0 {
		s.item(src, from+n, to, mark{at: column, text: column + n})
		return
	}
	if s.open != nil {
		s.open.text.add(src, from, to)
		return
	}
	for len(s.marks) > 0 && column < s.marks[len(s.marks)-1].at+2 {
		s.marks = s.marks[:len(s.marks)-1]
	}
	if len(s.marks) == 0 && column >= 4 && afterBlank {
		s.report(Warning, from, "an indented line is code, which is not part of the constitution: begin it at the margin")
		return
	}
	s.begin(paragraph, len(s.marks), src, from, to)
}

func (s *segmenter) begin(k blockKind, depth int, src []byte, from, to int) {
	for from < to && src[from] == ' ' {
		from++
	}
	s.blocks = append(s.blocks, block{kind: k, depth: depth})
	s.open = &s.blocks[len(s.blocks)-1]
	s.open.text.add(src, from, to)
}

func (s *segmenter) item(src []byte, from, to int, m mark) {
	for len(s.marks) > 0 && m.at < s.marks[len(s.marks)-1].at+2 {
		s.marks = s.marks[:len(s.marks)-1]
	}
	if len(s.marks) >= maxDepth {
		s.report(Failure, from, "lists nest more than %d deep", maxDepth)
		return
	}
	s.marks = append(s.marks, m)
	for _, box := range []string{"[ ] ", "[x] ", "[X] "} {
		if bytes.HasPrefix(bytes.TrimLeft(src[from:to], " "), []byte(box)) {
			from = to - len(bytes.TrimLeft(src[from:to], " ")) + len(box)
		}
	}
	s.begin(item, len(s.marks)-1, src, from, to)
}

// underline reports whether text makes a heading of the paragraph above it.
func underline(text []byte) bool {
	return len(text) >= 3 && (strings.Trim(string(text), "=") == "" || strings.Trim(string(text), "-") == "")
}

// rule reports whether text is a horizontal rule.
func rule(text []byte) bool {
	t := strings.ReplaceAll(string(text), " ", "")
	return len(t) >= 3 && (strings.Trim(t, "-") == "" || strings.Trim(t, "*") == "" || strings.Trim(t, "_") == "")
}

// headingMark returns the length of the #s and spaces that make text a heading.
func headingMark(text []byte) int {
	n := len(text) - len(bytes.TrimLeft(text, "#"))
	if n == 0 || n > 6 || n >= len(text) || text[n] != ' ' {
		return 0
	}
	return n + 1
}

// itemMark returns the length of the bullet or number, and its space, that make
// text a list item.
func itemMark(text []byte) int {
	for _, bullet := range []string{"- ", "* ", "+ ", "• "} {
		if bytes.HasPrefix(text, []byte(bullet)) {
			return len(bullet)
		}
	}
	n := 0
	for n < len(text) && n < 9 && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	if n == 0 && len(text) > 1 && text[0] >= 'a' && text[0] <= 'z' && text[1] == ')' {
		n = 1
	}
	if n > 0 && n+1 < len(text) && (text[n] == '.' || text[n] == ')') && text[n+1] == ' ' {
		return n + 2
	}
	return 0
}

// unitsOf returns the sentences of blocks, each with its introductions.
func (s *segmenter) unitsOf(blocks []block) []unit {
	var units []unit
	var title []token
	intros := make([][]token, maxDepth+1)
	pending := -1 // the depth of a list that a colon announced and that has not begun
	var last token
	for _, b := range blocks {
		if pending >= 0 && (b.kind != item || b.depth != pending) {
			s.report(Failure, last.at, "the colon announces a list, and none follows")
		}
		pending = -1
		sentences := s.sentences(b.text)
		if b.kind == heading {
			title = nil
			if len(sentences) > 0 {
				title = trimColon(sentences[0])
			}
			clear(intros)
			continue
		}
		clear(intros[b.depth+depthOf(b.kind):])
		for i, toks := range sentences {
			if i == len(sentences)-1 && toks[len(toks)-1].is(":") {
				last, pending = toks[len(toks)-1], b.depth+depthOf(b.kind)
				intros[pending] = trimColon(toks)
				continue
			}
			u := unit{toks: toks, heading: title, first: i == 0}
			if b.kind == item {
				for _, in := range intros[:b.depth+1] {
					if in != nil {
						u.intros = append(u.intros, in)
					}
				}
			}
			units = append(units, u)
		}
	}
	if pending >= 0 {
		s.report(Failure, last.at, "the colon announces a list, and none follows")
	}
	return units
}

// depthOf is how much deeper the list lies that a block of kind k introduces.
func depthOf(k blockKind) int {
	if k == item {
		return 1
	}
	return 0
}

func trimColon(toks []token) []token {
	for len(toks) > 0 && toks[len(toks)-1].is(":") {
		toks = toks[:len(toks)-1]
	}
	return toks
}

// checkText reports what no reader can see or no parser should accept, and
// whether src can be read at all.
func checkText(src []byte, report func(Severity, int, string, ...any)) bool {
	if len(src) > maxDocument {
		report(Failure, 0, "the document is longer than %d KiB", maxDocument>>10)
		return false
	}
	ok := true
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			report(Failure, i, "the byte 0x%02x is not valid UTF-8", src[i])
			return false
		case r == '\ufeff' && i == 0, r == '\n', r == '\t', r == '\r':
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), unicode.In(r, unicode.Zl, unicode.Zp):
			report(Failure, i, "%s is invisible and may make the text read otherwise than it looks: remove it", fmt.Sprintf("U+%04X", r))
			ok = false
		}
		i += n
	}
	return ok
}
