package policy

import (
	"slices"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	"ringfence/internal/act"
)

// A tri says for which of the resources in question a condition holds.
type tri uint8

const (
	none  tri = iota
	some      // for some, or it cannot be told
	every     // for all; for the one resource that is in question
)

func triOf(b bool) tri {
	if b {
		return every
	}
	return none
}

// A scene is what rules are read against: the facts of one part of an effect,
// and what is approved. It walks the expression that Cedar would evaluate. The
// tests that compiled clauses consist of are answered in place; every other
// expression is left to Cedar's own evaluator.
//
// Where a region is in question, the same expression is read with three values.
type scene struct {
	*sheet
	judge *judge
	now   approved
	env   *eval.Env // for Cedar's evaluator, made when first needed
	err   error
}

// eval returns for how much of what is in question n holds. After an error, which
// is in c.err, the answer means nothing.
func (c *scene) eval(n ast.IsNode) tri {
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		left := c.eval(n.Left)
		if left == none {
			return none
		}
		return min(left, c.eval(n.Right))
	case ast.NodeTypeOr:
		left := c.eval(n.Left)
		if left == every {
			return every
		}
		return max(left, c.eval(n.Right))
	case ast.NodeTypeNot:
		return every - c.eval(n.Arg)
	case ast.NodeTypeIfThenElse:
		return c.choose(n)
	}
	if t, ok := c.test(n); ok {
		return t
	}
	if c.region && c.differs(n) {
		return some
	}
	return c.cedar(n)
}

func (c *scene) choose(n ast.NodeTypeIfThenElse) tri {
	switch c.eval(n.If) {
	case every:
		return c.eval(n.Then)
	case none:
		return c.eval(n.Else)
	default:
		if then := c.eval(n.Then); then == c.eval(n.Else) {
			return then
		}
		return some
	}
}

// cedar leaves n to Cedar.
func (c *scene) cedar(n ast.IsNode) tri {
	if c.env == nil {
		env := c.judge.env(c.sheet, c.now)
		c.env = &env
	}
	v, err := eval.Eval(n, *c.env)
	if err != nil {
		c.err = err
		return some
	}
	return triOf(v.Equal(types.True))
}

// test answers the tests that clauses are compiled to; ok is false for others.
func (c *scene) test(n ast.IsNode) (t tri, ok bool) {
	switch n := n.(type) {
	case ast.NodeTypeIn:
		return c.testIn(n.Left, n.Right)
	case ast.NodeTypeIs:
		return triOf(c.uidType() == n.EntityType), isVar(n.Left, "resource")
	case ast.NodeTypeIsIn:
		t, ok := c.testIn(n.Left, n.Entity)
		return min(t, triOf(c.uidType() == n.EntityType)), ok && isVar(n.Left, "resource")
	case ast.NodeTypeEquals:
		return c.equal(n.Left, n.Right)
	case ast.NodeTypeNotEquals:
		t, ok := c.equal(n.Left, n.Right)
		return every - t, ok
	case ast.NodeTypeHas:
		return c.testHas(n)
	case ast.NodeTypeHasTag:
		_, known := c.tag(n.BinaryNode)
		return triOf(known == given), known != other
	case ast.NodeTypeContains:
		return c.contains(n.Left, n.Right)
	case ast.NodeTypeLessThan:
		return c.compare(n.Left, n.Right, func(a, b types.Long) bool { return a < b })
	case ast.NodeTypeLessThanOrEqual:
		return c.compare(n.Left, n.Right, func(a, b types.Long) bool { return a <= b })
	case ast.NodeTypeGreaterThan:
		return c.compare(n.Left, n.Right, func(a, b types.Long) bool { return a > b })
	case ast.NodeTypeGreaterThanOrEqual:
		return c.compare(n.Left, n.Right, func(a, b types.Long) bool { return a >= b })
	case ast.NodeTypeLike:
		v, known := c.value(n.Arg)
		text, isText := v.(types.String)
		return known.tri(isText && n.Value.Match(text)), isText || known == differs
	}
	v, known := c.value(n)
	b, isBool := v.(types.Boolean)
	return known.tri(bool(b)), isBool || known == differs
}

// uidType is the type of all resources in question.
func (c *scene) uidType() types.EntityType { return types.EntityType(allKinds[c.kind].On()) }

func isVar(n ast.IsNode, name types.String) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == name
}

// isTool reports whether n is context.tool.
func isTool(n ast.IsNode) bool {
	a, ok := n.(ast.NodeTypeAccess)
	return ok && a.Value == "tool" && isVar(a.Arg, "context")
}

// testIn answers "left in right" for an entity or a set of entities.
func (c *scene) testIn(left, right ast.IsNode) (tri, bool) {
	switch right := right.(type) {
	case ast.NodeValue:
		if uid, ok := right.Value.(types.EntityUID); ok {
			return c.in(left, uid)
		}
	case ast.NodeTypeSet:
		t := none
		for _, e := range right.Elements {
			one, ok := c.testIn(left, e)
			if !ok {
				return none, false
			}
			t = max(t, one)
		}
		return t, true
	}
	return none, false
}

func (c *scene) in(left ast.IsNode, uid types.EntityUID) (tri, bool) {
	facts := &c.judge.facts
	switch {
	case isVar(left, "resource"):
		return c.resourceIn(uid), true
	case isVar(left, "principal"):
		return triOf(uid == facts.principal || uid == facts.persona), true
	case isVar(left, "action"):
		a := &c.judge.actions[c.kind]
		return triOf(uid == a.UID || a.Parents.Contains(uid)), true
	case isTool(left) && uid.Type != typeGroup:
		return triOf(uid == facts.tool || uid == facts.server), c.judge.q.Tool != ""
	}
	return none, false
}

// resourceIn returns how much of what is in question is in uid.
func (c *scene) resourceIn(uid types.EntityUID) tri {
	near := uid == c.res.uid && !c.region || slices.ContainsFunc(c.near, func(n *node) bool { return n.uid == uid })
	switch {
	case near && c.region && uid.Type == typeRepo: // nothing is in a repository but itself
		return some
	case near:
		return every
	}
	return c.reaches(uid)
}

// reaches returns some if uid, or a member of the list that it is, may be in the
// region.
func (c *scene) reaches(uid types.EntityUID) tri {
	if slices.ContainsFunc(c.inside, func(n *node) bool { return n.uid == uid }) {
		return some
	}
	return none
}

// equal answers "left == right".
func (c *scene) equal(left, right ast.IsNode) (tri, bool) {
	if v, ok := right.(ast.NodeValue); ok {
		if uid, ok := v.Value.(types.EntityUID); ok {
			return c.is(left, uid)
		}
	}
	a, known := c.value(left)
	b, alsoKnown := c.value(right)
	if known == other || alsoKnown == other {
		return none, false
	}
	return min(known, alsoKnown).tri(known == given && alsoKnown == given && a.Equal(b)), true
}

// is answers "left == uid".
func (c *scene) is(left ast.IsNode, uid types.EntityUID) (tri, bool) {
	switch {
	case isVar(left, "resource") && !c.region:
		return triOf(c.res.uid == uid), true
	case isVar(left, "resource") && c.res.uid == uid:
		return some, true
	case isVar(left, "resource"):
		return c.reaches(uid), true
	case isVar(left, "principal"):
		return triOf(c.judge.facts.principal == uid), true
	case isVar(left, "action"):
		return triOf(c.judge.actions[c.kind].UID == uid), true
	case isTool(left):
		return triOf(c.judge.facts.tool == uid), c.judge.q.Tool != ""
	}
	return none, false
}

// testHas answers "x has attribute" for the resource and the context.
func (c *scene) testHas(n ast.NodeTypeHas) (tri, bool) {
	name := nameOf(n.Value)
	switch {
	case isVar(n.Arg, "resource") && c.region && !c.same(name):
		return min(some, triOf(c.res.couldHave(name))), true
	case isVar(n.Arg, "resource"):
		return triOf(c.res.has&name != 0), true
	case isVar(n.Arg, "context") && name == setOf(nameTool):
		return triOf(c.judge.q.Tool != ""), true
	case isVar(n.Arg, "context") && name == setOf(nameHour):
		return triOf(!c.judge.q.Now.IsZero()), true
	}
	return none, false
}

// contains answers "set.contains(x)".
func (c *scene) contains(left, right ast.IsNode) (tri, bool) {
	x, known := c.value(right)
	text, isText := x.(types.String)
	if a, ok := left.(ast.NodeTypeAccess); ok && isText {
		switch {
		case isVar(a.Arg, "context") && a.Value == "approved":
			return triOf(slices.Contains(c.now.ids, string(text))), true
		case a.Value == "labels":
			return triOf(slices.Contains(c.judge.q.Labels, act.Label(text))), true
		}
	}
	v, alsoKnown := c.value(left)
	set, isSet := v.(types.Set)
	if known != given || !isSet {
		return some, known != other && alsoKnown == differs
	}
	return triOf(set.Contains(x)), true
}

// compare answers the comparison of two whole numbers.
func (c *scene) compare(left, right ast.IsNode, holds func(a, b types.Long) bool) (tri, bool) {
	a, known := c.value(left)
	b, alsoKnown := c.value(right)
	x, isLong := a.(types.Long)
	y, alsoLong := b.(types.Long)
	if isLong && alsoLong {
		return triOf(holds(x, y)), true
	}
	return some, min(known, alsoKnown) == differs
}

// knowledge says what is known of a value.
type knowledge uint8

const (
	other   knowledge = iota // nothing: it is left to Cedar
	differs                  // that it may differ within the region
	given                    // the value
	absent                   // that there is none
)

// tri returns what a test with the answer b says.
func (k knowledge) tri(b bool) tri {
	if k == differs {
		return some
	}
	return triOf(b)
}

// value returns the value of an expression where that takes no more than to look
// it up.
func (c *scene) value(n ast.IsNode) (types.Value, knowledge) {
	switch n := n.(type) {
	case ast.NodeValue:
		return n.Value, given
	case ast.NodeTypeGetTag:
		v, known := c.tag(n.BinaryNode)
		if known == given {
			return v, given
		}
	case ast.NodeTypeAccess:
		switch {
		case isVar(n.Arg, "resource") && c.region && !c.same(nameOf(n.Value)):
			return nil, differs
		case isVar(n.Arg, "resource"):
			return c.attribute(n.Value)
		case isVar(n.Arg, "context") && n.Value == "hour" && !c.judge.q.Now.IsZero():
			return hour(c.judge.q.Now), given
		}
	}
	return nil, other
}

// attribute returns an attribute of the resource. One that is absent is read by no
// rule that was validated, and is left to Cedar to report.
func (c *scene) attribute(name types.String) (val types.Value, known knowledge) {
	for _, v := range c.res.values {
		if nameTexts[v.name] == name {
			val, known = v.val, given
		}
	}
	return val, known
}

// same reports whether an attribute is the same for the whole region. The class
// of a tree is that of its worst part, which its resolver has looked for.
func (c *scene) same(name nameSet) bool {
	switch name {
	case setOf(nameClass):
		return true
	case setOf(nameHost), setOf(namePrivate):
		return c.res.host != ""
	case setOf(namePort):
		return c.res.port != ""
	}
	return false
}

// tag returns an argument of the call, or the count of a clause.
func (c *scene) tag(n ast.BinaryNode) (types.Value, knowledge) {
	of, _ := n.Left.(ast.NodeTypeAccess)
	key, _ := n.Right.(ast.NodeValue)
	name, ok := key.Value.(types.String)
	if !ok {
		return nil, other
	}
	if of.Value == "counts" {
		return c.judge.count(string(name))
	}
	switch v := c.judge.q.Args[string(name)].(type) {
	case string:
		return types.String(v), argOf(of.Value == "text")
	case int64:
		return types.Long(v), argOf(of.Value == "number")
	case bool:
		return types.Boolean(v), argOf(of.Value == "flag")
	}
	return nil, absent
}

func argOf(is bool) knowledge {
	if is {
		return given
	}
	return absent
}

// differs reports whether n reads something of the resource that is not the same
// for the whole region.
func (c *scene) differs(n ast.IsNode) bool {
	bare, differ := 0, false
	read := func(of ast.IsNode, attr types.String) {
		if isVar(of, "resource") {
			bare--
			differ = differ || !c.same(nameOf(attr))
		}
	}
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeVariable:
			if n.Name == "resource" {
				bare++
			}
		case ast.NodeTypeAccess:
			read(n.Arg, n.Value)
		case ast.NodeTypeHas:
			read(n.Arg, n.Value)
		}
		return true
	})
	return bare != 0 || differ
}
