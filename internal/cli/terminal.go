package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"ringfence/internal/desk"
)

// printable returns text for people as a terminal may get it: line feeds and tabs
// are obeyed, every other character without a shape is shown as an escape. It is
// the last line of defence, behind [desk.Visible] where the text of a stranger
// is known as such: an error quotes files, servers and agents.
func printable(s string) string {
	if strings.IndexFunc(s, unsafe) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x{%02x}`, s[0])
		case unsafe(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// unsafe reports whether a terminal might do something else than show r.
func unsafe(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// line encodes v as one line of JSON whose characters all have a shape.
func line(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("writing the result: %w", err)
	}
	return append(desk.EscapeJSON(bytes.TrimSuffix(b.Bytes(), []byte{'\n'})), '\n'), nil
}

// onTerminal reports whether what is written to s appears before a person.
func (s *sink) onTerminal() bool {
	f, ok := s.w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
