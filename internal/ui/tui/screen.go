package tui

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// A screen is the person's terminal while the page has it.
type screen struct {
	out   io.Writer
	other bool // it showed its other screen already
	shown []string
	width int
}

// What a program can have done to a terminal so that a page on it cannot be read is taken
// back: other letters, colours, margins, origin, inserting (DEC STD 070, xterm's ctlseqs).
const plain = "\x1b(B\x0f\x1b[0m\x1b[?69l\x1b[r\x1b[?6l\x1b[4l\x1b[2J\x1b[H"

func (s *screen) open() error {
	first := ""
	if !s.other {
		first = "\x1b[?1049h"
	}
	// Without wrapping: a line that is longer than was counted spoils no other.
	_, err := io.WriteString(s.out, first+plain+"\x1b[?7l\x1b[?25l")
	return err
}

func (s *screen) close() error {
	last := "\x1b[0m\x1b[?7h\x1b[?25h"
	if s.other {
		last += "\x1b[2J\x1b[H" // the program's page is shown anew by whoever has it
	} else {
		last += "\x1b[?1049l"
	}
	_, err := io.WriteString(s.out, last)
	return err
}

// A row is one line of a page.
type row struct {
	text   string
	strong bool // set off from the others
}

// draw shows rows, writing those that changed.
func (s *screen) draw(rows []row, width int) error {
	var b strings.Builder
	if width != s.width || len(rows) != len(s.shown) {
		s.shown, s.width = make([]string, len(rows)), width
		b.WriteString("\x1b[2J")
		for i := range s.shown {
			s.shown[i] = "\x00" // unlike any
		}
	}
	for i, r := range rows {
		line := harmless(cut(r.text, width))
		if r.strong {
			line = "\x1b[7m" + line + strings.Repeat(" ", max(width-cells(line), 0)) + "\x1b[0m"
		}
		if s.shown[i] != line {
			s.shown[i] = line
			fmt.Fprintf(&b, "\x1b[%d;1H\x1b[2K%s", i+1, line)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(s.out, b.String())
	return err
}

// harmless is the last that stands between a text and the terminal (U4): what is shown has
// been made visible before, and a control that was forgotten becomes a question mark.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// narrow are scripts whose letters take one cell on every terminal.
var narrow = []*unicode.RangeTable{unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Hebrew, unicode.Arabic}

// cell is how many cells r takes at most: too many for some, so that no line is longer than
// it was counted.
func cell(r rune) int {
	switch {
	case r < 0x80, unicode.In(r, narrow...) && r < 0xff00, ours(r):
		return 1
	}
	return 2
}

// ours are characters of the page itself, and those that stand for controls.
func ours(r rune) bool {
	return slices.Contains([]rune{'…', '─', '·', '↑', '↓'}, r) || r >= 0x2400 && r <= 0x243f
}

func cells(text string) (n int) {
	for _, r := range text {
		n += cell(r)
	}
	return n
}

// cut is what of text has place in width cells, with a mark if that is not all.
func cut(text string, width int) string {
	if cells(text) <= width {
		return text
	}
	n := 0
	for i, r := range text {
		if n += cell(r); n > width-1 {
			return text[:i] + "…"
		}
	}
	return text
}

// wrap breaks text, of which each line stands by itself, into lines of width cells. What
// goes on is indented as its line is, and one that holds words of the agent's keeps its mark.
func wrap(text string, width int) (all []string) {
	width = max(width, 8)
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		lead := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if strings.HasPrefix(line, quoted) {
			lead = quoted
		}
		if len(lead) > width/2 {
			lead = "  "
		}
		n, from := 0, 0
		first := true
		for i, r := range line {
			w := cell(r)
			if n+w > width {
				all = append(all, led(first, lead)+line[from:i])
				n, from, first = len(lead), i, false
			}
			n += w
		}
		all = append(all, led(first, lead)+line[from:])
	}
	return all
}

// quoted begins each line of the engine's that holds words of the agent's.
const quoted = "  | "

func led(first bool, lead string) string {
	if first {
		return ""
	}
	return lead
}
