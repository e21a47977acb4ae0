package policy

import (
	"fmt"
	"slices"
	"strings"
)

// approved is a set of clauses of one layer, by local id.
type approved struct {
	ids []string
}

// approvals returns the local ids of those clauses of l that are in ids.
func (l *layer) approvals(ids []string) []string {
	var local []string
	for _, id := range ids {
		if l.name != "" && l.name != Bedrock {
			rest, ok := strings.CutPrefix(id, l.name+":")
			if !ok {
				continue
			}
			id = rest
		}
		if l.clauses[id] != nil {
			local = appendNew(local, id)
		}
	}
	return local
}

// A judge puts one effect to one layer.
type judge struct {
	*decider
	layer *layer
	now   approved
	tried [4][3]*sheet // by way and part, made when first needed
	errs  []error
}

// A sheet is what is known of one part before any approval is.
type sheet struct {
	*part
	rules  []*rule // that can matter
	near   []*node // what the resource is in
	inside []*node // what may be in its region
}

// missing returns the clauses, by local id, that rules ask about and that are
// not approved.
func (j *judge) missing(rules []*rule) []string {
	var ids []string
	for _, r := range rules {
		for _, id := range r.approvals {
			if !slices.Contains(j.now.ids, id) {
				ids = appendNew(ids, id)
			}
		}
	}
	return ids
}

// An outcome is what holds of one way, in document order.
type outcome struct {
	forbids, permits []*rule
	derived          bool  // the permits are for another kind of effect than is decided
	implied          bool  // no permit is needed
	once             *rule // a permit with a limit that would hold if a tree were one effect
}

func (o *outcome) allows() bool { return len(o.forbids) == 0 && (o.implied || len(o.permits) > 0) }

// grant returns the permit that is named for an allow, the first without a limit
// if there is one, nil for what is implied, and whether the effect counts for its limit.
func (o *outcome) grant() (*rule, bool) {
	if o.implied {
		return nil, false
	}
	for _, r := range o.permits {
		if r.clause.limit == nil {
			return r, false
		}
	}
	return o.permits[0], !o.derived
}

// sheet returns what is known of part i of way n.
func (j *judge) sheet(w way, n, i int) *sheet {
	if j.tried[n][i] == nil {
		j.tried[n][i] = &sheet{part: &w[i]}
		j.candidates(j.tried[n][i])
	}
	return j.tried[n][i]
}

// outcome judges way w, the nth, with the given approvals.
//
// Of a tree a permit counts that holds for all of it, and a forbid that may hold
// for some. Of a host the other way round: one URL that is allowed suffices. A permit
// with a limit counts for a tree only where a person agrees to that tree: nobody knows
// how many effects it comes to.
func (j *judge) outcome(w way, n int, now approved) outcome {
	o := outcome{implied: w[0].implied}
	for i := range w {
		c := scene{sheet: j.sheet(w, n, i), judge: j, now: now}
		o.derived = o.derived || c.permits && c.kind != w[0].kind
		all := c.res.host == ""
		for _, r := range c.rules {
			t := c.eval(r.node)
			if c.err != nil {
				j.errs = append(j.errs, fmt.Errorf("rule %s: %w", r.id, c.err))
				c.err = nil
			}
			switch {
			case t == none, t == some && r.permit == all:
			case r.permit && all && c.region && r.clause.limit != nil && len(r.approvals) == 0:
				if o.once == nil {
					o.once = r
				}
			case r.permit:
				o.permits = append(o.permits, r)
			default:
				o.forbids = append(o.forbids, r)
			}
		}
	}
	byOrder := func(a, b *rule) int { return slices.Compare(a.order[:], b.order[:]) }
	slices.SortFunc(o.forbids, byOrder)
	slices.SortFunc(o.permits, byOrder)
	return o
}

// candidates fills in the rules that can matter for s.
func (j *judge) candidates(s *sheet) {
	x := &j.layer.index
	s.near = x.known(s.res)
	for _, n := range s.near {
		j.add(s, n.rules)
	}
	if s.region {
		s.inside = j.inside(s)
		for _, n := range s.inside {
			j.add(s, n.rules)
		}
	}
	if len(x.tools) > 0 && j.q.Tool != "" {
		j.add(s, x.tools[j.facts.tool])
		j.add(s, x.tools[j.facts.server])
	}
	j.add(s, x.rest)
}

// add adds those of found that count and can match.
func (j *judge) add(s *sheet, found byKind) {
	for _, r := range found.of(s.kind) {
		twice := r.tools && slices.Contains(s.rules, r) // found by its tool and by its server
		if j.counts(s.part, r) && !s.lacks(r.requires) && !twice {
			s.rules = append(s.rules, r)
		}
	}
}

// lacks reports whether one of the attributes is not there for certain.
func (s *sheet) lacks(required nameSet) bool {
	if s.region {
		required &= setOf(nameClass)
	}
	return required&^s.res.has != 0
}

// inside returns the nodes that may be in the region of s and are not near.
func (j *judge) inside(s *sheet) []*node {
	var found, own []*node
	switch {
	case s.res.host != "":
		found = j.layer.parts(s.res.host, s.res.port)
	case !s.piece:
		found = j.layer.below(s.res.dir())
	case s.res.uid.Type == typeRepo:
		found = slices.DeleteFunc(j.layer.below(s.res.dir()), func(n *node) bool { return n.uid.Type != typeRepo })
	}
	seen := map[*node]bool{}
	for _, n := range s.near {
		seen[n] = true
	}
	for _, n := range found {
		if !seen[n] {
			seen[n] = true
			own = append(own, n)
		}
	}
	return own
}

// counts reports whether r counts for p: it has not expired, and a permit counts
// at all, is not judged elsewhere, and names the host if that is private.
func (j *judge) counts(p *part, r *rule) bool {
	if !r.expires.IsZero() && j.expired(r) {
		return false
	}
	if !r.permit {
		return true
	}
	return p.permits && r.kinds&p.leave == 0 && (!r.public || !p.res.private())
}

func (j *judge) expired(r *rule) bool {
	if j.q.Now.IsZero() {
		return r.permit
	}
	return !j.q.Now.Before(r.expires)
}

// private reports whether r is on a host that is not of the public internet.
func (r *resource) private() bool {
	return r.host != "" && privateHost(r.host)
}
