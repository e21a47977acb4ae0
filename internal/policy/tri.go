package policy

import (
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// A tri says whether a condition holds for the resources of a region: for none,
// for some or we cannot tell, for all.
type tri uint8

const (
	none tri = iota
	some
	every
)

func triOf(b bool) tri {
	if b {
		return every
	}
	return none
}

// A region is a set of resources that a rule is judged for at once: everything
// beneath a directory, itself included, or every URL (or port) of one host.
//
// Where one resource would be put to Cedar, a region is put to the same
// expression, read with three values. What does not depend on the resource is
// evaluated by Cedar itself.
type region struct {
	typ    types.EntityType // of all its resources
	root   *resource        // the directory, or the host with or without port
	near   []*node          // what all of the region is in
	inside []*node          // what some of the region may be in
	env    eval.Env
	errs   []error
}

// holds returns for how much of the region the rule matches.
func (g *region) holds(r *rule) tri { return g.eval(r.node) }

func (g *region) eval(n ast.IsNode) tri {
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		left := g.eval(n.Left)
		if left == none {
			return none
		}
		return min(left, g.eval(n.Right))
	case ast.NodeTypeOr:
		left := g.eval(n.Left)
		if left == every {
			return every
		}
		return max(left, g.eval(n.Right))
	case ast.NodeTypeNot:
		return every - g.eval(n.Arg)
	case ast.NodeTypeIfThenElse:
		return g.choose(n)
	}
	if !g.depends(n) {
		return g.exact(n)
	}
	return g.test(n)
}

func (g *region) choose(n ast.NodeTypeIfThenElse) tri {
	switch g.eval(n.If) {
	case every:
		return g.eval(n.Then)
	case none:
		return g.eval(n.Else)
	}
	if then := g.eval(n.Then); then == g.eval(n.Else) {
		return then
	}
	return some
}

// exact evaluates what is the same for the whole region.
func (g *region) exact(n ast.IsNode) tri {
	v, err := eval.Eval(n, g.env)
	if err != nil {
		g.errs = append(g.errs, err)
		return some
	}
	return triOf(v.Equal(types.True))
}

// depends reports whether n can differ between resources of the region.
func (g *region) depends(n ast.IsNode) bool {
	bare, differs := 0, false
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeVariable:
			if n.Name == "resource" {
				bare++
			}
		case ast.NodeTypeAccess:
			if isResourceVar(n.Arg) {
				bare--
				differs = differs || !g.same(n.Value)
			}
		case ast.NodeTypeHas:
			if isResourceVar(n.Arg) {
				bare--
				differs = differs || !g.same(n.Value)
			}
		}
		return true
	})
	return bare != 0 || differs
}

func isResourceVar(n ast.IsNode) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == "resource"
}

// same reports whether an attribute is the same for the whole region. The class
// of a tree is that of its worst part, which its resolver has looked for.
func (g *region) same(attr types.String) bool {
	switch nameOf(attr) {
	case setOf(nameClass):
		return true
	case setOf(nameHost), setOf(namePrivate):
		return g.root.host != ""
	case setOf(namePort):
		return g.root.port != ""
	}
	return false
}

// test evaluates a test of the resource itself.
func (g *region) test(n ast.IsNode) tri {
	switch n := n.(type) {
	case ast.NodeTypeIs:
		if isResourceVar(n.Left) {
			return triOf(n.EntityType == g.typ)
		}
	case ast.NodeTypeIsIn:
		if isResourceVar(n.Left) {
			return min(triOf(n.EntityType == g.typ), g.inNode(n.Entity))
		}
	case ast.NodeTypeIn:
		if isResourceVar(n.Left) {
			return g.inNode(n.Right)
		}
	case ast.NodeTypeEquals:
		if v, ok := n.Right.(ast.NodeValue); ok && isResourceVar(n.Left) {
			uid, _ := v.Value.(types.EntityUID)
			if uid == g.root.uid {
				return some
			}
			return g.reaches(uid)
		}
	}
	return some
}

// inNode evaluates "resource in n".
func (g *region) inNode(n ast.IsNode) tri {
	switch n := n.(type) {
	case ast.NodeValue:
		uid, ok := n.Value.(types.EntityUID)
		if ok {
			return g.in(uid)
		}
	case ast.NodeTypeSet:
		t := none
		for _, e := range n.Elements {
			t = max(t, g.inNode(e))
		}
		return t
	}
	return some
}

// in returns how much of the region is in uid.
func (g *region) in(uid types.EntityUID) tri {
	for _, n := range g.near {
		if n.uid == uid {
			return every
		}
	}
	return g.reaches(uid)
}

// reaches returns some if uid, or a member of the list that it is, may be
// beneath the root of the region.
func (g *region) reaches(uid types.EntityUID) tri {
	for _, n := range g.inside {
		if n.uid == uid {
			return some
		}
	}
	return none
}
