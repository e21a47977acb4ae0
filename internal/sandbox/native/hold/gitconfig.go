package hold

import (
	"iter"
	"strings"
	"syscall"
)

// errNotDir is what opening a file beneath a file gives.
const errNotDir = syscall.ENOTDIR

// settings yields the settings of a configuration of git, as "section.key" or
// "section.subsection.key" in lower case but for the subsection, with their values.
// It goes by config.c of git (git_parse_source, parse_value, get_extended_base_var).
// Where git would refuse the file it goes on in the next line: git obeys none of it.
func settings(text string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		c := config{text: strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")}
		for c.at < len(c.text) {
			switch ch := c.next(); {
			case blank(ch) || ch == '\n':
			case ch == '[':
				c.header()
			case ch == '#' || ch == ';' || !ofKey(ch):
				c.skip()
			default:
				key := c.key()
				value := ""
				for ch = c.next(); ch == ' ' || ch == '\t'; {
					ch = c.next()
				}
				if ch == '=' {
					value = c.value()
				} else if ch != '\n' {
					c.skip()
					continue
				}
				if !yield(c.section+"."+key, value) {
					return
				}
			}
		}
	}
}

// A config is a configuration while it is read.
type config struct {
	text    string
	at      int
	section string // with the subsection
}

// next returns the next byte; the end reads as a newline.
func (c *config) next() byte {
	c.at++
	if c.at > len(c.text) {
		return '\n'
	}
	return c.text[c.at-1]
}

func (c *config) skip() {
	for c.next() != '\n' {
	}
}

func blank(ch byte) bool { return ch == ' ' || ch == '\t' || ch == '\r' || ch == '\v' || ch == '\f' }

func ofKey(ch byte) bool {
	return 'a' <= ch|0x20 && ch|0x20 <= 'z' || '0' <= ch && ch <= '9' || ch == '-'
}

// key returns the key whose first byte was read.
func (c *config) key() string {
	from := c.at - 1
	for c.at < len(c.text) && ofKey(c.text[c.at]) {
		c.at++
	}
	return strings.ToLower(c.text[from:c.at])
}

// header reads what follows "[".
func (c *config) header() {
	from := c.at
	for {
		switch ch := c.next(); {
		case ch == ']':
			c.section = strings.ToLower(c.text[from : c.at-1])
			return
		case blank(ch):
			c.subsection(strings.ToLower(c.text[from : c.at-1]))
			return
		case ch == '\n':
			return
		}
	}
}

// subsection reads the quoted rest of a header. A backslash in it makes the next byte
// an ordinary one.
func (c *config) subsection(section string) {
	var name strings.Builder
	ch := c.next()
	for blank(ch) {
		ch = c.next()
	}
	for ch != '\n' {
		switch ch = c.next(); ch {
		case '"':
			if c.next() == ']' {
				c.section = section + "." + name.String()
			}
			return
		case '\\':
			ch = c.next()
		}
		name.WriteByte(ch)
	}
}

// value reads what follows "=": without quotes, escapes, comments and white space at
// its ends.
func (c *config) value() string {
	var b []byte
	quoted, kept := false, 0
	for {
		ch := c.next()
		switch {
		case ch == '\n':
			return string(b[:kept])
		case blank(ch) && !quoted:
			if len(b) > 0 {
				b = append(b, ch)
			}
			continue
		case !quoted && (ch == '#' || ch == ';'):
			c.skip()
			return string(b[:kept])
		case ch == '"':
			quoted = !quoted
			kept = max(kept, len(b))
			continue
		case ch == '\\':
			switch ch = c.next(); ch {
			case '\n':
				continue
			case 'n':
				ch = '\n'
			case 't':
				ch = '\t'
			case 'b':
				ch = '\b'
			}
		}
		b = append(b, ch)
		kept = len(b)
	}
}
