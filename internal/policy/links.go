package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	cedarast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Effects are on real paths, so a rule that names a place through a symbolic link
// would match nothing. When a policy is bound, links that it names are followed, once:
// in what restricts, both the name and where it leads count; in what allows, where it
// leads counts, and only if no agent can have made the link.

// A Link is a place that a clause names through a symbolic link.
type Link struct {
	Clause string // with the prefix of its layer; of a list "@name"
	Named  string
	Real   string
	Idle   bool // the clause allows something there, and that does not hold at Real
}

// String says for people what became of it.
func (l Link) String() string {
	s := fmt.Sprintf("%s names %s, which is a link to %s", l.Clause, visible(l.Named), visible(l.Real))
	if l.Idle {
		return s + ": an agent could have made it, so nothing is allowed there; name " + visible(l.Real)
	}
	return s + ": as long as it is when a session begins, that counts too"
}

// Links returns the links that the clauses name, as they were when the policy was
// loaded.
func (p *Policy) Links() []Link { return p.links }

// throughLinks ends the id of the list of where the members of another list lead. No
// list of a person has white space in its name.
const throughLinks = " through links"

// A linker puts what links lead to into the rules and lists of a policy.
type linker struct {
	follow func(path string) (real string, sure bool)
	lists  map[string]List // of the layer
	bind   Binding
	clause string // of the rule
	found  map[string]led
	said   []Link
}

// A led is where a path leads; "" if it goes through no link.
type led struct {
	real string
	sure bool
}

func newLinker(b Binding) *linker {
	if b.Links == nil {
		return nil
	}
	return &linker{follow: b.Links, bind: b, found: map[string]led{}}
}

// led looks a path up, once.
func (k *linker) led(path string) led {
	l, ok := k.found[path]
	if !ok {
		if real, sure := k.follow(path); real != path && canonicalPath(real) {
			l = led{real, sure}
		}
		k.found[path] = l
	}
	return l
}

// of returns where a Path or Repo leads; ok is false if it is none, or has no link.
func (k *linker) of(uid types.EntityUID) (real types.EntityUID, sure, ok bool) {
	if uid.Type != typePath && uid.Type != typeRepo {
		return uid, false, false
	}
	path, repo := strings.CutPrefix(string(uid.ID), "repo:")
	l := k.led(path)
	if l.real == "" {
		return uid, false, false
	}
	real = types.EntityUID{Type: uid.Type, ID: types.String(l.real)}
	if repo {
		real.ID = "repo:" + real.ID
	}
	return real, l.sure, true
}

// say keeps what became of a link, for people.
func (k *linker) say(clause string, named, real types.EntityUID, idle bool) {
	plain := func(u types.EntityUID) string { return strings.TrimPrefix(string(u.ID), "repo:") }
	l := Link{Clause: clause, Named: plain(named), Real: plain(real), Idle: idle}
	if !slices.Contains(k.said, l) {
		k.said = append(k.said, l)
	}
}

// meant returns what a rule that names uid is about, in a test that restricts or allows.
func (k *linker) meant(uid types.EntityUID, restricts bool) []types.EntityUID {
	if uid.Type == typeList {
		return k.meantList(uid, restricts)
	}
	real, sure, ok := k.of(uid)
	if !ok {
		return []types.EntityUID{uid}
	}
	k.say(k.clause, uid, real, !restricts && !sure)
	switch {
	case restricts:
		return []types.EntityUID{uid, real}
	case sure:
		return []types.EntityUID{real}
	}
	return []types.EntityUID{uid}
}

func (k *linker) meantList(list types.EntityUID, restricts bool) []types.EntityUID {
	through := false
	for _, m := range k.lists[string(list.ID)].members() {
		for _, uid := range valid(k.bind.member(m), typePath) {
			if real, sure, ok := k.of(uid); ok {
				k.say("@"+string(list.ID), uid, real, !restricts && !sure)
				through = through || !sure
			}
		}
	}
	if through && restricts {
		return []types.EntityUID{list, {Type: typeList, ID: list.ID + throughLinks}}
	}
	return []types.EntityUID{list}
}

// members returns the entities of a list, in which each member stands for all of uids:
// those and, where no agent can have made a link, where they lead; of the list that is
// named with throughLinks, where the other links lead.
func (k *linker) members(uids []types.EntityUID, through bool) []types.EntityUID {
	var all []types.EntityUID
	if !through {
		all = uids
	}
	for _, uid := range uids {
		if real, sure, ok := k.of(uid); ok && sure != through {
			all = append(slices.Clip(all), real)
		}
	}
	return all
}

// rule returns policy with its links followed.
func (k *linker) rule(local string, policy *cedar.Policy) *cedar.Policy {
	tree := (*ast.Policy)(policy.AST())
	k.clause = local
	out := *tree
	out.Conditions = nil
	restricts := tree.Effect == ast.EffectForbid
	if test, scope := k.scope(tree.Resource, restricts); test != nil {
		out.Resource = scope
		out.Conditions = append(out.Conditions, ast.ConditionType{Condition: ast.ConditionWhen, Body: test})
	}
	for _, c := range tree.Conditions {
		c.Body = k.node(c.Body, restricts == (c.Condition == ast.ConditionWhen))
		out.Conditions = append(out.Conditions, c)
	}
	return cedar.NewPolicyFromAST((*cedarast.Policy)(&out))
}

// scope returns what stands for the resource in the scope of a rule: a wider scope and a
// test. Nil where the scope has no link.
func (k *linker) scope(in ast.IsResourceScopeNode, restricts bool) (ast.IsNode, ast.IsResourceScopeNode) {
	resource := ast.Resource().AsIsNode()
	switch s := in.(type) {
	case ast.ScopeTypeEq:
		if uids := k.meant(s.Entity, restricts); len(uids) > 1 || uids[0] != s.Entity {
			return equalsAny(resource, uids), ast.ScopeTypeIs{Type: s.Entity.Type}
		}
	case ast.ScopeTypeIn:
		if uids := k.meant(s.Entity, restricts); len(uids) > 1 || uids[0] != s.Entity {
			return inAny(resource, uids), ast.ScopeTypeAll{}
		}
	case ast.ScopeTypeIsIn:
		if uids := k.meant(s.Entity, restricts); len(uids) > 1 || uids[0] != s.Entity {
			return inAny(resource, uids), ast.ScopeTypeIs{Type: s.Type}
		}
	}
	return nil, nil
}

func inAny(left ast.IsNode, uids []types.EntityUID) ast.IsNode {
	var tests []ast.Node
	for _, uid := range uids {
		tests = append(tests, ast.NewNode(left).In(ast.Value(uid)))
	}
	return anyOf(tests).AsIsNode()
}

func equalsAny(left ast.IsNode, uids []types.EntityUID) ast.IsNode {
	var tests []ast.Node
	for _, uid := range uids {
		tests = append(tests, ast.NewNode(left).Equal(ast.Value(uid)))
	}
	return anyOf(tests).AsIsNode()
}

// node returns n, a test that restricts or allows, with its links followed. The test of
// an if does both: what it names counts as in what allows.
func (k *linker) node(n ast.IsNode, restricts bool) ast.IsNode {
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		n.Left, n.Right = k.node(n.Left, restricts), k.node(n.Right, restricts)
		return n
	case ast.NodeTypeOr:
		n.Left, n.Right = k.node(n.Left, restricts), k.node(n.Right, restricts)
		return n
	case ast.NodeTypeNot:
		n.Arg = k.node(n.Arg, !restricts)
		return n
	case ast.NodeTypeIfThenElse:
		n.If, n.Then, n.Else = k.node(n.If, false), k.node(n.Then, restricts), k.node(n.Else, restricts)
		return n
	case ast.NodeTypeEquals:
		if uid, ok := entity(n.Right); ok {
			return equalsAny(n.Left, k.meant(uid, restricts))
		}
	case ast.NodeTypeNotEquals:
		if uid, ok := entity(n.Right); ok {
			return ast.Not(ast.NewNode(equalsAny(n.Left, k.meant(uid, !restricts)))).AsIsNode()
		}
	case ast.NodeTypeIn:
		if uids := k.named(n.Right, restricts); uids != nil {
			return inAny(n.Left, uids)
		}
	case ast.NodeTypeIsIn:
		if uids := k.named(n.Entity, restricts); uids != nil {
			return ast.NewNode(n.NodeTypeIs).And(ast.NewNode(inAny(n.Left, uids))).AsIsNode()
		}
	}
	return n
}

func entity(n ast.IsNode) (types.EntityUID, bool) {
	v, ok := n.(ast.NodeValue)
	if !ok {
		return types.EntityUID{}, false
	}
	uid, ok := v.Value.(types.EntityUID)
	return uid, ok
}

// named returns what an entity, or a set of them, is about; nil for anything else.
func (k *linker) named(n ast.IsNode, restricts bool) []types.EntityUID {
	set, ok := n.(ast.NodeTypeSet)
	if !ok {
		set.Elements = []ast.IsNode{n}
	}
	var all []types.EntityUID
	for _, e := range set.Elements {
		uid, ok := entity(e)
		if !ok {
			return nil
		}
		all = append(all, k.meant(uid, restricts)...)
	}
	return all
}

// touches reports whether a rule names a link, itself or in a list.
func (k *linker) touches(r *rule) bool {
	return slices.ContainsFunc(r.uids, func(uid types.EntityUID) bool {
		if uid.Type == typeList {
			for _, m := range k.lists[string(uid.ID)].members() {
				for _, uid := range valid(k.bind.member(m), typePath) {
					if _, _, ok := k.of(uid); ok {
						return true
					}
				}
			}
		}
		_, _, ok := k.of(uid)
		return ok
	})
}
