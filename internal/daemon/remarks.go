package daemon

import (
	"encoding/json"
	"fmt"
	"strings"

	"ringfence/internal/desk"
	"ringfence/internal/inspect"
)

// maxRemark bounds one remark, in bytes of its text as it is printed.
const maxRemark = 320

// remarksOn says what a person should look at in the definition of server.tool, safe to
// print: what plants instructions, and names that can be taken for this one. tools is
// all that this home knows.
func remarksOn(tools map[string]pinRecord, server, tool, definition string) []string {
	if tool == "" {
		return nil // the program of a server: its lines say all
	}
	var alike, others []string
	form := likeness(tool)
	for _, name := range names(tools) {
		s, t, _ := strings.Cut(name, ".")
		if s != server && t != tool {
			others = append(others, t)
		}
		switch {
		case s == server && t == tool:
		case t == tool:
			alike = append(alike, "has the name of "+name)
		case likeness(t) == form:
			alike = append(alike, "looks like "+name)
		}
	}
	if len(alike) > 4 {
		alike = append(alike[:4], fmt.Sprintf("and like %d more", len(alike)-4))
	}
	if !json.Valid([]byte(definition)) {
		return alike // too large to be kept, or none
	}
	for _, r := range new(inspect.Inspector).Definition([]byte(definition), others) {
		text := r.Why
		if r.Pointer != "" {
			text = "the text at " + r.Pointer + " " + text
		}
		if r.Text != "" {
			text += ": " + r.Text
		}
		alike = append(alike, desk.Visible(text, maxRemark))
	}
	return alike
}

// Remarks says what a person should look at in a definition of a tool that no home knows
// yet, safe to print.
func Remarks(tool string, def []byte) []string { return remarksOn(nil, "", tool, string(def)) }

// likeness is the same for names that are easily taken for one another: which differ in
// case, in what separates words, or in characters that look the same.
func likeness(name string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "", "0", "o", "1", "l", "i", "l", "rn", "m", "vv", "w", "5", "s").Replace(strings.ToLower(name))
}
