package gate

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// visible leaves in list the tools that may be seen, byte for byte, and says
// what it left out and why. It answers with an empty list if it cannot read it.
func (r *Run) visible(server string, list []byte) ([]byte, string) {
	s := r.Servers[server]
	defs, err := strictjson.Values(list, "/tools/*")
	if err != nil {
		return []byte(`{"tools":[]}`), "the list of tools could not be read"
	}
	s.mu.Lock()
	tools := s.tools
	s.mu.Unlock()
	var shown [][]byte
	var hidden []string
	for _, def := range defs {
		name, why := unseen(tools, def.Raw)
		if why != "" {
			hidden = append(hidden, fmt.Sprintf("%s.%s (%s)", server, name, why))
			continue
		}
		shown = append(shown, def.Raw)
	}
	out := append([]byte(`{"tools":[`), bytes.Join(shown, []byte(","))...)
	return append(out, `]}`...), strings.Join(hidden, ", ")
}

// unseen says why a definition may not be seen, "" if it may. It must be, byte
// for byte in meaning, the one that was decided.
func unseen(tools map[string]*Tool, def []byte) (name, why string) {
	name, err := nameOf(def)
	t := tools[name]
	if err != nil || t == nil {
		return name, "not decided"
	}
	hash, err := policy.DefinitionHash(def)
	switch {
	case err != nil || hash != t.Pin:
		return name, "not what was decided"
	case t.Annotation == nil:
		return name, "un-annotated"
	case t.Status != PinApproved:
		return name, string(t.Status)
	}
	return name, ""
}

// serverNames lists the servers of the run for a message.
func (r *Run) serverNames() string {
	if len(r.Servers) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(r.Servers)), ", ")
}

// split cuts "server.tool" at the first dot: a server's name has none.
func split(name string) (server, tool string, ok bool) {
	server, tool, ok = strings.Cut(name, ".")
	return server, tool, ok && server != "" && tool != ""
}
