package policy

import (
	"errors"
	"fmt"
	"slices"

	"ringfence/internal/act"
)

// A part is one thing that an effect is judged for: an action on a resource, or
// on all resources of a region.
type part struct {
	kind    int
	res     *resource
	region  bool // judged for every URL or port of the host res, or all beneath the directory res
	piece   bool // without what is beneath a directory in the region that a rule names
	permits bool // permits count, not only forbids
	implied bool // none is needed
	// leave are kinds that are judged elsewhere: permits that cover one of them
	// do not count here.
	leave kindSet
}

// A way is a list of parts that together make an effect possible: no forbid of
// any part, and a permit of one.
type way []part

var (
	kindConnect = kindOf(act.Connect)
	kindResolve = kindOf(act.Resolve)
	kindFetch   = kindOf(act.Fetch)
	kindSend    = kindOf(act.Send)
)

// allKinds are the kinds in the order that kindSet has them.
var allKinds = act.Kinds()

// kindOf returns the place of k in allKinds, -1 for an unknown kind.
func kindOf(k act.Kind) int { return slices.Index(allKinds, k) }

// canBeImplied are the types of resource that another effect of a request can come to.
var canBeImplied = []act.ResourceType{act.Path, act.Repo, act.Secret, act.URL}

// waysOf returns the ways in which e can be allowed (reading 5 of decision
// 0002). Fetch and send include connect and resolve, so what forbids these
// forbids those. Connect and resolve are possible where what they serve is.
func (p *Policy) waysOf(e act.Effect) ([]way, error) {
	kind := kindOf(e.Kind)
	if kind < 0 || e.Kind.On() != e.Resource.Type {
		return nil, fmt.Errorf("%q on a %q is no effect", clip(string(e.Kind)), clip(string(e.Resource.Type)))
	}
	res, err := newResource(e)
	if err != nil {
		return nil, err
	}
	if e.Tree && e.Resource.Type != act.Path && e.Resource.Type != act.Repo {
		return nil, fmt.Errorf("a %s has nothing beneath it", e.Resource.Type)
	}
	if e.Implied && !slices.Contains(canBeImplied, e.Resource.Type) {
		return nil, fmt.Errorf("no other effect comes to one on a %s", e.Resource.Type)
	}
	whole := part{kind: kind, res: res, region: e.Tree, permits: !e.Implied, implied: e.Implied}
	fetches := e.Resource.Type == act.URL && (p.forbidsHosts || res.has.has(nameClass))
	if e.Resource.Type != act.Host && !fetches {
		return []way{{whole}}, nil
	}
	return networkWays(e.Kind, whole), nil
}

func networkWays(kind act.Kind, whole part) []way {
	bare := hostResource(whole.res, "")
	resolve := part{kind: kindResolve, res: bare}
	switch kind {
	case act.Connect:
		whole.leave = 1<<kindFetch | 1<<kindSend
		connect := part{kind: kindConnect, res: whole.res}
		return []way{
			{whole, resolve},
			{connect, resolve, {kind: kindFetch, res: whole.res, region: true, permits: true}},
			{connect, resolve, {kind: kindSend, res: whole.res, region: true, permits: true}},
		}
	case act.Resolve:
		direct := part{kind: kindResolve, res: bare, permits: true, leave: 1<<kindFetch | 1<<kindSend | 1<<kindConnect}
		connect := part{kind: kindConnect, res: bare, region: true}
		possible := connect
		possible.permits, possible.leave = true, 1<<kindFetch|1<<kindSend
		return []way{
			{direct},
			{resolve, possible},
			{resolve, connect, {kind: kindFetch, res: bare, region: true, permits: true}},
			{resolve, connect, {kind: kindSend, res: bare, region: true, permits: true}},
		}
	default: // fetch and send
		return []way{{whole, {kind: kindConnect, res: hostResource(whole.res, whole.res.port)}, resolve}}
	}
}

// A decider decides one query.
type decider struct {
	*Policy
	q       *Query
	facts   callFacts
	granted map[string]int64 // effects of this call that count for a clause
	said    []saying         // of each effect
	d       Decision
}

// Decide answers q. It never panics and never returns an error: what cannot be
// judged is denied, and Decision.Errors says why.
func (p *Policy) Decide(q Query) Decision {
	if p == nil {
		return Decision{Rules: []string{Default}, Reason: "there is no policy, so nothing is allowed"}
	}
	d := &decider{Policy: p, q: &q, granted: map[string]int64{}}
	if err := d.facts.set(&q); err != nil {
		return refused(err)
	}
	if len(q.Effects) == 0 {
		return refused(errors.New("a request without effects"))
	}
	d.d.Verdict = act.Allow
	for _, e := range q.Effects {
		d.effect(e)
	}
	d.finish()
	return d.d
}

func refused(err error) Decision {
	return Decision{
		Rules: []string{Default}, Errors: []string{err.Error()},
		Reason: "denied: the request cannot be judged: " + visible(err.Error()),
	}
}

// effect decides one effect and adds it to the decision.
func (d *decider) effect(e act.Effect) {
	out := EffectDecision{Effect: e, Verdict: act.Allow}
	ways, err := d.waysOf(e)
	if err != nil {
		out.Verdict, out.Rules = act.Deny, []string{Default}
		d.d.Errors = append(d.d.Errors, err.Error())
		out.Reason = d.note(e, "cannot be judged: "+visible(err.Error()))
		d.add(out)
		return
	}
	answers := make([]answer, 0, len(d.layers))
	for _, l := range d.layers {
		a := d.layer(l, ways)
		answers = append(answers, a)
		out.Verdict = min(out.Verdict, a.verdict)
		for _, err := range a.errs {
			d.d.Errors = append(d.d.Errors, err.Error())
		}
	}
	d.connection(ways, out.Verdict, answers)
	for _, a := range answers {
		if out.Verdict == act.Allow && a.layer.grants {
			out.Rules = append(out.Rules, a.ruleIDs()...)
		}
		for _, id := range a.limited {
			if out.Verdict == act.Allow {
				d.granted[id]++
				d.d.Limited = append(d.d.Limited, id)
			}
		}
		if out.Verdict == act.Escalate && a.verdict == act.Escalate {
			out.Rules = appendNew(out.Rules, a.ruleIDs()...)
			out.Ask = append(out.Ask, a.asked()...)
		}
	}
	if out.Verdict == act.Deny {
		out.Rules = denying(answers)
	}
	out.Reason = d.note(e, reason(out, answers))
	d.add(out)
}

// denying returns the rules that forbid, or where there are none the default
// denials.
func denying(answers []answer) []string {
	var rules, defaults []string
	for _, a := range answers {
		switch {
		case a.verdict >= act.Escalate:
		case len(a.rules) > 0:
			rules = append(rules, a.ruleIDs()...)
		default:
			defaults = append(defaults, a.layer.prefix(Default))
		}
	}
	if len(rules) > 0 {
		return rules
	}
	return defaults
}

func (d *decider) add(e EffectDecision) {
	d.d.Effects = append(d.d.Effects, e)
	d.d.Verdict = min(d.d.Verdict, e.Verdict)
}

// finish makes the whole out of the effects: the strictest verdict and what
// belongs to it.
func (d *decider) finish() {
	if d.d.Verdict != act.Allow {
		d.d.Limited = nil
	}
	var said []saying
	for i, e := range d.d.Effects {
		if e.Verdict != d.d.Verdict {
			continue
		}
		d.d.Rules = appendNew(d.d.Rules, e.Rules...)
		for _, a := range e.Ask {
			if !slices.ContainsFunc(d.d.Ask, func(o Asked) bool { return o.Clause == a.Clause }) {
				d.d.Ask = append(d.d.Ask, a)
			}
		}
		said = append(said, d.said[i])
	}
	d.d.Reason = summary(d.d.Verdict, said)
}

func appendNew[T comparable](to []T, more ...T) []T {
	for _, s := range more {
		if !slices.Contains(to, s) {
			to = append(to, s)
		}
	}
	return to
}

// An answer is what one layer says of one effect.
type answer struct {
	layer   *layer
	verdict act.Verdict
	way     int      // allow, escalate: which of the ways
	limited []string // allow: the clauses for whose limits the effect counts
	rules   []*rule  // allow: the permits; escalate: what waits; deny: what forbids, none for the default
	ask     []string
	once    *rule  // deny by default of a tree: the permit that allows so many, and a tree is not one
	at      string // deny of a tree: the place in it that is denied; "" for the root
	errs    []error
}

func (a *answer) ruleIDs() []string {
	var ids []string
	for _, r := range a.rules {
		ids = append(ids, r.id)
	}
	return ids
}

func (a *answer) asked() []Asked {
	var all []Asked
	for _, local := range a.ask {
		c := a.layer.clauses[local]
		all = append(all, Asked{Clause: c.id, Line: c.line, Text: c.text, Because: c.because, Quorum: c.quorum})
	}
	return all
}

// layer decides for one layer, as docs/decisions/0002 defines: allowed now, or allowed if
// everything were approved, or denied.
func (d *decider) layer(l *layer, ways []way) answer {
	a := d.judge(l, ways)
	if p := ways[0][0]; a.verdict < act.Allow && len(a.errs) == 0 && p.region && p.res.host == "" {
		return d.inPieces(l, p, a)
	}
	return a
}

// judge is layer, with each part judged as a whole.
func (d *decider) judge(l *layer, ways []way) answer {
	j := judge{decider: d, layer: l, now: approved{l.approvals(d.q.Approved)}}
	a := answer{layer: l}
	for n, w := range ways {
		if o := j.outcome(w, n, j.now); o.allows() {
			a.verdict, a.way = act.Allow, n
			grant, limited := o.grant()
			if grant != nil {
				a.rules = []*rule{grant}
			}
			if limited {
				a.limited = []string{grant.clause.id}
			}
			break
		}
	}
	if a.verdict != act.Allow && len(j.errs) == 0 {
		a = j.escalate(ways)
	}
	if len(j.errs) > 0 {
		return answer{layer: l, errs: j.errs}
	}
	return a
}

// escalate returns escalate with what to ask for, or deny.
func (j *judge) escalate(ways []way) answer {
	a := answer{layer: j.layer}
	for n, w := range ways {
		all := j.outcome(w, n, j.layer.every)
		if !all.allows() {
			if len(a.rules) == 0 {
				a.rules = all.forbids
			}
			a.once = all.once
			continue
		}
		waiting := j.outcome(w, n, j.now).forbids
		ask := j.missing(waiting)
		if granted := j.outcome(w, n, approved{append(ask, j.now.ids...)}); !granted.allows() {
			waiting = append(waiting, all.permits[0])
			ask = appendNew(ask, j.missing(all.permits[:1])...)
		}
		return answer{layer: j.layer, verdict: act.Escalate, way: n, rules: waiting, ask: ask}
	}
	return a
}
