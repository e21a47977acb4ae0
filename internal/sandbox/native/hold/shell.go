package hold

import "strings"

// A shWord is a word of a command line, as sh(1) would make it.
type shWord struct {
	text   string   // without quotes; what the shell puts in at another time is unknown
	first  bool     // it stands where the name of a command does
	opaque bool     // something unknown, or a pattern, is in it
	assign string   // the name of a variable, if the word gives it a value; text is that
	inner  []shWord // the words of commands within it
}

// unknown stands in the text of a word for what only the shell knows. It is in no path.
const unknown = '\x00'

const (
	maxWords   = 256 // of one command
	maxNesting = 4   // of commands within commands
)

// shell splits a command line into the words of its commands: quotes and backslashes are
// undone, operators end a command, and a command within a word has words of its own
// (POSIX.1-2017, "Shell Command Language", 2.2 to 2.6). $HOME and $PWD are known at the
// beginning of a word. It is no parser: of what it does not know, more are words that
// begin a command than do.
func shell(line string, depth int) []shWord {
	s := shLine{text: line, depth: depth, start: true}
	for s.at < len(s.text) && len(s.words) < maxWords {
		s.step()
	}
	s.end()
	return s.words
}

// A shLine is a command line while it is split.
type shLine struct {
	text   string
	at     int
	depth  int
	words  []shWord
	cur    strings.Builder
	in     bool // a word has begun
	start  bool // the next word begins a command
	opaque bool
	assign string
	inner  []shWord
	parens int
}

// step takes in what is at s.at, outside of quotes.
func (s *shLine) step() {
	c := s.text[s.at]
	s.at++
	switch c {
	case ' ', '\t', '\r', '<', '>':
		s.end()
	case '\n', ';', '&', '|', '(', ')':
		s.end()
		s.operator(c)
	case '\\':
		if s.at < len(s.text) {
			if s.at++; s.text[s.at-1] != '\n' {
				s.put(s.text[s.at-1])
			}
		}
	case '\'':
		body, rest, _ := strings.Cut(s.text[s.at:], "'")
		s.in = true
		s.cur.WriteString(body)
		s.at = len(s.text) - len(rest)
	case '"':
		s.quoted()
	case '$', '`':
		s.expansion(c)
	case '#':
		if s.in {
			s.put(c)
		} else if s.at += strings.IndexByte(s.text[s.at:]+"\n", '\n'); s.at > len(s.text) {
			s.at = len(s.text)
		}
	case '=':
		if name := s.cur.String(); s.start && s.assign == "" && isName(name) && !s.opaque {
			s.assign = name
			s.cur.Reset()
			return
		}
		s.put(c)
	case '*', '?', '[':
		s.opaque = s.opaque || c != '[' || s.cur.Len() > 0
		s.put(c)
	default:
		s.put(c)
	}
}

func (s *shLine) put(c byte) {
	s.in = true
	s.cur.WriteByte(c)
}

// operator begins the next command. A parenthesis that closes nothing ends the pattern of
// a case.
func (s *shLine) operator(c byte) {
	s.start = true
	switch {
	case c == '(':
		s.parens++
	case c == ')' && s.parens > 0:
		s.parens--
	case c == ')' && len(s.words) > 0:
		last := &s.words[len(s.words)-1]
		last.first, last.opaque = false, false
	}
}

// before are words after which the name of a command stands.
var before = map[string]bool{
	"if": true, "then": true, "elif": true, "else": true, "while": true, "until": true, "do": true, "!": true, "{": true, "}": true,
	"time": true, "exec": true, "command": true, "builtin": true, "nohup": true, "env": true, "sudo": true,
}

// end ends the word that has begun.
func (s *shLine) end() {
	if s.in || s.assign != "" {
		w := shWord{text: s.cur.String(), first: s.start, opaque: s.opaque, assign: s.assign, inner: s.inner}
		if w.assign != "" {
			w.first = false
		} else if s.start = s.start && before[w.text]; s.start {
			w.first = false
		}
		s.words = append(s.words, w)
	}
	s.cur.Reset()
	s.in, s.opaque, s.assign, s.inner = false, false, "", nil
}

// quoted takes in what is between double quotes.
func (s *shLine) quoted() {
	for s.in = true; s.at < len(s.text); {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return
		case c == '$' || c == '`':
			s.expansion(c)
		case c == '\\' && s.at < len(s.text) && strings.IndexByte("$`\"\\\n", s.text[s.at]) >= 0:
			if s.at++; s.text[s.at-1] != '\n' {
				s.put(s.text[s.at-1])
			}
		default:
			s.put(c)
		}
	}
}

// expansion takes in what begins with c, which was read.
func (s *shLine) expansion(c byte) {
	rest := s.text[s.at:]
	name, n := "", 0
	switch {
	case c == '`':
		s.within(strings.IndexByte(rest+"`", '`'), 0, 1)
		return
	case strings.HasPrefix(rest, "("):
		s.within(closing(rest), 1, 1)
		return
	case strings.HasPrefix(rest, "{"):
		n = min(strings.IndexByte(rest+"}", '}')+1, len(rest))
		name = strings.Trim(rest[:n], "{}")
	case rest != "" && strings.IndexByte("@*#?$!-0123456789", rest[0]) >= 0:
		n = 1
	default:
		for n < len(rest) && isName(rest[:n+1]) {
			n++
		}
		if name = rest[:n]; n == 0 {
			s.put(c)
			return
		}
	}
	s.at += n
	switch {
	case s.cur.Len() > 0:
	case name == "HOME":
		s.put('~')
		return
	case name == "PWD":
		s.put('.')
		return
	}
	s.put(unknown)
	s.opaque = true
}

// within takes in a command in a word: skip bytes, then it, n bytes with these, then
// after bytes more.
func (s *shLine) within(n, skip, after int) {
	end := min(s.at+n, len(s.text))
	body := s.text[min(s.at+skip, end):end]
	s.at = min(end+after, len(s.text))
	if s.depth < maxNesting {
		s.inner = append(s.inner, shell(body, s.depth+1)...)
	}
	s.put(unknown)
	s.opaque = true
}

// closing returns where the parenthesis that text begins with is closed.
func closing(text string) int {
	open := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				return i
			}
		}
	}
	return len(text)
}

// isName reports whether text is a name of a variable.
func isName(text string) bool {
	for i := range len(text) {
		c := text[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return text != ""
}
