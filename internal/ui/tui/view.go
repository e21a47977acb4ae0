package tui

import (
	"fmt"
	"strings"
	"time"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
)

// What a page needs, and how many questions its list shows at once.
const (
	leastRows    = 12
	leastColumns = 40
	listed       = 5
)

// view is the page in rows and columns. It notes what has been shown.
func (m *model) view(rows, columns int, now time.Time) []row {
	if rows <= 0 || columns <= 0 {
		rows, columns = 24, 80
	}
	if rows < leastRows || columns < leastColumns {
		m.room, m.width = 0, 0
		page := []row{{text: fmt.Sprintf("ringfence: too small, needs %d by %d", leastColumns, leastRows)}, {text: "q  back"}}
		return page[:min(len(page), rows)]
	}
	page := []row{{m.heading(), true}}
	page = append(page, m.list(columns, now)...)
	foot := m.foot(columns)
	page = append(page, m.body(rows-len(page)-len(foot), columns)...)
	for len(page) < rows-len(foot) {
		page = append(page, row{})
	}
	return append(page, foot...)
}

func (m *model) heading() string {
	what := " ringfence: "
	if n := len(m.open); n > 0 {
		what += display.Count(n, "question waits for you", "questions wait for you")
	} else {
		what += "nothing waits for you"
	}
	if m.o.Title != "" {
		what += " · " + display.Line(m.o.Title)
	}
	return what
}

// list is the questions around the one that is chosen, each in a row.
func (m *model) list(columns int, now time.Time) (all []row) {
	first := min(max(m.at-listed/2, 0), max(len(m.open)-listed, 0))
	for i := first; i < min(first+listed, len(m.open)); i++ {
		mark := "  "
		if i == m.at {
			mark = "> "
		}
		q := m.open[i]
		left := remaining(q, now)
		text := fmt.Sprintf("%s%d. %s", mark, i+1, gist(q))
		all = append(all, row{text: pad(cut(text, columns-len(left)-1), columns-len(left)) + left})
	}
	return append(all, row{text: strings.Repeat("─", columns)})
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(width-cells(text), 0))
}

// remaining is how long a question still waits.
func remaining(q api.Question, now time.Time) string {
	left := q.Deadline.Sub(now)
	if left <= 0 {
		return "expired"
	}
	s := int((left + time.Second - 1) / time.Second)
	return fmt.Sprintf("%d:%02d left", s/60, s%60)
}

// gist is a question in a line.
func gist(q api.Question) string {
	text := "?"
	if len(q.Effects) > 0 {
		text = string(q.Effects[0].Kind) + " " + q.Effects[0].Resource.Text
	}
	if n := len(q.Effects) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	if q.Tool != "" {
		text = q.Tool + ": " + text
	}
	if q.Calls > 1 {
		text = fmt.Sprintf("%d times ", q.Calls) + text
	}
	return display.Line(text)
}

// body is what stands between list and foot.
func (m *model) body(rows, columns int) (all []row) {
	q := m.chosen()
	switch {
	case q == nil:
		return nil
	case m.mode == scoping:
		return m.scopes(*q, rows, columns)
	}
	if m.width != columns { // lines are others now
		m.lines, m.width, m.seen = m.wrapped(*q, columns), columns, 0
	}
	m.room = max(rows-1, 1)
	m.top = min(m.top, max(len(m.lines)-m.room, 0))
	last := min(m.top+m.room, len(m.lines))
	for _, line := range m.lines[m.top:last] {
		all = append(all, row{text: line})
	}
	if m.top <= m.seen {
		m.seen = max(m.seen, last)
	}
	if len(m.lines) > m.room {
		for len(all) < m.room {
			all = append(all, row{})
		}
		where := fmt.Sprintf("lines %d to %d of %d", m.top+1, last, len(m.lines))
		if !m.read() {
			where += "; a yes only when all of it has been shown: Space for more"
		}
		all = append(all, row{text: where, strong: true})
	}
	return all
}

// scopes are the ways in which a yes can be for more than the call.
func (m *model) scopes(q api.Question, rows, columns int) (all []row) {
	head := "How far does the yes go, until the session ends?"
	if m.always {
		head = "Allow this call once, and propose a clause for what is like it:"
	}
	lines := []string{head, ""}
	at := 0
	for i, s := range q.Scopes {
		mark := "  "
		if i+1 == m.scope {
			mark, at = "> ", len(lines)
		}
		lines = append(lines, wrap(fmt.Sprintf("%s%d  %s", mark, i+1, display.Line(s.Text)), columns)...)
		if s.Such != "" {
			lines = append(lines, wrap("       such as  "+display.Line(s.Such), columns)...)
			lines = append(lines, wrap("       but not  "+display.Line(s.Not), columns)...)
		}
	}
	from := min(max(at-rows/2, 0), max(len(lines)-rows, 0))
	for _, line := range lines[from:min(from+rows, len(lines))] {
		all = append(all, row{text: line})
	}
	return all
}

// foot says what was done last, and what keys there are.
func (m *model) foot(columns int) []row {
	said := m.said
	if m.trouble != "" {
		said = m.trouble
	}
	all := []row{{}, {text: cut(display.Line(said), columns)}}
	for _, line := range m.help() {
		all = append(all, row{text: line})
	}
	return all
}

func (m *model) help() []string {
	switch {
	case m.mode == writing:
		shown := display.Line(m.message)
		if r := []rune(shown); len(r) > 60 {
			shown = "…" + string(r[len(r)-60:])
		}
		return []string{"Deny, and tell the agent: " + shown + "_", "Enter denies · Ctrl-C back"}
	case m.mode == scoping && m.always:
		return []string{"↑ ↓ or its number · y allows this call once, and proposes it · q back"}
	case m.mode == scoping:
		return []string{"↑ ↓ or its number chooses · y allows it for the session · q back"}
	case m.mode == ending:
		return []string{"End it? k once more ends it; any other key does not."}
	}
	var all []string
	if q := m.chosen(); q != nil {
		yes := "y allow once" + calls(q)
		if len(q.Scopes) > 0 {
			yes += " · s for the session"
			if m.o.Propose != nil {
				yes += " · a always"
			}
		}
		all = append(all, yes, "n deny · m deny with a message · Tab next question · Space ↑ ↓ scroll")
	}
	if m.o.Title == "" {
		return append(all, "q back")
	}
	return append(all, "q back · d leave; it runs on · k end it · the key again: for the program")
}
