package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"ringfence/internal/act"
)

// except returns the exceptions that can narrow a unit.
func (g *generator) except(f form, u unit) ([]ast.Node, error) {
	var all []ast.Node
	for _, e := range g.Except {
		var terms []ast.Node
		if len(e.Kinds) > 0 {
			terms = append(terms, ast.Action().In(actionSet(e.Kinds)))
		}
		if len(e.Tools) > 0 {
			terms = append(terms, ofTools(e.Tools))
		}
		on, applies, err := exceptOn(e.On, f, u)
		if err != nil {
			return nil, err
		}
		if !applies || len(e.Kinds) > 0 && len(u.kinds) > 0 && !overlap(e.Kinds, u.kinds) {
			continue
		}
		terms = append(terms, on...)
		for _, c := range e.When {
			n, err := c.node(f.permit)
			if err != nil {
				return nil, err
			}
			terms = append(terms, n)
		}
		all = append(all, allOf(terms))
	}
	return all, nil
}

// exceptOn returns the test of the patterns of an exception, and whether any of
// them can match what the unit is about.
func exceptOn(on []Pattern, f form, u unit) (test []ast.Node, applies bool, err error) {
	var tests []ast.Node
	for _, t := range typesOf(on) {
		var others []ast.Node
		for _, p := range on {
			if p.Type != t {
				continue
			}
			m, err := p.matcher(f.permit != p.Not)
			if err != nil {
				return nil, false, err
			}
			if p.Not {
				others = append(others, ast.Not(m.expr()))
			} else if u.on == "" || u.on == t {
				tests = append(tests, m.typed(t))
			}
		}
		if others != nil && (u.on == "" || u.on == t) {
			tests = append(tests, ast.Resource().Is(types.EntityType(t)).And(allOf(others)))
		}
	}
	if tests != nil {
		return []ast.Node{anyOf(tests)}, true, nil
	}
	return nil, len(on) == 0, nil
}

func actionSet(kinds []act.Kind) ast.Node {
	var nodes []ast.Node
	for _, uid := range actionUIDs(kinds) {
		nodes = append(nodes, ast.Value(uid))
	}
	return ast.Set(nodes...)
}

func overlap(a, b []act.Kind) bool {
	return slices.ContainsFunc(a, func(k act.Kind) bool { return slices.Contains(b, k) })
}

func allOf(nodes []ast.Node) ast.Node {
	n := nodes[0]
	for _, next := range nodes[1:] {
		n = n.And(next)
	}
	return n
}

func anyOf(nodes []ast.Node) ast.Node {
	n := nodes[0]
	for _, next := range nodes[1:] {
		n = n.Or(next)
	}
	return n
}
