package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"ringfence/internal/act/display"
	"ringfence/internal/desk"
)

// printable returns text for people as a terminal may get it. It is the last line of
// defence, behind [desk.Visible] where the text of a stranger is known as such: an
// error quotes files, servers and agents.
func printable(s string) string { return display.Text(s) }

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
