package policy

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	cedarast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"ringfence/internal/act"
)

// otherwise is the id of the rule by which a layer below the granting one
// permits what it does not speak of.
const otherwise = "otherwise"

// Cedar returns the Cedar text that clauses mean (decision 0002). With granting
// it is the text of the layer that permits nothing by itself, else of a layer
// below it: that permits by default, unless it says "everything else …".
//
// The same clauses give the same bytes. Every rule carries @id ("c3.1"), @clause
// ("c3") and @line, and where they apply @approvers, @limit and @expires; the
// first rule of a clause carries its @text and @because. An error names clause
// and line.
func Cedar(clauses []Clause, granting bool) ([]byte, error) {
	alone := granting || slices.ContainsFunc(clauses, func(c Clause) bool { return c.Rest == RestAll })
	var out bytes.Buffer
	count := map[string]int{}
	for _, c := range clauses {
		g := generator{Clause: c, alone: alone}
		rules, err := g.rules()
		if err != nil {
			return nil, fmt.Errorf("clause %s (line %d): %w", c.ID, c.Line, err)
		}
		for _, r := range rules {
			count[c.ID]++
			g.annotate(r, count[c.ID])
			write(&out, r.policy)
		}
	}
	if !alone {
		write(&out, ast.Permit().Annotate("id", otherwise))
	}
	return out.Bytes(), nil
}

func write(out *bytes.Buffer, p *ast.Policy) {
	if out.Len() > 0 {
		out.WriteByte('\n')
	}
	out.Write(cedar.NewPolicyFromAST((*cedarast.Policy)(p)).MarshalCedar())
	out.WriteByte('\n')
}

// A generator makes the rules of one clause.
type generator struct {
	Clause
	alone bool // the layer permits nothing by itself
}

// A form is one row of the modality table.
type form struct {
	permit, approval bool
}

func (g *generator) forms() ([]form, error) {
	may, withApproval := form{permit: true}, form{permit: true, approval: true}
	never, ask := form{}, form{approval: true}
	table := map[Modality][2][]form{ // alone; below a granting layer
		May:             {{may}, nil},
		MayWithApproval: {{withApproval}, {ask}},
		MustAsk:         {{ask, withApproval}, {ask}},
		MustNever:       {{never}, {never}},
		Advice:          {},
	}
	if g.Rest == RestAll {
		table[MustAsk] = [2][]form{{withApproval}}
		table[MustNever] = [2][]form{}
	}
	row, ok := table[g.Modality]
	if !ok {
		return nil, fmt.Errorf("modality %q is none of may, may-with-approval, must-ask, must-never, advice", clip(string(g.Modality)))
	}
	if g.alone {
		return row[0], nil
	}
	return row[1], nil
}

// A generated is a rule without its annotations.
type generated struct {
	policy   *ast.Policy
	approval bool
}

func (g *generator) rules() ([]generated, error) {
	forms, err := g.forms()
	if err == nil {
		err = g.check()
	}
	if err != nil {
		return nil, err
	}
	var all []generated
	for _, f := range forms {
		if g.Limit != nil && !f.permit {
			return nil, errors.New("a limit narrows only what a clause permits, and this one forbids here")
		}
		units, err := g.units(f)
		if err != nil {
			return nil, err
		}
		for _, u := range units {
			p, err := g.policy(f, u)
			if err != nil {
				return nil, err
			}
			all = append(all, generated{p, f.approval})
		}
	}
	return all, nil
}

// check returns an error for words in the clause that mean nothing.
func (g *generator) check() error {
	kinds, tools := slices.Clone(g.Kinds), slices.Clone(g.Tools)
	for _, e := range g.Except {
		kinds, tools = append(kinds, e.Kinds...), append(tools, e.Tools...)
		if len(e.Tools)+len(e.Kinds)+len(e.On)+len(e.When) == 0 {
			return errors.New("an exception that names nothing")
		}
	}
	for _, k := range kinds {
		if !k.Known() {
			return fmt.Errorf("there is no kind of effect %q", clip(string(k)))
		}
	}
	for _, group := range g.Groups {
		if !slices.Contains(groupsOfCalls, group) {
			return fmt.Errorf("there is no group %q", clip(string(group)))
		}
	}
	for _, t := range tools {
		if server, tool, _ := strings.Cut(t, "."); server == "" || tool == "" {
			return fmt.Errorf(`the tool %q is not "server.tool" or "server.*"`, clip(t))
		}
	}
	for _, who := range g.Who {
		if who == "" || strings.Contains(who, "/") && !wellFormedPrincipal(who) {
			return fmt.Errorf(`%q is not "persona" or "persona/agent"`, clip(who))
		}
	}
	if l := g.Limit; l != nil && (l.Count < 1 || l.Count > maxLimit || l.Window < 0) {
		return fmt.Errorf("a limit of %d in %v: the count must be 1 to %d, and the time not negative", l.Count, l.Window, maxLimit)
	}
	if !wellFormedID(g.ID) || g.ID == "" {
		return fmt.Errorf("the id %q is not well formed", clip(g.ID))
	}
	return nil
}

func (g *generator) annotate(r generated, n int) {
	p := r.policy
	p.Annotate("id", types.String(g.ID+"."+strconv.Itoa(n)))
	p.Annotate("clause", types.String(g.ID))
	p.Annotate("line", types.String(strconv.Itoa(g.Line)))
	if n == 1 {
		p.Annotate("text", types.String(g.Text))
		if g.Because != "" {
			p.Annotate("because", types.String(g.Because))
		}
	}
	if r.approval && g.Quorum != nil {
		p.Annotate("approvers", types.String(g.Quorum.String()))
	}
	if g.Limit != nil {
		p.Annotate("limit", types.String(g.Limit.String()))
	}
	if g.Expires != nil {
		p.Annotate("expires", types.String(g.Expires.UTC().Format(time.RFC3339)))
	}
}

// A unit is what one rule is about.
type unit struct {
	kinds []act.Kind // empty: all
	on    act.ResourceType
	match matcher
	terms []ast.Node // further conditions on the resource
	guard bool       // leave private hosts out
}

// units splits the clause by what a rule can have as its scope: one for each
// pattern that is an entity, one for all other patterns of a type.
func (g *generator) units(f form) ([]unit, error) {
	if len(g.On) == 0 {
		return g.open(f), nil
	}
	var units []unit
	for _, on := range typesOf(g.On) {
		kinds := g.kindsOn(on)
		if len(kinds) == 0 {
			return nil, fmt.Errorf("no effect it speaks of is on a %s", on)
		}
		matched, err := g.matched(f, on)
		if err != nil {
			return nil, err
		}
		for _, u := range matched {
			u.kinds, u.on = kinds, on
			u.guard = f.permit && isNetwork(on) && !u.match.special
			if on == act.Tool && len(g.Groups) > 0 {
				u.terms = append(u.terms, inGroups(g.Groups))
			}
			units = append(units, u)
		}
	}
	return units, nil
}

func isNetwork(t act.ResourceType) bool { return t == act.Host || t == act.URL || t == act.Remote }

// anyNetwork reports whether one of kinds, all if there are none, is on a host.
func anyNetwork(kinds []act.Kind) bool {
	return len(kinds) == 0 || slices.ContainsFunc(kinds, func(k act.Kind) bool { return isNetwork(k.On()) })
}

// pushes splits a clause that permits pushing and names no place: it permits
// pushing to the remotes that the repository has, because a remote that an agent
// names as a URL could be anybody's. Nil for every other clause. A person who is
// asked sees the URL, so approvals are not narrowed.
func (g *generator) pushes(f form) []unit {
	pushing := func(k act.Kind) bool { return k == act.GitPush || k == act.GitForce }
	if !f.permit || f.approval || !slices.ContainsFunc(g.Kinds, pushing) ||
		slices.ContainsFunc(g.Kinds, func(k act.Kind) bool { return k.On() != act.Remote }) {
		return nil
	}
	var push, rest []act.Kind
	for _, k := range g.Kinds {
		if pushing(k) {
			push = append(push, k)
		} else {
			rest = append(rest, k)
		}
	}
	known := ast.Resource().Has(act.FactConfigured).And(ast.Resource().Access(act.FactConfigured))
	units := []unit{{kinds: push, terms: []ast.Node{known}, guard: true}}
	if rest != nil {
		units = append(units, unit{kinds: rest, guard: true})
	}
	return units
}

// open returns the units of a clause that names no resources.
func (g *generator) open(f form) []unit {
	if units := g.pushes(f); units != nil {
		return units
	}
	if len(g.Groups) == 0 {
		return []unit{{kinds: g.Kinds, guard: f.permit && anyNetwork(g.Kinds)}}
	}
	var units []unit
	if rest := slices.DeleteFunc(slices.Clone(g.Kinds), func(k act.Kind) bool { return k == act.Call }); len(rest) > 0 {
		units = append(units, unit{kinds: rest, guard: f.permit && anyNetwork(rest)})
	}
	for _, group := range g.Groups {
		uid := uid(typeGroup, string(group))
		units = append(units, unit{kinds: []act.Kind{act.Call}, on: act.Tool, match: matcher{uid: uid}})
	}
	return units
}

func inGroups(groups []act.Group) ast.Node {
	var tests []ast.Node
	for _, group := range groups {
		tests = append(tests, ast.Resource().In(ast.Value(uid(typeGroup, string(group)))))
	}
	return anyOf(tests)
}

// matched returns the units of the patterns of one type.
func (g *generator) matched(f form, on act.ResourceType) ([]unit, error) {
	var units []unit
	var named, others []ast.Node
	for _, p := range g.On {
		if p.Type != on {
			continue
		}
		m, err := p.matcher(!f.permit != p.Not)
		switch {
		case err != nil:
			return nil, err
		case p.Not:
			others = append(others, ast.Not(m.expr()))
		case m.uid.IsZero() && m.cond != nil:
			named = append(named, *m.cond)
		default:
			units = append(units, unit{match: m})
		}
	}
	if named != nil {
		units = append(units, unit{terms: []ast.Node{anyOf(named)}})
	}
	if others != nil {
		units = append(units, unit{terms: []ast.Node{allOf(others)}})
	}
	return units, nil
}

func typesOf(on []Pattern) []act.ResourceType {
	var all []act.ResourceType
	for _, p := range on {
		if !slices.Contains(all, p.Type) {
			all = append(all, p.Type)
		}
	}
	return all
}

// kindsOn returns the kinds on a type of resource that the clause speaks of.
func (g *generator) kindsOn(on act.ResourceType) []act.Kind {
	var kinds []act.Kind
	for _, k := range allKinds {
		named := len(g.Kinds) == 0 && len(g.Groups) == 0 || slices.Contains(g.Kinds, k) || k == act.Call && len(g.Groups) > 0
		if named && k.On() == on {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// policy builds one rule.
func (g *generator) policy(f form, u unit) (*ast.Policy, error) {
	p := ast.Forbid()
	if f.permit {
		p = ast.Permit()
	}
	g.scope(p, u)
	when, err := g.when(f, u)
	if err != nil {
		return nil, err
	}
	if len(when) > 0 {
		p.When(allOf(when))
	}
	except, err := g.except(f, u)
	if err != nil {
		return nil, err
	}
	if len(except) > 0 {
		p.Unless(anyOf(except))
	}
	if u.guard {
		private := ast.Resource().Access("private")
		if u.on == "" {
			private = ast.Resource().Has("private").And(private)
		}
		p.Unless(private)
	}
	if f.approval {
		approved := ast.Context().Access("approved").Contains(ast.String(g.ID))
		if f.permit {
			return p.When(approved), nil
		}
		return p.Unless(approved), nil
	}
	return p, nil
}

func (g *generator) scope(p *ast.Policy, u unit) {
	if len(g.Who) == 1 {
		persona, _, whole := strings.Cut(g.Who[0], "/")
		if whole {
			p.PrincipalEq(uid(typeAgent, g.Who[0]))
		} else {
			p.PrincipalIn(uid(typePersona, persona))
		}
	}
	if len(u.kinds) == 1 {
		p.ActionEq(actionUID(u.kinds[0]))
	}
	if len(u.kinds) > 1 {
		p.ActionInSet(actionUIDs(u.kinds)...)
	}
	on := types.EntityType(u.on)
	switch {
	case u.on == "":
	case u.match.uid.IsZero():
		p.ResourceIs(on)
	case u.match.eq:
		p.ResourceEq(u.match.uid)
	default:
		p.ResourceIsIn(on, u.match.uid)
	}
}

func actionUIDs(kinds []act.Kind) []types.EntityUID {
	var uids []types.EntityUID
	for _, k := range kinds {
		uids = append(uids, actionUID(k))
	}
	return uids
}

// when returns what must hold for a rule besides its scope.
func (g *generator) when(f form, u unit) ([]ast.Node, error) {
	all := slices.Clone(u.terms)
	if u.match.cond != nil {
		all = append(all, *u.match.cond)
	}
	if len(g.Who) > 1 {
		var tests []ast.Node
		for _, who := range g.Who {
			if strings.Contains(who, "/") {
				tests = append(tests, ast.Principal().Equal(ast.Value(uid(typeAgent, who))))
			} else {
				tests = append(tests, ast.Principal().In(ast.Value(uid(typePersona, who))))
			}
		}
		all = append(all, anyOf(tests))
	}
	if len(g.Tools) > 0 {
		all = append(all, ofTools(g.Tools))
	}
	for _, c := range g.When {
		n, err := c.node(!f.permit)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	if g.Limit != nil {
		counts, id := ast.Context().Access("counts"), ast.String(g.ID)
		all = append(all, counts.HasTag(id).And(counts.GetTag(id).LessThan(ast.Long(g.Limit.Count))))
	}
	return all, nil
}

// ofTools tests that the call is of one of tools, "server.tool" or "server.*".
func ofTools(tools []string) ast.Node {
	var tests []ast.Node
	for _, t := range tools {
		if server, ok := strings.CutSuffix(t, ".*"); ok {
			tests = append(tests, ast.Context().Access("tool").In(ast.Value(uid(typeServer, server))))
		} else {
			tests = append(tests, ast.Context().Access("tool").Equal(ast.Value(uid(typeTool, t))))
		}
	}
	return ast.Context().Has("tool").And(anyOf(tests))
}
