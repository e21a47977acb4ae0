package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"ringfence/internal/act"
)

// pieces takes the tree p apart at the directories in it that the layer names: the
// first is p without these, each other is one of them without those beneath it. All
// that is in one piece is in the same directories and lists that rules can ask about.
func (l *layer) pieces(p part) []part {
	p.piece = true
	all := []part{p}
	root := p.res.dir()
	for _, n := range l.beneath(root) {
		if n.uid.Type == typePath && n.path != root {
			p.res = all[0].res.at(n.path)
			all = append(all, p)
		}
	}
	return all
}

// inPieces decides about a tree that is not allowed as a whole. It is as the strictest
// of its pieces, so that one permit may hold for some of it and another for the rest.
// What the whole says, a, stands where the pieces say no more.
func (d *decider) inPieces(l *layer, p part, a answer) answer {
	all := l.pieces(p)
	pieces := slices.DeleteFunc(slices.Clone(all), func(o part) bool { return d.leftOut(p.res.dir(), o) })
	if len(all) == 1 {
		return a
	}
	joined, whole := answer{layer: l, verdict: act.Allow}, len(pieces) == len(all)
	for i, p := range pieces {
		one := d.judge(l, []way{{p}})
		joined.join(one)
		if whole && one.verdict == a.verdict && (a.verdict > act.Deny || firstOf(one.rules) == firstOf(a.rules)) {
			if i > 0 {
				a.at, a.once = p.res.dir(), one.once
			}
			return a
		}
	}
	if whole && joined.verdict == a.verdict {
		return a
	}
	return joined
}

// leftOut reports whether a piece of the tree at root is no part of the effect. What is
// absent around the tree says nothing: the tree is there nevertheless.
func (d *decider) leftOut(root string, p part) bool {
	at := p.res.dir()
	in := func(tree string) bool { return tree != root && inDir(tree, root) && inDir(at, tree) }
	return slices.ContainsFunc(d.q.Absent, in) || !allKinds[p.kind].In(act.Observe) && slices.ContainsFunc(d.q.Fixed, in)
}

// firstOf returns the rule that a denial names, nil for the default.
func firstOf(rules []*rule) *rule {
	if len(rules) == 0 {
		return nil
	}
	return rules[0]
}

// join adds what is said of one more piece: what is stricter stands.
func (a *answer) join(o answer) {
	switch {
	case o.verdict > a.verdict:
		return
	case o.verdict < a.verdict:
		*a = o
		return
	}
	a.rules = appendNew(a.rules, o.rules...)
	a.limited = appendNew(a.limited, o.limited...)
	a.ask = appendNew(a.ask, o.ask...)
}

// dir returns the path of a Path or Repo.
func (r *resource) dir() string { return strings.TrimPrefix(string(r.uid.ID), "repo:") }

// at returns the Path or Repo at p, of the type and class of r.
func (r *resource) at(p string) *resource {
	o := &resource{uid: types.EntityUID{Type: r.uid.Type, ID: types.String(p)}}
	if r.uid.Type == typeRepo {
		o.uid.ID = "repo:" + o.uid.ID
	}
	o.parents(p, r.uid.Type == typeRepo)
	for _, v := range r.values {
		if v.name == nameClass {
			o.set(v.name, v.val)
		}
	}
	return o
}
