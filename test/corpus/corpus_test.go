// Package corpus runs cases that are data: what one call must come to, from the
// English of a constitution to the verdict, through the real compiler, policy
// and gate, with a record in memory and a person who follows the case.
package corpus

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/constitution"
	"ringfence/internal/gate"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/inspect"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
	"ringfence/internal/session"
)

func TestCases(t *testing.T) {
	for _, b := range readCases(t) {
		t.Run(b.file+"/"+b.title, func(t *testing.T) { run(t, b) })
	}
}

// A play is one case under way.
type play struct {
	*machine
	t         *testing.T
	b         block
	lists     map[string]policy.List
	own       map[string]*policy.Annotation
	person    *person
	never     bool
	anySchema bool // servers accept whatever their annotation covers
	gate      *gate.Gate
	run       *gate.Run
	clauses   []policy.Clause
	ticket    act.Ticket
	reply     act.Reply
	escalates []string // what was asked for, last time
}

func run(t *testing.T, b block) {
	p := &play{machine: newMachine(t), t: t, b: b, lists: map[string]policy.List{}, own: map[string]*policy.Annotation{}, person: &person{}}
	for i := 0; i < len(b.steps); i++ {
		s := b.steps[i]
		switch s.kind {
		case "$":
			p.prepare(s)
		case "call":
			if p.gate == nil && !p.open(step{}) {
				return
			}
			p.call(s)
		case "=":
			if p.gate == nil && !p.open(s) {
				return
			}
			p.expect(s)
		case "dispatch":
			if got, want := string(p.ticket.Bytes), p.replacement.Replace(s.text); got != want {
				t.Errorf("line %d: dispatched %s, want %s", s.line, got, want)
			}
		case "ids":
			p.ids(s)
		case "result":
			p.result(s)
		case "labels":
			if got, want := p.reply.Labels, strings.Fields(s.text); !slices.EqualFunc(got, want, func(l act.Label, w string) bool { return string(l) == w }) {
				t.Errorf("line %d: labels %v, want %v", s.line, got, want)
			}
		}
	}
}

func (p *play) prepare(s step) {
	verb, rest, _ := strings.Cut(s.text, " ")
	switch verb {
	case "answer":
		p.person.answer = rest
	case "meanwhile":
		p.person.meanwhile = func() { p.do(rest, s.body) }
	case "never":
		p.never = true
	case "open":
		p.anySchema = true
	case "list":
		name, members, _ := strings.Cut(rest, " =")
		p.lists[name] = policy.List{Members: strings.Fields(members)}
	case "annotation":
		a, err := policy.ParseAnnotation(rest, []byte(s.body))
		p.must(err)
		p.own[rest] = a
	case "cedar":
	default:
		if !p.do(s.text, s.body) {
			p.t.Fatalf("line %d: nobody knows how to %q", s.line, verb)
		}
	}
}

// open compiles the constitution and opens the session. If s expects an error
// it must come, and there is nothing more to run.
func (p *play) open(s step) bool {
	pol, err := p.compile()
	if text, want := strings.CutPrefix(s.text, "error"); want && s.kind == "=" {
		if err == nil {
			p.t.Errorf("line %d: it compiles", s.line)
		} else if _, about, ok := strings.Cut(text, "~ "); ok && !strings.Contains(err.Error(), about) {
			p.t.Errorf("line %d: the error does not mention %q: %v", s.line, about, err)
		}
		return false
	}
	if err != nil {
		p.t.Fatalf("line %d: %v", p.b.line, err)
	}
	p.run = &gate.Run{
		Session: &session.Session{ID: "s", Principal: "default/test", Workspace: p.work, Home: p.home},
		Policy:  pol, Servers: p.servers(), Box: "none", Monitors: policy.NewMonitors(pol.Limits()),
		View: resolve.View{Workspace: p.work, Home: p.home, OwnState: []string{p.machine.own}, Path: []string{"/usr/bin", "/bin"}},
		Ask:  gate.Asking{Never: p.never, Asker: func() any { return nil }},
	}
	p.gate = gate.New(gate.Options{
		Runs:   func(string) (*gate.Run, bool) { return p.run, true },
		Ledger: &memory{}, Desk: p.person, Pins: approving{}, Inspect: &inspect.Inspector{}, Now: time.Now,
		Digest: func(gate.Bound) [32]byte { return [32]byte{} },
	})
	for name, s := range p.run.Servers {
		list := p.tools(name, s.Annotation)
		t, err := p.gate.Decide(context.Background(), act.Request{Session: "s", Verb: act.VerbList, Tool: name, Args: list})
		if err != nil || t.Verdict != act.Allow {
			p.t.Fatalf("listing the tools of %s: %v %s", name, err, t.Reason)
		}
	}
	return true
}

func (p *play) compile() (*policy.Policy, error) {
	bind := policy.Binding{Workspace: p.work, Home: p.home}
	if p.b.cedar != "" {
		pol, _, err := policy.LoadBundle(fstest.MapFS{"policy.cedar": {Data: []byte(p.b.cedar)}}, policy.Options{AllowUnsigned: true, Binding: bind})
		return pol, err
	}
	text := "- " + strings.Join(p.b.constitution, "\n- ") + "\n"
	c, err := constitution.Compile(
		constitution.Source{Name: "case", Text: []byte(p.replacement.Replace(text))},
		constitution.Options{Granting: true, Lists: p.lists})
	if err != nil {
		return nil, err
	}
	p.clauses = c.Clauses
	return policy.Load([]policy.Layer{{Text: c.Cedar, Lists: c.Lists}}, bind)
}

func (p *play) servers() map[string]*gate.Server {
	known, err := policy.Shipped()
	p.must(err)
	servers := map[string]*gate.Server{}
	for name, a := range known {
		servers[name] = &gate.Server{Name: name, Dir: p.work, Annotation: a}
	}
	for name, a := range p.own {
		servers[name] = &gate.Server{Name: name, Dir: p.work, Annotation: a}
	}
	return servers
}

// captures are the lists of real servers, by the annotation that covers them.
var captures = map[string]string{
	"everything": "server-everything", "filesystem": "server-filesystem", "git-mcp-server": "git-mcp-server", "memory": "server-memory",
}

// tools is what a server lists: as captured from the real one, or, for one that
// exists only here, its annotated tools with schemas that accept anything.
func (p *play) tools(name string, a *policy.Annotation) []byte {
	if data, err := os.ReadFile(filepath.Join("tools", captures[name]+".json")); err == nil && !p.anySchema {
		var captured struct {
			Tools json.RawMessage `json:"tools"`
		}
		p.must(json.Unmarshal(data, &captured))
		return append(append([]byte(`{"tools":`), captured.Tools...), '}')
	}
	type tool struct {
		Name   string         `json:"name"`
		Schema map[string]any `json:"inputSchema"`
	}
	var all []tool
	for t := range a.Tools {
		all = append(all, tool{t, map[string]any{"type": "object"}})
	}
	slices.SortFunc(all, func(x, y tool) int { return strings.Compare(x.Name, y.Name) })
	list, err := json.Marshal(map[string]any{"tools": all})
	p.must(err)
	return list
}

func (p *play) call(s step) {
	tool, args, _ := strings.Cut(s.text, " ")
	p.person.asked = nil
	t, err := p.gate.Decide(context.Background(), act.Request{
		Session: "s", Verb: act.VerbCall, Tool: tool, Args: []byte(p.replacement.Replace(args)),
	})
	p.must(err)
	p.ticket, p.escalates = t, p.person.asked
}

// result is what the server answers to the call that was allowed.
func (p *play) result(s step) {
	reply, err := p.gate.Finish(context.Background(), p.ticket, act.Outcome{Body: []byte(s.text)})
	p.must(err)
	p.reply = reply
}

// expect compares the last ticket with "VERDICT [CODE] [~ TEXT]". A person who
// has no script is asked and does not answer, which is what escalate means.
func (p *play) expect(s step) {
	want, text, _ := strings.Cut(s.text, "~ ")
	words := strings.Fields(want)
	got := p.ticket.Verdict.String()
	if got == "deny" && p.person.answer == "" && len(p.escalates) > 0 {
		got = "escalate"
	}
	if got != words[0] || len(words) > 1 && string(p.ticket.Code) != words[1] {
		p.t.Errorf("line %d: %s %s (%v), want %s\nreason: %s\neffects: %v\nasked: %v", s.line, got, p.ticket.Code, p.ticket.Rules, s.text, p.ticket.Reason, p.ticket.Effects, p.escalates)
	}
	if text != "" && !strings.Contains(p.ticket.Reason, text) {
		p.t.Errorf("line %d: the reason does not mention %q: %s", s.line, text, p.ticket.Reason)
	}
}

// ids compares what was asked for, or else the clauses of the deciding rules.
func (p *play) ids(s step) {
	got := p.escalates
	if len(got) == 0 {
		for _, r := range p.ticket.Rules {
			c, _, _ := strings.Cut(r, ".")
			if !slices.Contains(got, c) {
				got = append(got, c)
			}
		}
	}
	if want := strings.Fields(s.text); !slices.Equal(got, want) {
		p.t.Errorf("line %d: %v, want %v\nreason: %s", s.line, got, want, p.ticket.Reason)
	}
}

// A person answers as the case says, after what happens meanwhile.
type person struct {
	answer    string
	meanwhile func()
	asked     []string
}

func (p *person) Ask(_ context.Context, q gate.Question) (gate.Answer, error) {
	for _, a := range q.Asked {
		p.asked = append(p.asked, a.Clause)
	}
	if p.meanwhile != nil {
		p.meanwhile()
	}
	switch p.answer {
	case "yes":
		return gate.Answer{ID: "q", Approved: true, By: []string{"test"}}, nil
	case "no":
		return gate.Answer{ID: "q", Code: act.CodeRefused}, nil
	}
	return gate.Answer{ID: "q", Code: act.CodeNoAnswer}, nil
}

func (p *person) Consume(gate.Answer, [32]byte) error { return nil }

// memory is a record that forgets.
type memory struct{ next int64 }

func (m *memory) Append(_ context.Context, _ bool, entries ...ledger.Entry) ([]ledger.Ref, error) {
	refs := make([]ledger.Ref, len(entries))
	for i, e := range entries {
		refs[i] = ledger.Ref{Session: e.Session, Seq: m.next}
		m.next++
	}
	return refs, nil
}

// approving takes every definition for reviewed.
type approving struct{}

func (approving) See(_ string, shown []gate.Definition) ([]gate.PinStatus, error) {
	return slices.Repeat([]gate.PinStatus{gate.PinApproved}, len(shown)), nil
}
