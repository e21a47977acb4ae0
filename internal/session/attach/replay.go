package attach

import (
	"regexp"
	"sync"
)

// queries are what makes a terminal answer (xterm's ctlseqs; the kitty protocols): whoever
// comes late is shown what a program wrote before, and what his terminal would answer then,
// nobody waits for. It would be typed to the program.
var queries = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("\x05|\x1bZ" + // answerback, DECID
		`|\x1b\[[?>=]?[\d;]*[cn]` + // device attributes, status reports
		`|\x1b\[[?>=]?[\d;]*\$p` + // DECRQM
		`|\x1b\[>[\d;]*q|\x1b\[\?u` + // XTVERSION, flags of the kitty protocol
		`|\x1b\[(?:1[1-9]|2[01])(?:;\d*)*t` + // size, title
		`|\x1b\[[\d;]*(?:x|\*y|\$w|&w|'\|)` + // parameters, checksum, presentation, locator
		`|\x1b\](?:[^\x07\x1b]*;)?\?[^\x07\x1b]*(?:\x07|\x1b\\)` + // colours and others
		`|\x1bP(?:\$q|\+[qQ])[^\x07\x1b]*(?:\x07|\x1b\\)` + // DECRQSS, XTGETTCAP
		`|\x1b_G[^\x1b]*a=q[^\x1b]*\x1b\\`) // images
})

// silent is what a program wrote without what makes a terminal answer.
func silent(text []byte) []byte { return queries().ReplaceAll(text, nil) }

// A clipper takes out of what a program writes what sets or reads the clipboard of the
// person's terminal (OSC 52 of xterm, OSC 5522 of kitty). The zero value begins anew.
type clipper struct {
	state  byte // 0; ESC; ']' in the number of a string; 'x' in a string that is left out; '\\' at an ESC in it
	held   []byte
	number int
}

// maxNumber bounds what is held of the number of a string, in bytes.
const maxNumber = 64

// feed returns what of p passes.
func (c *clipper) feed(p []byte) []byte {
	out := make([]byte, 0, len(p)+len(c.held))
	pass := func(b byte) {
		out = append(append(out, c.held...), b)
		c.state, c.held, c.number = 0, c.held[:0], 0
	}
	for _, b := range p {
		switch {
		case c.state == 'x':
			switch b {
			case 0x07, 0x18, 0x1a:
				c.state = 0
			case 0x1b:
				c.state = '\\'
			}
		case c.state == '\\':
			if c.state = 'x'; b == '\\' {
				c.state = 0
			}
		case b == 0x1b:
			out = append(out, c.held...)
			c.state, c.held, c.number = 0x1b, append(c.held[:0], b), 0
		case c.state == 0x1b && b == ']':
			c.state, c.held = ']', append(c.held, b)
		case c.state == ']' && b >= '0' && b <= '9' && len(c.held) < maxNumber:
			c.number, c.held = min(c.number*10+int(b-'0'), 1<<20), append(c.held, b)
		case c.state == ']' && b == ';' && (c.number == 52 || c.number == 5522):
			c.state, c.held, c.number = 'x', c.held[:0], 0
		default:
			pass(b)
		}
	}
	return out
}
