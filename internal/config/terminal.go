package config

import (
	"slices"
	"strconv"
	"strings"
)

// A Terminal is what of sessions at a terminal is settled.
type Terminal struct {
	Key       byte // the hot-key, a control character; 0 for none. Default 0x1c, Ctrl-\
	Clipboard bool // what runs may set and read the clipboard of the terminal. Default false
}

type terminal struct {
	Key       *string `json:"key"`
	Clipboard *bool   `json:"clipboard"`
}

func (l *loader) terminal(t *terminal) error {
	if t == nil {
		t = &terminal{}
	}
	name := `ctrl-\`
	if t.Key != nil {
		name = *t.Key
	}
	key, ok := control(name)
	if !ok {
		return l.invalid("/terminal/key", `%q is no key: it can be "none", "ctrl-" and a letter that no terminal needs itself, "ctrl-\\" or "ctrl-]"`, name)
	}
	l.config.Terminal.Key = key
	if t.Clipboard != nil {
		l.config.Terminal.Clipboard = *t.Clipboard
	}
	l.settings = append(l.settings,
		l.setting("terminal.key", name, t.Key != nil),
		l.setting("terminal.clipboard", strconv.FormatBool(l.config.Terminal.Clipboard), t.Clipboard != nil))
	return nil
}

// control is the control character of a key, 0 for "none". Those that are other keys as well
// (erase, tab, line feed, enter) are none.
func control(name string) (key byte, ok bool) {
	if name == "none" {
		return 0, true
	}
	letter, found := strings.CutPrefix(name, "ctrl-")
	if !found || len(letter) != 1 {
		return 0, false
	}
	switch b := letter[0]; {
	case b >= 'a' && b <= 'z' && !slices.Contains([]byte("hijm"), b):
		return b &^ 0x60, true
	case b == '\\' || b == ']':
		return b &^ 0x40, true
	}
	return 0, false
}
