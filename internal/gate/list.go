package gate

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// A listKind is a kind of list that a server can show.
type listKind struct {
	of    string // the method
	field string // the member of its result that holds the list
}

// listKinds are all lists. The first is decided as "server", the others as "server." and
// their method. The last is no method: it holds what the server may ask its client.
var listKinds = []listKind{
	{"tools/list", "tools"},
	{"prompts/list", "prompts"},
	{"resources/list", "resources"},
	{"resources/templates/list", "resourceTemplates"},
	{"asks/list", "asks"},
}

// listed finds the server and the kind of list that the tool of a VerbList names.
func (r *Run) listed(tool string) (*Server, listKind, bool) {
	server, method, ok := strings.Cut(tool, ".")
	if !ok {
		method = listKinds[0].of
	}
	i := slices.IndexFunc(listKinds, func(l listKind) bool { return l.of == method })
	if s := r.Servers[server]; s != nil && i >= 0 && ok == (i > 0) {
		return s, listKinds[i], true
	}
	return nil, listKind{}, false
}

// decideList takes in a list of definitions and allows showing those of them
// that Finish will leave in.
func (g *Gate) decideList(ctx context.Context, d *draft) (act.Ticket, error) {
	s, l, ok := d.run.listed(d.req.Tool)
	if !ok {
		return g.settle(ctx, d, refuse(act.CodeUnknown, "there is no list %q; the servers are %s", d.req.Tool, d.run.serverNames()))
	}
	var err error
	switch l.field {
	case "tools":
		err = s.learn(g.o.Pins, d.req.Args)
	case "prompts":
		err = s.learnPrompts(g.o.Pins, d.req.Args)
	default:
		_, err = strictjson.Values(d.req.Args, "/"+l.field+"/*")
	}
	if err != nil {
		return g.settle(ctx, d, refuse(act.CodeInvalid, "%v", err))
	}
	d.res.Effects = []act.Effect{{Kind: act.Call, Resource: act.Resource{Type: act.Tool, Text: s.Name + "." + l.of}, Group: act.Observe}}
	d.res.Bytes = d.req.Args
	return g.settle(ctx, d, nil)
}

// maxHidden bounds how much a list says of what it left out, in bytes.
const maxHidden = 8 << 10

// visible leaves in list what may be seen, byte for byte, and says what it left out and
// why. It answers with an empty list if it cannot read it.
func (g *Gate) visible(r *Run, of string, list []byte) ([]byte, string) {
	s, l, ok := r.listed(of)
	defs, err := strictjson.Values(list, "/"+l.field+"/*")
	if err != nil || !ok {
		return []byte(`{"` + l.field + `":[]}`), "the list of " + l.field + " could not be read"
	}
	unseen := g.unseen(r, s, l)
	var shown [][]byte
	var hidden []string
	for _, def := range defs {
		name, why := unseen(def.Raw)
		if why != "" {
			hidden = append(hidden, fmt.Sprintf("%s.%s (%s)", s.Name, name, why))
			continue
		}
		shown = append(shown, def.Raw)
	}
	out := append([]byte(`{"`+l.field+`":[`), bytes.Join(shown, []byte(","))...)
	return append(out, `]}`...), cut(strings.Join(hidden, ", "), maxHidden)
}

// unseen returns what says why an entry of a list of s may not be seen, "" if it may.
func (g *Gate) unseen(r *Run, s *Server, l listKind) func(def []byte) (name, why string) {
	s.mu.Lock()
	tools, prompts := s.tools, s.prompts
	s.mu.Unlock()
	switch l.field {
	case "tools":
		return func(def []byte) (string, string) { return unseenTool(tools, def) }
	case "prompts":
		return func(def []byte) (string, string) { return unseenPrompt(s, prompts, def) }
	case "resources":
		return func(def []byte) (string, string) {
			uri, _, err := strictjson.Find(def, "/uri")
			if err != nil || uri.Kind != strictjson.String {
				return "", "without a URI"
			}
			return cut(string(uri.Raw), 128), g.never(r, s, "resources/read", slices.Concat([]byte(`{"uri":`), uri.Raw, []byte(`}`)))
		}
	case "resourceTemplates":
		return func([]byte) (string, string) {
			return "", g.never(r, s, "resources/read", []byte(`{"uri":"a.template:"}`))
		}
	}
	return func(def []byte) (string, string) {
		method, err := strictjson.Text(def)
		if err != nil || !policy.IsAsked(method) || s.Annotation == nil {
			return cut(method, 64), "nothing that this client is asked"
		}
		return method, g.never(r, s, method, []byte(`{}`))
	}
}

// never says why a method with those arguments would be denied whatever a person says,
// "" if it might be allowed.
func (g *Gate) never(r *Run, s *Server, method string, args []byte) string {
	j := Evaluate(r, act.Request{Verb: act.VerbCall, Tool: s.Name + "." + method, Args: args}, Given{
		Labels: r.Session.Labels(), Now: g.o.Now(),
	})
	if j.Verdict == act.Deny {
		return string(j.Code)
	}
	return ""
}

// unseenPrompt is [unseenTool] of a prompt.
func unseenPrompt(s *Server, prompts map[string]*prompt, def []byte) (name, why string) {
	name, now, err := readPrompt(def)
	p := prompts[name]
	switch {
	case err != nil || p == nil:
		return name, "not decided"
	case now.Pin != p.Pin:
		return name, "not what was decided"
	case s.Annotation == nil:
		return name, "un-annotated"
	case p.Status != PinApproved:
		return name, string(p.Status)
	}
	return name, ""
}

// unseenTool says why a definition may not be seen, "" if it may. It must be, byte
// for byte in meaning, the one that was decided.
func unseenTool(tools map[string]*Tool, def []byte) (name, why string) {
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
