package fetch

import "strings"

// A writer lays out text: it collapses white space, keeps blocks apart by one empty
// line, and puts the indentation of lists and quotes before each line, but no deeper
// than maxNesting: more would make the output grow with the square of the page.
type writer struct {
	b       strings.Builder
	prefix  []string
	was     []string // prefix of the last line
	space   bool     // a space is due before the next word
	breaks  int      // line breaks due before the next word
	started bool     // something was written
	pending string   // opening marks, due before the next word
	cell    *strings.Builder
}

func (w *writer) len() int { return w.b.Len() }

func (w *writer) String() string { return strings.TrimRight(w.b.String(), " \n") }

// block ends a paragraph.
func (w *writer) block() { w.due(2) }

// line ends a line.
func (w *writer) line() { w.due(1) }

func (w *writer) due(n int) {
	if w.cell != nil {
		w.space = true
		return
	}
	w.breaks = max(w.breaks, n)
	w.space = false
}

func (w *writer) indent(s string) {
	if w.cell == nil {
		w.prefix = append(w.prefix, s)
	}
}

// outdent takes back the last indentation, if it was s.
func (w *writer) outdent(s string) {
	if n := len(w.prefix); w.cell == nil && n > 0 && w.prefix[n-1] == s {
		w.prefix = w.prefix[:n-1]
	}
}

// words writes s with its white space collapsed.
func (w *writer) words(s string) {
	for s != "" {
		word := strings.TrimLeft(s, " \t\r\n\f")
		if len(word) < len(s) {
			w.space = true
		}
		if s = word; s == "" {
			return
		}
		end := strings.IndexAny(s, " \t\r\n\f")
		if end < 0 {
			end = len(s)
		}
		w.before()
		w.put(s[:end])
		s = s[end:]
	}
}

// raw writes s as it is, line by line.
func (w *writer) raw(s string) {
	for s != "" {
		line, rest, more := strings.Cut(s, "\n")
		if line = strings.TrimRight(line, "\r"); line != "" {
			w.before()
			w.put(line)
		}
		if more {
			w.breaks++
		}
		s = rest
	}
}

// before writes what is due.
func (w *writer) before() {
	if w.cell == nil && (w.breaks > 0 || !w.started) {
		if w.started {
			for range min(w.breaks, 100) - 1 {
				w.b.WriteString("\n" + strings.TrimRight(strings.Join(common(w.was, w.prefix), ""), " "))
			}
			w.b.WriteByte('\n')
		}
		w.was = append(w.was[:0], w.prefix[:min(len(w.prefix), maxNesting)]...)
		w.b.WriteString(strings.Join(w.was, ""))
		w.breaks, w.space, w.started = 0, false, true
	}
	if w.space {
		w.put(" ")
		w.space = false
	}
	if w.pending != "" {
		w.put(w.pending)
		w.pending = ""
	}
}

// common returns what an empty line between two lines begins with.
func common(a, b []string) []string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// attach writes a closing mark directly after the last word.
func (w *writer) attach(s string) { w.put(s) }

func (w *writer) put(s string) {
	if w.cell != nil {
		w.cell.WriteString(s)
		return
	}
	w.b.WriteString(s)
}

// capture takes what follows apart, until captured.
func (w *writer) capture() {
	w.cell, w.space = &strings.Builder{}, false
}

func (w *writer) captured() (string, bool) {
	if w.cell == nil {
		return "", false
	}
	s := w.cell.String()
	w.cell, w.space = nil, false
	return s, true
}
