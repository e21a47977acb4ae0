package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/inspect"
	"ringfence/internal/policy"
)

// What a server is asked, tells or asks that is no call of a tool is decided as one all
// the same, under the name of its method (docs/decisions/0007). Its arguments are the
// params, without what only the transport reads.

// reached is whom a server reaches that asks its client. Which model answers and which
// person is there, the client alone knows.
var reached = map[string]act.Effect{
	"sampling/createMessage": {Kind: act.Infer, Resource: act.Resource{Type: act.Model, Text: "client/any"}},
	"elicitation/create":     {Kind: act.Ask, Resource: act.Resource{Type: act.Person, Text: "client"}},
}

// asks makes the effects of what a server asks of those that its arguments have.
func (d *draft) asks() {
	if !policy.IsAsked(d.tool.Name) {
		return
	}
	d.res.Effects = slices.DeleteFunc(d.res.Effects, func(e act.Effect) bool { return e.Kind == act.Call })
	d.res.Effects = append(d.res.Effects, act.Effect{Kind: act.Answer, Resource: act.Resource{Type: act.Tool, Text: d.req.Tool}})
	if e, ok := reached[d.tool.Name]; ok {
		d.res.Effects = append(d.res.Effects, e)
	}
}

// method finds what the method of s does. It is not pinned, but for a prompt, which is.
func (d *draft) method(s *Server, name string) (*Tool, *refusal) {
	if s.Annotation == nil {
		return nil, refuse(act.CodeUnannotated, "nothing says what server %s does, so it is not asked; a person can draft that with `ringfence annotate-tools --servers FILE %s`", s.Name, s.Name)
	}
	a, ok := s.Annotation.Method(name)
	if !ok {
		return nil, refuse(act.CodeUnknown, "there is no method %q%s", name, meant(name, policy.Methods()))
	}
	t := &Tool{Name: name, Status: PinApproved, Annotation: &a, server: s}
	if uri, _, _ := strictjson.Find(d.req.Args, "/uri"); name == "resources/read" && isFile(uri) {
		a.Reads = nil // a file of this machine is nothing that strangers wrote
	}
	var prompt string
	switch name {
	case "prompts/get":
		prompt = "/name"
	case "completion/complete":
		kind, _, _ := strictjson.Find(d.req.Args, "/ref/type")
		if text, _ := kind.Text(); text == "ref/prompt" {
			prompt = "/ref/name"
		}
		if no := beneathTemplate(d.req.Args); no != nil {
			return nil, no
		}
	}
	if prompt == "" {
		return t, nil
	}
	p, no := s.prompt(d.req.Args, prompt)
	if no != nil {
		return nil, no
	}
	t.Pin = p.Pin
	if name == "prompts/get" {
		t.prompt = p
	}
	return t, nil
}

// beneathTemplate refuses the completion of a template of files with a value that could lead
// out of what is beneath its fixed part, which is all that is decided on.
func beneathTemplate(args []byte) *refusal {
	if uri, _, _ := strictjson.Find(args, "/ref/uri"); !isFile(uri) {
		return nil
	}
	for _, at := range []string{"/argument/value", "/context/arguments/*"} {
		if values, err := strictjson.Values(args, at); err != nil || slices.ContainsFunc(values, leadsOut) {
			return refuse(act.CodeInvalid, `%s completes the name of a file, so it is part of a relative path, without "." and "..", "%%", "\" and "~"`, at)
		}
	}
	return nil
}

// leadsOut reports whether v is not text that stays beneath the directory before it.
func leadsOut(v strictjson.Value) bool {
	text, err := v.Text()
	return err != nil || strings.ContainsAny(text, "%\\\x00") || strings.HasPrefix(text, "/") || strings.HasPrefix(text, "~") ||
		slices.ContainsFunc(strings.Split(text, "/"), func(part string) bool { return part == "." || part == ".." })
}

func isFile(uri strictjson.Value) bool {
	text, err := uri.Text()
	return err == nil && len(text) > 5 && strings.EqualFold(text[:5], "file:")
}

// A prompt is one prompt as its server last listed it.
type prompt struct {
	Pin       string
	Status    PinStatus
	arguments []string // their names
}

// prompt finds the prompt that the argument at pointer names, and refuses one that may
// not be used.
func (s *Server) prompt(args []byte, pointer string) (*prompt, *refusal) {
	at, _, err := strictjson.Find(args, pointer)
	name, terr := at.Text()
	if err != nil || terr != nil {
		return nil, refuse(act.CodeInvalid, "%s must be the name of a prompt", pointer)
	}
	s.mu.Lock()
	prompts := s.prompts
	s.mu.Unlock()
	p := prompts[name]
	switch {
	case p == nil:
		return nil, refuse(act.CodeUnknown, "server %s lists no prompt %q%s", s.Name, cut(name, 64), meant(name, slices.Sorted(maps.Keys(prompts))))
	case p.Status != PinApproved:
		return nil, refuse(act.CodeUnpinned, "the definition of the prompt %s is %s; a person can look at it with `ringfence tools review %s.%s%s`", name, p.Status, s.Name, policy.PromptTool, name)
	}
	return p, nil
}

// check holds the arguments for a prompt against those that it was reviewed with.
func (p *prompt) check(args []byte) error {
	if p == nil {
		return nil
	}
	var given struct {
		Arguments map[string]string `json:"arguments"`
	}
	if err := json.Unmarshal(args, &given); err != nil {
		return errors.New("the arguments of a prompt are one object of strings")
	}
	for _, name := range slices.Sorted(maps.Keys(given.Arguments)) {
		if !slices.Contains(p.arguments, name) {
			return fmt.Errorf("there is no argument %q%s", cut(name, 64), meant(name, p.arguments))
		}
	}
	return nil
}

// learnPrompts takes in the prompts that the server lists now.
func (s *Server) learnPrompts(pins Pins, list []byte) error {
	defs, err := strictjson.Values(list, "/prompts/*")
	if err == nil && len(defs) > maxTools {
		err = fmt.Errorf("%d of them, more than %d", len(defs), maxTools)
	}
	if err != nil {
		return fmt.Errorf("reading prompts of %s: %w", s.Name, err)
	}
	byName := map[string]*prompt{}
	var shown []Definition
	for _, def := range defs {
		name, p, err := readPrompt(def.Raw)
		if err != nil {
			return fmt.Errorf("reading prompts of %s: %w", s.Name, err)
		}
		if byName[name] != nil {
			return fmt.Errorf("reading prompts of %s: %q is listed twice", s.Name, name)
		}
		byName[name] = p
		if !plainName(name) {
			p.Status = PinRejected
			continue
		}
		trusted := s.Annotation != nil && slices.Contains(s.Annotation.Tools[policy.PromptTool+name].Pins, p.Pin)
		shown = append(shown, Definition{Tool: policy.PromptTool + name, Hash: p.Pin, Raw: def.Raw, Trusted: trusted})
	}
	statuses, err := pins.See(s.Name, shown)
	if err != nil {
		return fmt.Errorf("looking up the pins of %s: %w", s.Name, err)
	}
	for i, d := range shown {
		byName[strings.TrimPrefix(d.Tool, policy.PromptTool)].Status = statuses[i]
	}
	s.mu.Lock()
	s.prompts = byName
	s.mu.Unlock()
	return nil
}

func readPrompt(def []byte) (string, *prompt, error) {
	hash, err := policy.DefinitionHash(def)
	if err != nil {
		return "", nil, err
	}
	name, err := nameOf(def)
	if err != nil {
		return "", nil, err
	}
	p := &prompt{Pin: hash}
	names, err := strictjson.Values(def, "/arguments/*/name")
	for _, v := range names {
		text, terr := v.Text()
		err = errors.Join(err, terr)
		p.arguments = append(p.arguments, text)
	}
	return name, p, err
}

// soften makes of what a server asks what its client may be shown: without secrets of
// this machine, and known for the words of a stranger.
func (g *Gate) soften(d *draft) {
	if d.tool == nil || !policy.IsAsked(d.tool.Name) {
		return
	}
	found := g.o.Inspect.ScanFrom(d.res.Bytes, inspect.Result)
	d.res.Bytes = g.o.Inspect.Redact(d.res.Bytes, found)
	d.tool.Annotation.Sets = slices.Concat(d.tool.Annotation.Sets, found.Labels)
}
