package tui

import (
	"strings"
	"unicode/utf8"
)

// Names of keys that are no characters.
const (
	keyUp       = "up"
	keyDown     = "down"
	keyLeft     = "left"
	keyRight    = "right"
	keyPageUp   = "page up"
	keyPageDown = "page down"
	keyHome     = "home"
	keyEnd      = "end"
	keyEnter    = "enter"
	keyErase    = "erase"
	keyTab      = "tab"
	keyBackTab  = "back tab"
)

// maxSequence bounds a control sequence that is being read, in bytes.
const maxSequence = 64

// Keys reads what a terminal sends. A sequence is read whole, over however many reads it
// comes, so that no letter of it is taken for a key: what is in the answer to a question of a
// program can be of that program's choosing. So ESC alone is no key.
type keys struct {
	state byte // 0; ESC; '[' and 'O' of sequences; ']' of strings; '\\' of an ESC in a string
	arg   strings.Builder
	rest  []byte // of a character
}

// feed returns the keys that b completes, and whether it was one key and nothing else.
func (k *keys) feed(b []byte) (pressed []string, alone bool) {
	clean := k.state == 0 && len(k.rest) == 0
	other := 0 // sequences that are no key of ours
	for len(b) > 0 {
		if k.state != 0 {
			key, ended := k.sequence(b[0])
			b = b[1:]
			if key != "" {
				pressed = append(pressed, key)
			} else if ended {
				other++
			}
			continue
		}
		k.rest = append(k.rest, b[0])
		b = b[1:]
		if !utf8.FullRune(k.rest) {
			continue
		}
		r, _ := utf8.DecodeRune(k.rest)
		k.rest = k.rest[:0]
		if key := k.character(r); key != "" {
			pressed = append(pressed, key)
		}
	}
	return pressed, clean && other == 0 && len(pressed) == 1 && k.state == 0 && len(k.rest) == 0
}

// character is the key of a character; "" if it begins a sequence or is none.
func (k *keys) character(r rune) string {
	switch r {
	case 0x1b:
		k.state = 0x1b
		k.arg.Reset()
		return ""
	case '\r', '\n':
		return keyEnter
	case '\t':
		return keyTab
	case 0x7f, 0x08:
		return keyErase
	case utf8.RuneError:
		return ""
	}
	if r >= 0x80 && r < 0xa0 {
		return ""
	}
	return string(r)
}

// sequence takes in a byte of a sequence, and returns the key that it completes.
func (k *keys) sequence(b byte) (key string, ended bool) {
	switch k.state {
	case 0x1b:
		switch b {
		case '[', 'O':
			k.state = b
		case ']', 'P', '_', '^', 'X':
			k.state = ']'
		case 0x1b:
		default:
			k.state = 0 // with Alt
			return "", true
		}
		return "", false
	case ']':
		switch b {
		case 0x07, 0x18, 0x1a:
			k.state = 0
			return "", true
		case 0x1b:
			k.state = '\\'
		}
		return "", false
	case '\\':
		if k.state = ']'; b == '\\' {
			k.state = 0
			return "", true
		}
		return "", false
	}
	if b == 0x1b {
		k.state = 0x1b
		k.arg.Reset()
		return "", true
	}
	k.arg.WriteByte(b)
	if (b < 0x40 || b > 0x7e) && k.arg.Len() < maxSequence {
		return "", false
	}
	k.state = 0
	return named[k.arg.String()], true
}

// named are the keys that are sequences (xterm's ctlseqs, VT220), after "ESC [" or "ESC O".
var named = map[string]string{
	"A": keyUp, "B": keyDown, "C": keyRight, "D": keyLeft, "H": keyHome, "F": keyEnd,
	"1~": keyHome, "7~": keyHome, "4~": keyEnd, "8~": keyEnd, "5~": keyPageUp, "6~": keyPageDown, "Z": keyBackTab,
}
