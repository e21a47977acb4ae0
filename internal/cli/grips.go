package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/config"
	"ringfence/internal/daemon/api"
	"ringfence/internal/policy"
	"ringfence/internal/sandbox"
)

// An explanation is how the policy is held for what "ringfence run" would start.
type explanation struct {
	Program   string `json:"program"`
	Workspace string `json:"workspace"`
	Policy    string `json:"policy"` // "" is the default one
	Tier      string `json:"tier"`
	Network   bool   `json:"network"`
	Hooks     bool   `json:"hooks"`
	ToolsOnly bool   `json:"tools_only"`
	Review    bool   `json:"review"`
	api.Grips
}

// gripsRequest asks how the policy is held for spec.
func (f *execFlags) gripsRequest(conf config.Config, tier string, spec sandbox.Spec) api.GripsRequest {
	r := api.GripsRequest{
		Argv: spec.Argv, Dir: spec.WorkingDir(), Read: spec.ReadOnly, Write: spec.ReadWrite, Hide: spec.Denied,
		Boxed:   tier != sandbox.TierNone && !conf.Box.Permissive, // such a box is perhaps none
		Names:   tier == config.TierNative,
		Network: spec.Network == sandbox.NetworkPolicy, Review: f.review,
	}
	switch spec.Workspace.Mode {
	case sandbox.NoAccess:
	case sandbox.ReadOnly:
		r.Read = append(slices.Clone(r.Read), spec.Workspace.Path)
	case sandbox.ReadWrite:
		r.Write = append(slices.Clone(r.Write), spec.Workspace.Path)
	}
	if g := f.guest; g != nil {
		r.Hooks, r.ToolsOnly = g.hooked, g.toolsOnly
	}
	return r
}

// explained prints how the policy would be held, and starts nothing.
func (f *execFlags) explained(ctx context.Context, s *streams, conf config.Config, tier string, spec sandbox.Spec) error {
	client, err := connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing was changed
	r := f.gripsRequest(conf, tier, spec)
	open := f.open(spec, false, conf.AskNever, services{})
	r.Principal, r.Workspace, r.PolicyDir, r.Never = open.Principal, spec.Workspace.Path, f.policy, open.Ask == api.AskNever
	x := explanation{
		Program: strings.Join(spec.Argv, " "), Workspace: spec.Workspace.Path, Policy: f.policy, Tier: tier,
		Network: r.Network, Hooks: r.Hooks, ToolsOnly: r.ToolsOnly, Review: r.Review,
	}
	if f.guest != nil {
		r.Principal, x.Program = "default/"+f.guest.adapter.Name, f.guest.adapter.Name
	}
	if x.Grips, err = client.Grips(ctx, r); err != nil {
		return err
	}
	return s.value(x, x.text)
}

// grip makes spec what the policy gives, puts on record how it is held, and says what of it
// is not.
func (f *execFlags) grip(ctx context.Context, s *streams, client *api.Client, session string, conf config.Config, tier string, spec sandbox.Spec) (sandbox.Spec, api.Grips, error) {
	if f.verb != "run" {
		return spec, api.Grips{}, nil
	}
	r := f.gripsRequest(conf, tier, spec)
	r.Session = session
	g, err := client.Grips(ctx, r)
	if err != nil {
		return spec, g, err
	}
	s.sayEach("%s", g.Notes)
	if f.guest == nil || !f.guest.adapter.Plain(f.guest.typed) {
		s.sayEach("%s", notHeld(g.Clauses, f.review))
	}
	spec, s.narrowed = narrowed(spec, g)
	return spec, g, nil
}

// narrowed is spec with the trees of g, and its workspace if that lost something by it.
func narrowed(spec sandbox.Spec, g api.Grips) (given sandbox.Spec, workspace string) {
	ws := spec.Workspace.Path
	if spec.Workspace.Mode != sandbox.ReadWrite || slices.Contains(g.Write, ws) {
		return spec, ""
	}
	spec.Workspace.Mode = sandbox.ReadOnly
	spec.ReadWrite = slices.Clone(g.Write)
	return spec, ws
}

// notHeld are short lines about the clauses that are not held exactly.
func notHeld(clauses []api.Gripped, review bool) (lines []string) {
	by := map[policy.Hold][]string{}
	once := false
	for _, c := range clauses {
		by[policy.Hold(c.Hold)] = append(by[policy.Hold(c.Hold)], c.Clause)
		once = once || askedOnce(c)
	}
	var parts []string
	for _, p := range []struct {
		hold  policy.Hold
		words string
	}{{policy.HoldsNot, "not held: "}, {policy.Partly, "held in part: "}} {
		if ids := by[p.hold]; len(ids) > 0 {
			parts = append(parts, p.words+"clause "+joined(ids))
		}
	}
	if len(parts) > 0 {
		lines = append(lines, strings.Join(parts, "; ")+"; \"ringfence run --explain\" with the same arguments says why")
	}
	if once && !review {
		lines = append(lines, "about changes of the workspace you are asked once, for all of them; with --review each waits for you at the end")
	}
	return lines
}

// gripsText says in a few words what an entry "grips" says.
func gripsText(body json.RawMessage) string {
	var e struct {
		Clauses []api.Gripped `json:"clauses"`
	}
	if json.Unmarshal(body, &e) != nil {
		return string(body)
	}
	by := map[policy.Hold][]string{}
	for _, c := range e.Clauses {
		by[policy.Hold(c.Hold)] = append(by[policy.Hold(c.Hold)], c.Clause)
	}
	var parts []string
	for _, p := range []struct {
		hold  policy.Hold
		words string
	}{{policy.Refuses, "refused: "}, {policy.Holds, "held: "}, {policy.Reviews, "reviewed: "}, {policy.Asks, "asked once: "}, {policy.Partly, "held in part: "}, {policy.HoldsNot, "not held: "}} {
		if ids := by[p.hold]; len(ids) > 0 {
			parts = append(parts, p.words+joined(ids))
		}
	}
	return strings.Join(parts, "; ")
}

// maxNamedClauses bounds how many clauses a line names.
const maxNamedClauses = 12

func joined(ids []string) string {
	if more := len(ids) - maxNamedClauses; more > 0 {
		return strings.Join(ids[:maxNamedClauses], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(ids, ", ")
}

// askedOnce reports whether a clause about changes of files is asked about at the start.
func askedOnce(c api.Gripped) bool {
	start := slices.ContainsFunc(c.Grips, func(g api.Grip) bool { return g.Level == string(policy.AtStart) && g.Hold == string(policy.Asks) })
	return start && c.Changes
}

// text is x for people.
func (x explanation) text() string {
	var b strings.Builder
	name := x.Policy
	if name == "" {
		name = "the default policy"
	}
	fmt.Fprintf(&b, "%s in %s, by %s, tier %s\n", x.Program, x.Workspace, name, x.Tier)
	switch x.Verdict {
	case "allow":
		b.WriteString("start:   nobody is asked\n")
	case "escalate":
		fmt.Fprintf(&b, "start:   a person is asked once: %s\n", x.Reason)
	default:
		fmt.Fprintf(&b, "start:   refused: %s\n", x.Reason)
	}
	for _, p := range []struct {
		words string
		trees []string
	}{{"changes:", x.Write}, {"reads:  ", x.Read}, {"without:", x.Absent}, {"fixed:  ", x.Fixed}} {
		if len(p.trees) > 0 {
			fmt.Fprintf(&b, "%s %s\n", p.words, strings.Join(p.trees, ", "))
		}
	}
	network := "none"
	if x.Network {
		network = "what the policy allows, decided on the way out"
	}
	fmt.Fprintf(&b, "network: %s\nhooks:   %s\nreview:  %s\n", network, yes(x.Hooks, "ask before each use of its own tools", "none"), yes(x.Review, "changes of the workspace wait for you", "none"))
	if x.ToolsOnly {
		b.WriteString("tools:   only those of ringfence\n")
	}
	for _, n := range x.Notes {
		fmt.Fprintf(&b, "note:    %s\n", n)
	}
	for _, c := range x.Clauses {
		fmt.Fprintf(&b, "\n%-6s %-9s %s\n", c.Clause, c.Hold, quoted(c.Text))
		for _, g := range c.Grips {
			fmt.Fprintf(&b, "       %-9s %-9s %s\n", g.Level, g.Hold, g.By)
		}
	}
	return b.String()
}

func yes(is bool, then, otherwise string) string {
	if is {
		return then
	}
	return otherwise
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "“" + text + "”"
}
