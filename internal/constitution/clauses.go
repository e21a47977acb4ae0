package constitution

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

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
	base := c.base(s, modality)
	drafts := c.draftsOf(all, base, at)
	if !only || modality != policy.May {
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
	cl := policy.Clause{ID: c.nextID(), Modality: m, Who: s.who, Because: s.front.because, Limit: s.front.limit, Expires: s.front.expires}
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

// complete takes the complements: "any other" of the clauses before, "everything
// else" of all.
func (c *compiler) complete() {
	var out []draft
	complements := 0
	for i := range c.drafts {
		d := &c.drafts[i]
		if d.rest {
			complements++
		}
		switch {
		case complements > maxComplements:
			c.fail(d.at, "", "more than %d sentences about what is left", maxComplements)
			return
		case !d.rest:
			out = append(out, *d)
		case d.all:
			c.everythingElse(d)
			out = append(out, *d)
		default:
			out = append(out, c.anyOther(d, c.drafts[:i])...)
		}
	}
	for i := range out {
		d := &out[i]
		if c.restricts(d.Modality) {
			d.Except = append(d.Except, lookups(&d.Clause)...)
		}
	}
	c.drafts = out
}

// restricts reports whether clauses of a modality hold something back.
func (c *compiler) restricts(m policy.Modality) bool {
	return m == policy.MustNever || m == policy.MustAsk || m == policy.MayWithApproval && !c.opts.Granting
}

// lookups returns the exception that a restriction needs which leaves a port of
// a host free: a name is looked up for every port at once.
func lookups(cl *policy.Clause) []policy.Exception {
	var hosts []policy.Pattern
	note := func(on []policy.Pattern, free bool) {
		for _, p := range on {
			if host, port := cutPort(p.Site); p.Type == act.Host && p.Not != free && port != "" {
				hosts = union(hosts, []policy.Pattern{{Type: act.Host, Site: host}})
			}
		}
	}
	note(cl.On, false)
	for _, e := range cl.Except {
		if len(e.Kinds) == 0 || slices.Contains(e.Kinds, act.Connect) {
			note(e.On, true)
		}
	}
	if len(hosts) == 0 || len(cl.Kinds) > 0 && !slices.Contains(cl.Kinds, act.Resolve) {
		return nil
	}
	return []policy.Exception{{Kinds: []act.Kind{act.Resolve}, On: hosts}}
}

func (c *compiler) everythingElse(d *draft) {
	d.Rest = policy.RestAll
	d.Kinds, d.On, d.Groups = nil, nil, nil
	if d.Modality == policy.MustAsk {
		d.Modality = policy.MayWithApproval // there is nothing else that would allow it
	}
	if d.Modality == policy.MustNever {
		return
	}
	for _, o := range c.drafts {
		if o.rest && o.all || o.Modality == policy.Advice {
			continue
		}
		e := policy.Exception{Tools: o.Tools, Kinds: o.Kinds, On: o.On}
		if len(o.Groups) > 0 && d.Modality != policy.May {
			e.Kinds = slices.DeleteFunc(slices.Clone(o.Kinds), func(k act.Kind) bool { return k == act.Call })
		}
		if len(e.Tools)+len(e.Kinds)+len(e.On) == 0 {
			continue
		}
		d.Except = append(d.Except, e)
		d.Covers = union(d.Covers, []string{o.ID})
	}
}

// anyOther returns the clauses for the complement of what the earlier clauses
// name: the resources they do not speak of, and those that they except.
func (c *compiler) anyOther(d *draft, earlier []draft) []draft {
	d.Rest = policy.RestSame
	kinds := d.Kinds
	if d.bare {
		kinds = nil
		for _, e := range earlier {
			if e.ID != d.ID {
				kinds = append(kinds, common(e.Kinds, d.Kinds)...)
			}
		}
		kinds = ordered(kinds)
	}
	types := typesOf(&deed{kinds: kinds})
	var extra []draft
	for _, e := range earlier {
		shared := common(e.Kinds, kinds)
		if len(kinds) == 0 {
			shared = e.Kinds
		}
		if len(e.Kinds) == 0 && len(e.On) > 0 {
			shared = kinds
		}
		on := ofTypes(e.On, types)
		if d.byKind && e.ID != d.ID && !e.rest && e.Modality != policy.Advice && (len(shared) > 0 || len(e.Tools) > 0 && len(e.Kinds) == 0) {
			d.Except = append(d.Except, policy.Exception{Tools: e.Tools, Kinds: shared, On: on})
			d.Covers = union(d.Covers, []string{e.ID})
			continue
		}
		if e.ID == d.ID || e.rest || e.Modality == policy.Advice || len(shared) == 0 || len(on) == 0 {
			continue
		}
		x := policy.Exception{On: on}
		if len(shared) < len(kinds) {
			x.Kinds = shared
		}
		d.Except = append(d.Except, x)
		if hosts := hostsOf(on); len(hosts) > 0 && slices.Contains(kinds, act.Connect) && !slices.Contains(shared, act.Connect) {
			d.Except = append(d.Except, policy.Exception{Kinds: []act.Kind{act.Resolve, act.Connect}, On: hosts})
		}
		d.Covers = union(d.Covers, []string{e.ID})
		for _, left := range e.Except {
			if back := ofTypes(left.On, types); len(back) > 0 && len(left.When) == 0 && len(d.On) == 0 {
				again := *d
				again.Kinds, again.On, again.Except = shared, back, nil
				extra = append(extra, again)
			}
		}
	}
	if len(kinds) == 0 && !d.byKind || len(d.Covers) == 0 {
		c.fail(d.at, "may fetch pages from docs.python.org; any other site needs approval", "no sentence before this one names what the others are other than")
		return nil
	}
	d.Kinds = kinds
	d.On = slices.DeleteFunc(slices.Clone(d.On), func(p policy.Pattern) bool { return len(kinds) > 0 && !slices.Contains(types, p.Type) })
	if nothingLeft(&d.Clause) {
		c.report(Warning, d.at, d.ID, "nothing is left: the sentences before speak of all of it")
	}
	for i := range extra {
		extra[i].Covers = d.Covers
	}
	return append([]draft{*d}, extra...)
}

// nothingLeft reports whether the exceptions of a clause cover all the places that
// it names.
func nothingLeft(cl *policy.Clause) bool {
	return len(cl.On) > 0 && !slices.ContainsFunc(cl.On, func(p policy.Pattern) bool {
		return p.Beneath == "" || p.Not || !slices.ContainsFunc(cl.Except, func(e policy.Exception) bool {
			return len(e.Kinds) == 0 && slices.ContainsFunc(e.On, func(q policy.Pattern) bool {
				return q.Type == p.Type && q.Beneath != "" && q.Name == "" && !q.Not && beneath(p.Beneath, q.Beneath)
			})
		})
	})
}

// hostsOf returns the hosts of patterns on URLs: what is fetched from them or sent
// to them includes looking them up and connecting.
func hostsOf(on []policy.Pattern) []policy.Pattern {
	var hosts []policy.Pattern
	for _, p := range on {
		if p.Type != act.URL {
			continue
		}
		site := p.Site
		if p.Prefix != "" {
			site, _, _ = strings.Cut(p.Prefix, "/")
		}
		hosts = union(hosts, []policy.Pattern{{Type: act.Host, Site: site, List: p.List, Not: p.Not}})
	}
	return hosts
}

func ofTypes(on []policy.Pattern, types []act.ResourceType) []policy.Pattern {
	var out []policy.Pattern
	for _, p := range on {
		if slices.Contains(types, p.Type) && p != (policy.Pattern{Type: p.Type}) {
			out = append(out, p)
		}
	}
	return out
}
