package gate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
	"ringfence/internal/policy"
)

// A Server is one MCP server of a session: what is known of its tools.
type Server struct {
	Name       string
	Dir        string             // its working directory, which relative paths are resolved against
	Pin        string             // what is started as this server, hashed
	Annotation *policy.Annotation // nil: nothing says what its tools do
	// Boxes says that its calls start commands in boxes of their own, which may change
	// the directory that they are given to read, and Changes. Each box is decided on by
	// itself (act.VerbExec), and a person is asked about all of it with the call.
	Boxes   bool
	Changes []string
	// Hosts are where what its box sends may go, as far as the policy allows it too.
	Hosts []weburl.Site

	mu      sync.Mutex
	tools   map[string]*Tool
	prompts map[string]*prompt
	box     string // what confines it, as its launcher reported; "" until then
}

// SetBox says what confines the server from now on.
func (s *Server) SetBox(box string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.box = box
}

func (s *Server) confinedBy() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.box
}

// A Tool is one tool as its server last listed it.
type Tool struct {
	Name       string
	Pin        string // definition hash
	Status     PinStatus
	Annotation *policy.ToolAnnotation // nil: un-annotated

	server *Server
	schema *schema // nil: the server gives none, which leaves checking to the annotation
	prompt *prompt // that the method prompts/get is about
	broken string  // why the schema cannot be used; every call is refused
}

// maxTools bounds how many tools a server may list.
const maxTools = 4096

// learn takes in what the server lists now.
func (s *Server) learn(pins Pins, list []byte) error {
	defs, err := strictjson.Values(list, "/tools/*")
	if err != nil {
		return fmt.Errorf("reading tools of %s: %w", s.Name, err)
	}
	if len(defs) > maxTools {
		return fmt.Errorf("reading tools of %s: %d tools, more than %d", s.Name, len(defs), maxTools)
	}
	byName := map[string]*Tool{}
	shown := make([]Definition, 0, len(defs))
	for _, def := range defs {
		t, trusted, err := s.tool(def.Raw)
		if err != nil {
			return fmt.Errorf("reading tools of %s: %w", s.Name, err)
		}
		if byName[t.Name] != nil {
			return fmt.Errorf("reading tools of %s: %q is listed twice", s.Name, t.Name)
		}
		byName[t.Name] = t
		if !plainName(t.Name) {
			t.Status = PinRejected // nobody is asked to look at a name that may hold anything
			continue
		}
		shown = append(shown, Definition{Tool: t.Name, Hash: t.Pin, Raw: def.Raw, Trusted: trusted})
	}
	statuses, err := pins.See(s.Name, shown)
	if err != nil {
		return fmt.Errorf("looking up the pins of %s: %w", s.Name, err)
	}
	for i, d := range shown {
		byName[d.Tool].Status = statuses[i]
	}
	s.mu.Lock()
	s.tools = byName
	s.mu.Unlock()
	return nil
}

// Repin tells a server that a person reviewed the definition hash of tool.
func (s *Server) Repin(tool, hash string, status PinStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name, ok := strings.CutPrefix(tool, policy.PromptTool); ok {
		if p := s.prompts[name]; p != nil && p.Pin == hash {
			next := *p
			next.Status = status
			s.prompts = maps.Clone(s.prompts)
			s.prompts[name] = &next
		}
		return
	}
	t := s.tools[tool]
	if t == nil || t.Pin != hash {
		return
	}
	next := *t
	next.Status = status
	tools := maps.Clone(s.tools)
	tools[tool] = &next
	s.tools = tools
}

// plainName reports whether name is one of the protocol's, which can be printed,
// typed and told apart: at most 128 of A-Z a-z 0-9 _ - and the full stop.
func plainName(name string) bool {
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.') {
			return false
		}
	}
	return name != "" && len(name) <= 128
}

// nameOf reads the name that every strict reader sees in a definition.
func nameOf(def []byte) (string, error) {
	at, found, err := strictjson.Find(def, "/name")
	if !found {
		return "", errors.Join(errors.New("a definition without a name"), err)
	}
	return strictjson.Text(at.Raw)
}

// tool reads one definition, and says whether it was shipped with us.
func (s *Server) tool(def []byte) (t *Tool, trusted bool, err error) {
	hash, err := policy.DefinitionHash(def)
	if err != nil {
		return nil, false, err
	}
	name, err := nameOf(def)
	if err != nil {
		return nil, false, err
	}
	t = &Tool{Name: name, Pin: hash, server: s}
	if s.Annotation != nil {
		if a, ok := s.Annotation.Tools[t.Name]; ok {
			t.Annotation = &a
			for _, p := range a.Pins {
				trusted = trusted || p == hash
			}
		}
	}
	if t.schema, err = schemaOf(def); err != nil {
		t.broken = err.Error()
	}
	return t, trusted, nil
}

// findTool finds the tool that d calls, and refuses one that may not be called.
func (d *draft) findTool() *refusal {
	server, tool, ok := split(d.req.Tool)
	s := d.run.Servers[server]
	if !ok || s == nil {
		return refuse(act.CodeUnknown, "there is no tool %q: tools are named server.tool, and the servers are %s", d.req.Tool, d.run.serverNames())
	}
	if policy.IsMethod(tool) {
		t, no := d.method(s, tool)
		d.tool = t
		return no
	}
	s.mu.Lock()
	tools := s.tools
	s.mu.Unlock()
	t := tools[tool]
	switch {
	case t == nil:
		return refuse(act.CodeUnknown, "server %s lists no tool %q%s", server, tool, meant(tool, slices.Sorted(maps.Keys(tools))))
	case t.Annotation == nil:
		return refuse(act.CodeUnannotated, "nothing says what the arguments of %s do, so it is not called; a person can draft that with `ringfence annotate-tools --servers FILE %s`", d.req.Tool, server)
	case t.Status != PinApproved:
		return refuse(act.CodeUnpinned, "the definition of %s is %s; a person can look at it with `ringfence tools review %s`", d.req.Tool, t.Status, d.req.Tool)
	}
	d.tool = t
	return nil
}

// meant suggests what was probably meant by name, "" if nothing is near.
func meant(name string, valid []string) string {
	if near := strictjson.Nearest(name, valid); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}
