package attach

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Modes are what a program has switched on in a terminal that outlives it there: its other
// screen, the mouse, pastes that are marked (private modes, DECSET), and how finely keys are
// told apart (the kitty keyboard protocol). The zero value is a terminal as it was.
type modes struct {
	set   map[int]bool // private modes; false: switched off, which is only kept of the cursor
	keys  int          // how often the kitty protocol was pushed
	kitty int          // its flags that were set without that
	xterm int          // modifyOtherKeys of xterm

	state byte   // of the sequence that is being read: 0, then ESC, '[', '?' or '>' or '<'
	arg   []byte // its numbers
}

// What is followed.
const (
	cursorShown = 25
	maxModes    = 64 // that are kept
	maxArg      = 64 // bytes of the numbers of one sequence
	maxKeys     = 16
)

// followed reports whether a private mode outlives a program that forgets it.
func followed(mode int) bool {
	switch mode {
	case 1, cursorShown, 47, 1047, 1049, 2004, 2026, 2031:
		return true
	}
	return mode >= 1000 && mode <= 1016
}

// feed takes in what a program writes, in any pieces.
func (m *modes) feed(p []byte) {
	for _, b := range p {
		switch {
		case b == 0x1b:
			m.state, m.arg = b, m.arg[:0]
		case m.state == 0x1b && b == '[', m.state == '[' && (b == '?' || b == '>' || b == '<' || b == '='):
			m.state = b
		case m.private() && (b >= '0' && b <= '9' || b == ';') && len(m.arg) < maxArg:
			m.arg = append(m.arg, b)
		default:
			if m.private() {
				m.end(b)
			}
			m.state = 0
		}
	}
}

// private reports whether the numbers of a sequence that may be followed are being read.
func (m *modes) private() bool {
	return m.state == '?' || m.state == '>' || m.state == '<' || m.state == '='
}

// end does what a sequence says that ends with b.
func (m *modes) end(b byte) {
	switch {
	case m.state == '?' && (b == 'h' || b == 'l'):
		for _, n := range m.numbers() {
			m.put(n, b == 'h')
		}
	case m.state == '>' && b == 'u':
		m.keys = min(m.keys+1, maxKeys)
	case m.state == '=' && b == 'u':
		m.flags(m.numbers())
	case m.state == '>' && b == 'm':
		if all := m.numbers(); len(all) == 0 || all[0] == 4 {
			m.xterm = 0
			if len(all) > 1 {
				m.xterm = all[1] & 3
			}
		}
	case m.state == '<' && b == 'u':
		n := 1
		if all := m.numbers(); len(all) > 0 {
			n = all[0]
		}
		m.keys = max(m.keys-n, 0)
	}
}

// flags sets flags of the kitty protocol: as they are, added, or taken away.
func (m *modes) flags(all []int) {
	if len(all) == 0 {
		all = []int{0}
	}
	n := all[0] & 31
	switch {
	case len(all) > 1 && all[1] == 2:
		m.kitty |= n
	case len(all) > 1 && all[1] == 3:
		m.kitty &^= n
	default:
		m.kitty = n
	}
}

func (m *modes) numbers() (all []int) {
	start := 0
	for i := 0; i <= len(m.arg); i++ {
		if i < len(m.arg) && m.arg[i] != ';' {
			continue
		}
		if n, err := strconv.Atoi(string(m.arg[start:i])); err == nil {
			all = append(all, n)
		}
		start = i + 1
	}
	return all
}

func (m *modes) put(mode int, on bool) {
	usual := mode == cursorShown
	switch {
	case !followed(mode):
	case on == usual:
		delete(m.set, mode)
	case len(m.set) < maxModes:
		if m.set == nil {
			m.set = map[int]bool{}
		}
		m.set[mode] = on
	}
}

// other reports whether the program shows its other screen.
func (m *modes) other() bool { return m.set[1049] || m.set[1047] || m.set[47] }

// on is what makes a terminal as the program has it; off makes it as it was.
func (m *modes) on() []byte {
	var b []byte
	for _, mode := range slices.Sorted(maps.Keys(m.set)) {
		b = fmt.Appendf(b, "\x1b[?%d%c", mode, letter(m.set[mode]))
	}
	for range m.keys {
		b = append(b, "\x1b[>1u"...)
	}
	if m.kitty > 0 {
		b = fmt.Appendf(b, "\x1b[=%du", m.kitty)
	}
	if m.xterm > 0 {
		b = fmt.Appendf(b, "\x1b[>4;%dm", m.xterm)
	}
	return b
}

func (m *modes) off() []byte {
	var b []byte
	if m.xterm > 0 {
		b = append(b, "\x1b[>4m"...)
	}
	if m.kitty > 0 {
		b = append(b, "\x1b[=0u"...)
	}
	if m.keys > 0 {
		b = fmt.Appendf(b, "\x1b[<%du", m.keys)
	}
	all := slices.Sorted(maps.Keys(m.set))
	slices.Reverse(all)
	for _, mode := range all {
		b = fmt.Appendf(b, "\x1b[?%d%c", mode, letter(!m.set[mode]))
	}
	if len(b) > 0 {
		b = append(b, "\x1b[0m"...)
	}
	return b
}

func letter(on bool) byte {
	if on {
		return 'h'
	}
	return 'l'
}
