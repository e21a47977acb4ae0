package constitution

import (
	"reflect"
	"slices"
	"strconv"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// A draft is a clause whose complement is still to be taken.
type draft struct {
	policy.Clause
	at   int // offset of the words "any other"
	bare bool
	all  bool
	rest bool

	byKind bool
}

// clausesOf turns a statement into clauses with one id, and, where it says
// "only", clauses with the next id for what it leaves out.
func (c *compiler) clausesOf(s *statement) ([]draft, *miss) {
	modality, m := c.modality(s)
	if m != nil {
		return nil, m
	}
	g := &grounder{toks: s.words, wide: c.restricts(modality), grant: modality == policy.May, last: s.last}
	var all []deed
	at := s.toks[0].at
	for i := range s.actions {
		a := &s.actions[i]
		c.fromFront(a, s)
		if s.readOnly {
			a.verbs = nil
			g.wide, g.grant = true, false
		}
		all = append(all, g.deeds(*a)...)
	}
	if g.err != nil {
		return nil, g.err
	}
	if s.readOnly {
		for i := range all {
			all[i].kinds = common(all[i].kinds, append(inGroup(act.Mutate), act.Move))
		}
	}
	all = merge(all)
	only := s.only || slices.ContainsFunc(s.actions, func(a action) bool { return a.cond.only })
	if only && modality != policy.May {
		return nil, c.miss(s, 0, "may … only in …", "\"only\" belongs to what is allowed")
	}
	base := c.base(s, modality)
	drafts := c.draftsOf(all, base, at)
	if !only {
		return drafts, nil
	}
	widely := &grounder{toks: s.words, wide: true, last: s.last}
	var held []deed
	for _, a := range s.actions {
		held = append(held, widely.deeds(a)...)
	}
	if widely.err != nil {
		return nil, widely.err
	}
	others, m := c.leftOut(merge(held), s)
	if m != nil {
		return nil, m
	}
	base.Modality, base.Limit = policy.MustNever, nil
	for _, d := range c.draftsOf(others, base, at) {
		d.ID = "" // the next id
		drafts = append(drafts, d)
	}
	return drafts, nil
}

func (c *compiler) draftsOf(all []deed, base policy.Clause, at int) []draft {
	var drafts []draft
	for _, d := range all {
		cl := base
		cl.Tools, cl.Kinds, cl.Groups, cl.On, cl.Except, cl.When = d.tools, d.kinds, d.groups, d.on, d.except, d.when
		drafts = append(drafts, draft{Clause: cl, at: at, bare: d.bare, all: d.all, rest: d.rest, byKind: d.byKind})
	}
	return drafts
}

// modality combines the modal words of s with what it says about approval.
func (c *compiler) modality(s *statement) (policy.Modality, *miss) {
	said := notSaid
	var q quorum
	for i, a := range s.actions {
		if a.cond.assent == notSaid {
			continue
		}
		if said != notSaid && said != a.cond.assent {
			return "", c.miss(s, a.at, "write a sentence for each", "the parts of the sentence speak of approval differently")
		}
		if i > 0 && i == len(s.actions)-1 && said == notSaid && s.modality == policy.May && a.cond.assent != noneNeeded {
			return "", c.miss(s, a.at, "write a sentence for each", "the approval may belong to %q alone or to the whole sentence", textOf(s.words[a.at:a.end]))
		}
		said = a.cond.assent
		if a.cond.quorum.set {
			q = a.cond.quorum
		}
	}
	if s.front.assent != notSaid {
		said = s.front.assent
		q = s.front.quorum
	}
	if q.set {
		s.quorum = q
	}
	switch {
	case said == notSaid:
		return s.modality, nil
	case s.modality == policy.May && s.only && said == needed:
		s.only = false
		return policy.MustAsk, nil
	case s.modality == policy.May:
		return map[assent]policy.Modality{noneNeeded: policy.May, needed: policy.MayWithApproval, onlyNeeded: policy.MustAsk}[said], nil
	case s.modality == policy.MustNever && (said == noneNeeded || said == onlyNeeded):
		return policy.MustAsk, nil
	case s.modality == policy.MustAsk && said == onlyNeeded, s.modality == policy.MayWithApproval && said == onlyNeeded:
		return policy.MustAsk, nil
	}
	return "", c.miss(s, 0, "may … with approval; must not … without approval", "what the sentence says about approval contradicts itself")
}

func (c *compiler) miss(s *statement, i int, hint, format string, args ...any) *miss {
	g := grounder{toks: s.words}
	g.fail(i, hint, format, args...)
	return g.err
}

// fromFront gives an action what stands before the subject.
func (c *compiler) fromFront(a *action, s *statement) {
	f := s.front
	a.cond.when = append(slices.Clone(f.when), a.cond.when...)
	a.cond.hours = append(slices.Clone(f.hours), a.cond.hours...)
	a.cond.except = append(slices.Clone(f.except), a.cond.except...)
	for _, m := range s.places {
		if len(a.objects) == 0 {
			a.mods = append(a.mods, m)
		}
		for j := range a.objects {
			a.objects[j].mods = append(slices.Clone(a.objects[j].mods), m)
		}
	}
}

// base returns what the clauses of s have in common.
func (c *compiler) base(s *statement, m policy.Modality) policy.Clause {
	who := s.who
	if len(who) == 0 {
		who = s.frontWho
	}
	cl := policy.Clause{ID: c.nextID(), Modality: m, Who: who, Because: s.front.because, Limit: s.front.limit, Expires: s.front.expires}
	for _, a := range s.actions {
		if a.cond.limit != nil {
			cl.Limit = a.cond.limit
		}
		if a.cond.expires != nil {
			cl.Expires = a.cond.expires
		}
		if a.cond.because != "" {
			cl.Because = a.cond.because
		}
	}
	if q := s.quorum; q.set && (q.count > 1 || q.role != "") && (m == policy.MustAsk || m == policy.MayWithApproval) {
		cl.Quorum = &policy.Quorum{Count: q.count, Role: q.role}
	}
	return cl
}

func (c *compiler) nextID() string {
	c.ordinal++
	return "c" + strconv.Itoa(c.ordinal)
}

// leftOut returns the complement of "only": the same effects on every other
// resource.
func (c *compiler) leftOut(all []deed, s *statement) ([]deed, *miss) {
	var out []deed
	for _, d := range all {
		switch {
		case d.rest || d.all || len(d.except) > 0 || len(d.tools) > 0 || len(d.when) > 0:
			return nil, c.miss(s, 0, "may …; must never …", "\"only\" cannot be taken together with the other conditions: write two sentences")
		case len(d.on) == 0:
			return nil, c.miss(s, 0, "may …; everything else is forbidden", "\"only\" does not say what is left out")
		case !c.opts.Granting && s.only:
			return nil, c.miss(s, 0, "may …; everything else is forbidden", "\"may only\" can be read in two ways in a layer that narrows")
		}
		other := d
		other.on = inverted(d.on)
		out = append(out, other)
	}
	return out, nil
}

// merge joins deeds that one clause can hold without meaning more: first those on
// one type of resource, then those on different types.
func merge(all []deed) []deed {
	var apart, whole []deed
	for _, d := range all {
		if len(d.kinds) == 0 || d.rest || d.all {
			whole = append(whole, d)
			continue
		}
		for _, t := range typesOf(&d) {
			one := d
			one.kinds, one.on = common(d.kinds, ofType(t)), nil
			for _, p := range d.on {
				if p.Type == t {
					one.on = append(one.on, p)
				}
			}
			if t != act.Tool {
				one.groups = nil
			}
			apart = append(apart, one)
		}
	}
	out := fold(fold(apart, alike), apartTypes)
	for i := range out {
		if open := explicit(out[i]); len(out[i].on) > 0 && !slices.ContainsFunc(open, func(p policy.Pattern) bool { return p != (policy.Pattern{Type: p.Type}) }) {
			out[i].on = nil
		}
	}
	return append(out, fold(whole, alike)...)
}

// fold joins pairs as long as join does.
func fold(all []deed, join func(a, b deed) (deed, bool)) []deed {
	var out []deed
next:
	for _, d := range all {
		for i := range out {
			if m, ok := join(out[i], d); ok {
				out[i] = m
				continue next
			}
		}
		out = append(out, d)
	}
	if len(out) < len(all) {
		return fold(out, join)
	}
	return out
}

// sameScope reports whether a and b differ at most in what they do and to what.
func sameScope(a, b deed) bool {
	return a.rest == b.rest && a.all == b.all && a.bare == b.bare && a.byKind == b.byKind && reflect.DeepEqual(a.when, b.when) && reflect.DeepEqual(a.except, b.except)
}

// alike joins deeds on the same type of resource.
func alike(a, b deed) (deed, bool) {
	if !sameScope(a, b) || !slices.Equal(typesOf(&a), typesOf(&b)) {
		return a, false
	}
	sameTools, sameKinds, sameOn := slices.Equal(a.tools, b.tools), slices.Equal(a.kinds, b.kinds), slices.Equal(a.on, b.on)
	sameGroups := slices.Equal(a.groups, b.groups)
	switch {
	case sameTools && sameOn && sameGroups:
		if len(a.kinds) > 0 && len(b.kinds) > 0 {
			a.kinds = ordered(append(slices.Clone(a.kinds), b.kinds...))
		} else {
			a.kinds = nil
		}
	case sameTools && sameOn && sameKinds && len(a.groups) > 0 && len(b.groups) > 0:
		a.groups = union(a.groups, b.groups)
	case sameKinds && sameOn && sameGroups && len(a.tools) > 0 && len(b.tools) > 0:
		a.tools = union(a.tools, b.tools)
	case sameTools && sameKinds && sameGroups && (len(a.on) == 0 || len(b.on) == 0):
		a.on = nil
	case sameTools && sameKinds && sameGroups && !slices.ContainsFunc(append(slices.Clone(a.on), b.on...), func(p policy.Pattern) bool { return p.Not }):
		a.on = union(a.on, b.on)
	default:
		return a, false
	}
	return a, true
}

// apartTypes joins deeds on different types of resource.
func apartTypes(a, b deed) (deed, bool) {
	if !sameScope(a, b) || !slices.Equal(a.tools, b.tools) || len(a.kinds) == 0 || len(b.kinds) == 0 ||
		slices.ContainsFunc(typesOf(&a), func(t act.ResourceType) bool { return slices.Contains(typesOf(&b), t) }) {
		return a, false
	}
	a.on = append(explicit(a), explicit(b)...)
	a.groups = union(a.groups, b.groups)
	a.kinds = ordered(append(slices.Clone(a.kinds), b.kinds...))
	return a, true
}

// explicit returns the patterns of d, with one for every type that it leaves
// open.
func explicit(d deed) []policy.Pattern {
	if len(d.on) > 0 {
		return slices.Clone(d.on)
	}
	var on []policy.Pattern
	for _, t := range typesOf(&d) {
		on = append(on, policy.Pattern{Type: t})
	}
	return on
}

func union[T comparable](a, b []T) []T {
	out := slices.Clone(a)
	for _, x := range b {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}
