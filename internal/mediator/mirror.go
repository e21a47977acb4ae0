package mediator

import (
	"bytes"

	"ringfence/internal/act/strictjson"
)

// A Mirror is an argument of a tool that clients over HTTP repeat in the header
// "Mcp-Param-" and Header, as the definition of the tool says with "x-mcp-header".
type Mirror struct {
	Header  string
	Pointer string // RFC 6901, into the arguments
}

// Mirrored returns what clients repeat of the arguments of a tool, by its name on the
// wire. Nothing is returned of a tool that no client was shown.
func (m *Mediator) Mirrored(wire string) []Mirror {
	s, name := m.route(wire)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	var def []byte
	for _, t := range s.tools.visible {
		if t.name == name {
			def = t.def
		}
	}
	s.mu.Unlock()
	return mirrorsOf(def)
}

const mirrorKey = "x-mcp-header"

// maxMirrors is how many arguments of one tool are repeated in headers.
const maxMirrors = 64

// mirrorsOf finds them in a definition: properties at any depth.
func mirrorsOf(def []byte) []Mirror {
	schema, ok, err := strictjson.Find(def, "/inputSchema")
	if err != nil || !ok {
		return nil
	}
	var all []Mirror
	var within func(raw []byte, at string, depth int)
	within = func(raw []byte, at string, depth int) {
		props, ok, err := strictjson.Find(raw, "/properties")
		if err != nil || !ok || props.Kind != strictjson.Object || depth > 16 {
			return
		}
		members, err := strictjson.Members(props.Raw, strictjson.Limits{})
		for _, v := range members {
			prop := props.Raw[v.Start:v.End]
			if err != nil || len(all) >= maxMirrors || prop[0] != '{' {
				continue
			}
			pointer := at + "/" + strictjson.Escape(v.Name)
			if h, ok, err := strictjson.Find(prop, "/"+mirrorKey); err == nil && ok {
				if name, err := h.Text(); err == nil && isHeaderToken(name) {
					all = append(all, Mirror{name, pointer})
				}
			}
			within(prop, pointer, depth+1)
		}
	}
	within(schema.Raw, "", 0)
	return all
}

// isHeaderToken reports whether name can be part of the name of a header (RFC 9110, 5.6.2).
func isHeaderToken(name string) bool {
	for _, c := range []byte(name) {
		if !isWord(c) && !bytes.ContainsRune([]byte("!#$%&'*+-.^`|~"), rune(c)) {
			return false
		}
	}
	return name != "" && len(name) <= 128
}
