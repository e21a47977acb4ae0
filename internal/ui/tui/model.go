package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
)

// deaf is how long no key answers (U1).
const deaf = 700 * time.Millisecond

// What the keys are for.
type mode int

const (
	reading mode = iota // the question
	scoping             // choosing how far a yes goes
	writing             // a message
	ending              // whether what runs shall end
)

// A model is what a page is about, without its terminal. Time is an argument.
type model struct {
	o      Options
	keys   keys
	action Action
	over   bool

	open    []api.Question
	at      int    // which is chosen
	id      string // and its id; "" for none
	mark    uint64
	mode    mode
	always  bool // scoping is for good
	scope   int  // that is chosen, from 1
	message string
	quiet   time.Time       // until then no key answers
	waits   map[string]bool // answers that are being passed on

	lines   []string // of the question, as it is wrapped
	width   int      // for which
	top     int      // the first line that is shown
	seen    int      // lines from the first that were shown
	room    int      // lines that have place
	said    string   // to the person
	trouble string   // with the desk
}

func newModel(o Options) *model {
	return &model{o: o, quiet: o.Now().Add(deaf), waits: map[string]bool{}}
}

// An answer is to be passed on.
type answer struct {
	q       api.Question
	choice  api.Choice
	propose int // a scope to propose a clause for first
	said    string
}

// questions takes in what waits now. The one that is chosen stays so while it waits.
func (m *model) questions(open []api.Question, failed error, now time.Time) {
	if m.trouble = ""; failed != nil {
		m.trouble = "the engine does not answer: " + display.Line(failed.Error())
		return
	}
	was := m.id
	m.open = open
	i := slices.IndexFunc(open, func(q api.Question) bool { return q.ID == m.id })
	switch {
	case i >= 0:
		m.at = i
	case len(open) == 0:
		m.at, m.id = 0, ""
	default:
		m.at = min(m.at, len(open)-1)
		m.id = open[m.at].ID
	}
	q := m.chosen()
	switch {
	case m.id != was:
		if was != "" {
			m.told(was)
		}
		m.choose(now)
	case q != nil && q.Mark != m.mark: // the same call once more, or once less: it says so, and is the same
		m.mark = q.Mark
		whole := m.read()
		if m.lines = m.wrapped(*q, m.width); whole {
			m.seen = len(m.lines)
		}
	}
}

// wrapped are the lines of a question.
func (m *model) wrapped(q api.Question, width int) []string {
	return wrap(display.Text(strings.ReplaceAll(q.Text, "\t", " ")), width)
}

// told says that a question waits no longer, where nobody here answered it.
func (m *model) told(id string) {
	if m.mode == writing || m.mode == scoping {
		m.said = "Question " + display.Line(id) + " waits no longer: it was answered, or has expired."
	}
}

// choose begins with another question.
func (m *model) choose(now time.Time) {
	m.quiet = now.Add(deaf)
	m.mode, m.message, m.scope, m.top, m.seen, m.width = reading, "", 1, 0, 0, 0
	if q := m.chosen(); q != nil {
		m.mark = q.Mark
	}
}

func (m *model) chosen() *api.Question {
	if m.id == "" || m.at >= len(m.open) {
		return nil
	}
	return &m.open[m.at]
}

// answered takes in what became of an answer.
func (m *model) answered(o outcome) {
	delete(m.waits, o.id)
	if m.said = o.said; o.err != nil {
		m.said = "Not taken: " + display.Line(o.err.Error())
	}
}

// typed does what keys say, and returns what is to be passed on.
func (m *model) typed(b []byte, now time.Time) (all []answer) {
	pressed, alone := m.keys.feed(b)
	for _, k := range pressed {
		if m.over {
			return all
		}
		if m.o.Key != 0 && k == string(rune(m.o.Key)) && m.o.Title != "" {
			m.leave(Send)
			return all
		}
		if a := m.press(k, alone && !now.Before(m.quiet), now); a != nil {
			m.waits[a.q.ID] = true
			m.said = "…"
			all = append(all, *a)
		}
	}
	return all
}

func (m *model) leave(a Action) { m.action, m.over = a, true }

// press does what one key says. Only if sure does a key answer anything, or end.
func (m *model) press(k string, sure bool, now time.Time) *answer {
	switch m.mode {
	case writing:
		return m.write(k)
	case scoping:
		return m.choosing(k, sure)
	case ending:
		if m.mode = reading; k == "k" && sure {
			m.leave(Stop)
		}
		return nil
	case reading:
	}
	if m.move(k, now) {
		return nil
	}
	switch quiet := now.Before(m.quiet); {
	case !quiet && (k == "q" || k == keyEnter || k == "\x03"): // which answers nothing, in whatever company
		m.leave(Back)
		return nil
	case !quiet && k == "d" && m.o.Title != "":
		m.leave(Detach)
		return nil
	case !sure:
		return nil
	}
	switch k {
	case "k":
		if m.o.Title != "" {
			m.mode = ending
		}
	default:
		return m.answers(k)
	}
	return nil
}

// move scrolls, or chooses another question.
func (m *model) move(k string, now time.Time) bool {
	last := max(len(m.lines)-m.room, 0)
	switch k {
	case keyUp:
		m.top--
	case keyDown:
		m.top++
	case keyPageUp:
		m.top -= m.room
	case keyPageDown, " ":
		m.top += m.room
	case keyHome:
		m.top = 0
	case keyEnd:
		m.top = last
	case keyTab, keyRight, keyBackTab, keyLeft:
		if n := len(m.open); n > 1 {
			step := 1
			if k == keyBackTab || k == keyLeft {
				step = n - 1
			}
			m.at = (m.at + step) % n
			m.id = m.open[m.at].ID
			m.said = ""
			m.choose(now)
		}
	default:
		return false
	}
	m.top = min(max(m.top, 0), last)
	return true
}

// answers is what a key says to the question.
func (m *model) answers(k string) *answer {
	q := m.chosen()
	if q == nil || m.waits[q.ID] {
		return nil
	}
	switch k {
	case "n":
		return m.no("")
	case "m":
		m.mode, m.message = writing, ""
	case "y", "s", "a":
		switch {
		case !m.read():
			m.said = "Read it to its end first: Space shows more."
		case k == "y":
			return &answer{q: *q, choice: api.Choice{Yes: true, Mark: q.Mark}, said: "Allowed once" + calls(q) + "."}
		case len(q.Scopes) == 0:
			m.said = "To this there is only a yes for this call."
		case k == "a" && m.o.Propose == nil:
			m.said = "Nothing can be proposed here."
		default:
			m.mode, m.always, m.scope, m.said = scoping, k == "a", 1, ""
		}
	}
	return nil
}

// read reports whether all of the question has stood on the screen (U2).
func (m *model) read() bool { return m.width > 0 && m.seen >= len(m.lines) }

func calls(q *api.Question) string {
	if q.Calls > 1 {
		return fmt.Sprintf(", all %d identical calls", q.Calls)
	}
	return ""
}

func (m *model) no(message string) *answer {
	a := &answer{q: *m.chosen(), choice: api.Choice{Message: message}, said: "Denied."}
	if message != "" {
		a.said = "Denied, and the agent is told why."
	}
	return a
}

// choosing is choosing how far a yes goes.
func (m *model) choosing(k string, sure bool) *answer {
	q := m.chosen()
	if q == nil {
		m.mode = reading
		return nil
	}
	switch k {
	case keyUp:
		m.scope = max(m.scope-1, 1)
	case keyDown:
		m.scope = min(m.scope+1, len(q.Scopes))
	case "q", "\x03":
		m.mode = reading
	case "y", keyEnter:
		if !sure || m.waits[q.ID] {
			return nil
		}
		m.mode = reading
		a := &answer{q: *q, choice: api.Choice{Yes: true, Mark: q.Mark}}
		if a.propose = m.scope; !m.always {
			a.propose, a.choice.Scope = 0, m.scope
			a.said = "Allowed until the session ends: " + display.Line(q.Scopes[m.scope-1].Text)
		}
		return a
	default:
		if len(k) == 1 && k[0] >= '1' && int(k[0]-'0') <= len(q.Scopes) {
			m.scope = int(k[0] - '0')
		}
	}
	return nil
}

// maxMessage is how long a message may be, in bytes: as the engine has it.
const maxMessage = 1000

// write is writing a message. What is pasted may end it: it is a no.
func (m *model) write(k string) *answer {
	switch {
	case m.chosen() == nil, k == "\x03", k == "\x07":
		m.mode, m.message = reading, ""
	case k == keyEnter:
		m.mode = reading
		return m.no(strings.TrimSpace(m.message))
	case k == keyErase:
		_, n := utf8.DecodeLastRuneInString(m.message)
		m.message = m.message[:len(m.message)-n]
	case k == "\x15":
		m.message = ""
	case utf8.RuneCountInString(k) == 1 && k >= " " && len(m.message)+len(k) <= maxMessage:
		m.message += k
	}
	return nil
}
