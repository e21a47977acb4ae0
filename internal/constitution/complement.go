package constitution

import (
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

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
	d.Kinds = othersKinds(d, earlier)
	types := typesOf(&deed{kinds: d.Kinds})
	var extra []draft
	for i := range earlier {
		e := &earlier[i]
		if e.ID == d.ID || e.rest || e.Modality == policy.Advice {
			continue
		}
		if on := ofTypes(e.On, types); d.byKind {
			d.coverKinds(e, on)
		} else if shared := sharedKinds(e, d); len(shared) > 0 && len(on) > 0 {
			d.coverPlaces(e, shared, on)
			extra = append(extra, d.excepted(e, shared, types)...)
		}
	}
	if len(d.Covers) == 0 || len(d.Kinds) == 0 && !d.byKind {
		c.fail(d.at, "may fetch pages from docs.python.org; any other site needs approval", "no sentence before this one names what the others are other than")
		return nil
	}
	if len(d.Kinds) > 0 {
		d.On = ofTypesOrAll(d.On, types)
	}
	if nothingLeft(&d.Clause) {
		c.report(Warning, d.at, d.ID, "nothing is left: the sentences before speak of all of it")
	}
	for i := range extra {
		extra[i].Covers = d.Covers
	}
	return append([]draft{*d}, extra...)
}

// othersKinds returns the kinds of a complement: its own, or, where no verb says
// them ("any other site"), those of the earlier clauses on the same type.
func othersKinds(d *draft, earlier []draft) []act.Kind {
	if !d.bare {
		return d.Kinds
	}
	var kinds []act.Kind
	for _, e := range earlier {
		if e.ID != d.ID {
			kinds = append(kinds, common(e.Kinds, d.Kinds)...)
		}
	}
	return ordered(kinds)
}

// sharedKinds returns the kinds that both e and d are about.
func sharedKinds(e, d *draft) []act.Kind {
	if len(e.Kinds) == 0 {
		return d.Kinds
	}
	return common(e.Kinds, d.Kinds)
}

// coverKinds leaves the effects and tools of e out of d.
func (d *draft) coverKinds(e *draft, on []policy.Pattern) {
	shared := e.Kinds
	if len(d.Kinds) > 0 {
		shared = common(e.Kinds, d.Kinds)
	}
	if len(shared) == 0 && (len(e.Tools) == 0 || len(e.Kinds) > 0) {
		return
	}
	d.Except = append(d.Except, policy.Exception{Tools: e.Tools, Kinds: shared, On: on})
	d.Covers = union(d.Covers, []string{e.ID})
}

// coverPlaces leaves the resources that e names out of d.
func (d *draft) coverPlaces(e *draft, shared []act.Kind, on []policy.Pattern) {
	x := policy.Exception{On: on}
	if len(shared) < len(d.Kinds) {
		x.Kinds = shared
	}
	d.Except = append(d.Except, x)
	if hosts := hostsOf(on); len(hosts) > 0 && slices.Contains(d.Kinds, act.Connect) && !slices.Contains(shared, act.Connect) {
		d.Except = append(d.Except, policy.Exception{Kinds: []act.Kind{act.Resolve, act.Connect}, On: hosts})
	}
	d.Covers = union(d.Covers, []string{e.ID})
}

// excepted returns the clauses for what e excepts, which is among the others too.
func (d *draft) excepted(e *draft, shared []act.Kind, types []act.ResourceType) []draft {
	var extra []draft
	for _, left := range e.Except {
		if back := ofTypes(left.On, types); len(back) > 0 && len(left.When) == 0 && len(d.On) == 0 {
			again := *d
			again.Kinds, again.On, again.Except = shared, back, nil
			extra = append(extra, again)
		}
	}
	return extra
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

func ofTypesOrAll(on []policy.Pattern, types []act.ResourceType) []policy.Pattern {
	return slices.DeleteFunc(slices.Clone(on), func(p policy.Pattern) bool { return !slices.Contains(types, p.Type) })
}

// ofTypes returns the patterns of on that name resources of the given types.
func ofTypes(on []policy.Pattern, types []act.ResourceType) []policy.Pattern {
	var out []policy.Pattern
	for _, p := range on {
		if slices.Contains(types, p.Type) && p != (policy.Pattern{Type: p.Type}) {
			out = append(out, p)
		}
	}
	return out
}
