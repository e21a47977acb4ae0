package remote

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
)

// Names of the headers of MCP.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerLast    = "Last-Event-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
)

// A binding says that an argument of a tool is repeated in a header
// ("x-mcp-header", revision 2026-07-28).
type binding struct {
	pointer string // to the argument, within the arguments
	header  string // without its prefix
}

// What encloses a header value that is written in base64.
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

// encode returns s as the value of a header: as it is, or in base64 where it has
// other bytes than visible ASCII and inner spaces, or could be taken for base64.
func encode(s string) string {
	plain := s == strings.Trim(s, " \t") && !(strings.HasPrefix(s, encodedPrefix) && strings.HasSuffix(s, encodedSuffix))
	for _, c := range []byte(s) {
		plain = plain && c >= 0x20 && c <= 0x7e
	}
	if plain {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + encodedSuffix
}

// maxExact is the largest integer up to which every other one has a double of its own.
const maxExact = 1<<53 - 1

// primitive returns a JSON string, boolean or exact integer as a header has it; ok is
// false for every other value, which goes into no header.
func primitive(raw []byte) (text string, ok bool) {
	switch {
	case len(raw) == 0:
		return "", false
	case raw[0] == '"':
		s, err := strictjson.Text(raw)
		return encode(s), err == nil
	case string(raw) == "true" || string(raw) == "false":
		return string(raw), true
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n != float64(int64(n)) || n > maxExact || n < -maxExact {
		return "", false
	}
	return strconv.FormatInt(int64(n), 10), true
}

// mirror sets the headers of revision 2026-07-28 that repeat what a request says.
func (c *conn) mirror(h http.Header, m message) {
	h.Set(headerVersion, m.version)
	h.Set(headerMethod, m.method)
	if m.name != "" {
		h.Set(headerName, encode(m.name))
	}
	if m.method != "tools/call" {
		return
	}
	c.mu.Lock()
	bindings := c.bindings[m.name]
	c.mu.Unlock()
	for _, b := range bindings {
		v, ok, err := strictjson.Find(m.raw, "/params/arguments"+b.pointer)
		if err != nil || !ok {
			continue
		}
		if text, ok := primitive(v.Raw); ok {
			h.Set(headerParam+b.header, text)
		}
	}
}

// Bounds of what goes into headers.
const (
	maxBindings = 64   // of one tool
	maxTools    = 2000 // with headers, of one server
)

// bindingsOf returns which arguments of the tool def go into headers. It is not ok if
// the definition says something about that which no client can follow; such a tool
// must not be offered.
func bindingsOf(def []byte) (all []binding, ok bool) {
	seen := map[string]bool{}
	ok = true
	err := strictjson.Walk(def, func(v strictjson.Value) error {
		at, is := strings.CutSuffix(v.Pointer, "/x-mcp-header")
		schema, in := strings.CutPrefix(at, "/inputSchema/properties/")
		if !is || !in {
			return nil
		}
		path, good := argument(schema)
		header, err := strictjson.Text(v.Raw)
		kind, found, kerr := strictjson.Find(def, at+"/type")
		t := strings.Trim(string(kind.Raw), `"`)
		key := strings.ToLower(header)
		switch {
		case !good: // a property that is called x-mcp-header, or a place that has no one argument
		case err != nil || kerr != nil || !found || !isToken(header) || seen[key] || len(all) == maxBindings,
			t != "string" && t != "integer" && t != "boolean":
			ok = false
		default:
			seen[key] = true
			all = append(all, binding{path, header})
		}
		return nil
	})
	return all, ok && err == nil
}

// argument turns the place of a schema, "a/properties/b", into that of the argument it
// describes, "/a/b".
func argument(schema string) (pointer string, ok bool) {
	for i, part := range strings.Split(schema, "/") {
		if i%2 == 1 {
			if part != "properties" {
				return "", false
			}
			continue
		}
		pointer += "/" + part
		ok = true
	}
	return pointer, ok && strings.Count(schema, "/")%2 == 0
}

func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}) < 0
}

// learn takes in a list of tools, and leaves those out that bindingsOf refuses.
func (c *conn) learn(answer []byte) []byte {
	defs, err := strictjson.Values(answer, "/result/tools/*")
	if err != nil {
		return answer // the mediator says what is wrong with it
	}
	known := map[string][]binding{}
	var kept [][]byte
	for _, d := range defs {
		name, found, ferr := strictjson.Find(d.Raw, "/name")
		text, terr := name.Text()
		all, ok := bindingsOf(d.Raw)
		if !ok {
			c.note("a tool is left out: its x-mcp-header cannot be followed: %.200q", text)
			continue
		}
		kept = append(kept, d.Raw)
		if found && ferr == nil && terr == nil {
			known[text] = all
		}
	}
	c.mu.Lock()
	for name, all := range known {
		if c.bindings[name] != nil || len(all) > 0 && len(c.bindings) < maxTools {
			c.bindings[name] = all
		}
	}
	c.mu.Unlock()
	if len(kept) == len(defs) {
		return answer
	}
	edit := strictjson.Edit{Start: defs[0].Start, End: defs[len(defs)-1].End, New: bytes.Join(kept, []byte{','})}
	out, err := strictjson.Splice(answer, []strictjson.Edit{edit})
	if err != nil {
		return answer
	}
	return out
}
