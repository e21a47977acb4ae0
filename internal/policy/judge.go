package policy

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	"ringfence/internal/act"
)

// approved is a set of clauses of one layer, by local id.
type approved struct {
	ids []string
	set types.Set
}

func newApproved(ids []string) approved {
	if len(ids) == 0 {
		return approved{}
	}
	values := make([]types.Value, len(ids))
	for i, id := range ids {
		values[i] = types.String(id)
	}
	return approved{ids, types.NewSet(values...)}
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
	errs  []error
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
	derived          bool // the permits are for another kind of effect than is decided
}

func (o *outcome) allows() bool { return len(o.forbids) == 0 && len(o.permits) > 0 }

// grant returns the permit that is named for an allow, the first without a limit
// if there is one, and whether the effect counts for its limit.
func (o *outcome) grant() (*rule, bool) {
	for _, r := range o.permits {
		if r.clause.limit == nil {
			return r, false
		}
	}
	return o.permits[0], !o.derived
}

// outcome judges the parts of w with the given approvals.
func (j *judge) outcome(w way, a approved) outcome {
	var o outcome
	for i := range w {
		rules, near, inside := j.candidates(&w[i])
		if len(rules) == 0 {
			continue
		}
		e := j.entities(&w[i], rules, near)
		req := cedar.Request{
			Principal: j.facts.principal.UID, Action: e.action.UID, Resource: w[i].res.uid,
			Context: j.context(reads(rules), a),
		}
		if w[i].region {
			o.derived = o.derived || w[i].kind != w[0].kind
			j.judgeRegion(&w[i], rules, near, inside, e, req, &o)
			continue
		}
		_, diag := cedar.Authorize(candidates(rules), e, req)
		for _, err := range diag.Errors {
			j.errs = append(j.errs, fmt.Errorf("rule %s: %s", err.PolicyID, err.Message))
		}
		o.add(rules, diag.Reasons)
	}
	byOrder := func(a, b *rule) int { return slices.Compare(a.order[:], b.order[:]) }
	slices.SortFunc(o.forbids, byOrder)
	slices.SortFunc(o.permits, byOrder)
	return o
}

// add adds the rules that reasons name; both are in the same order.
func (o *outcome) add(rules []*rule, reasons []types.DiagnosticReason) {
	for _, r := range rules {
		if len(reasons) == 0 {
			return
		}
		if types.PolicyID(r.id) == reasons[0].PolicyID {
			reasons = reasons[1:]
			o.put(r)
		}
	}
}

func (o *outcome) put(r *rule) {
	if r.permit {
		o.permits = append(o.permits, r)
		return
	}
	o.forbids = append(o.forbids, r)
}

// judgeRegion judges rules for all resources of a region at once. For a tree, a
// permit counts where it holds for all of it and a forbid where it may hold for
// some; for a host, where one URL that is allowed suffices, the other way round.
func (j *judge) judgeRegion(p *part, rules []*rule, near, inside []*node, e *entities, req cedar.Request, o *outcome) {
	g := region{
		typ: types.EntityType(act.Kinds()[p.kind].On()), root: p.res, near: near, inside: inside,
		env: eval.Env{Entities: e, Principal: req.Principal, Action: req.Action, Resource: req.Resource, Context: req.Context},
	}
	all := p.res.host == "" // a tree: allowed only if all of it is
	for _, r := range rules {
		t := g.holds(r)
		if t == every || t == some && r.permit != all {
			o.put(r)
		}
		for _, err := range g.errs {
			j.errs = append(j.errs, fmt.Errorf("rule %s: %w", r.id, err))
		}
		g.errs = nil
	}
}

// candidates lists rules for Cedar's own authorizer.
type candidates []*rule

// All implements cedar.PolicyIterator.
func (c candidates) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, r := range c {
			if !yield(cedar.PolicyID(r.id), r.policy) {
				return
			}
		}
	}
}

func reads(rules []*rule) nameSet {
	var s nameSet
	for _, r := range rules {
		s |= r.reads
	}
	return s
}

// candidates returns the rules that can matter for p, and the nodes that its
// resource is in (near) or that may be in its region (inside).
func (j *judge) candidates(p *part) (rules []*rule, near, inside []*node) {
	x := &j.layer.index
	add := func(found []*rule) {
		for _, r := range found {
			if j.counts(p, r) {
				rules = append(rules, r)
			}
		}
	}
	near = x.known(p.res)
	for _, n := range near {
		add(n.rules.of(p.kind))
	}
	if p.region {
		inside = j.inside(p, near)
		for _, n := range inside {
			add(n.rules.of(p.kind))
		}
	}
	if len(x.tools) > 0 && j.q.Tool != "" {
		ofTool := x.tools[j.facts.tool.UID].of(p.kind)
		add(ofTool)
		for _, r := range x.tools[j.facts.server].of(p.kind) {
			if !slices.Contains(ofTool, r) {
				add([]*rule{r})
			}
		}
	}
	add(x.rest.of(p.kind))
	return rules, near, inside
}

// inside returns the nodes that may be in the region of p and are not near.
func (j *judge) inside(p *part, near []*node) []*node {
	var found, own []*node
	if p.res.host == "" {
		found = j.layer.below(string(p.res.uid.ID))
	} else {
		found = j.layer.parts(p.res.host, p.res.port)
	}
	seen := map[*node]bool{}
	for _, n := range near {
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
	return p.permits && r.kinds&p.leave == 0 && !(r.public && p.res.private())
}

func (j *judge) expired(r *rule) bool {
	if j.q.Now.IsZero() {
		return r.permit
	}
	return !j.q.Now.Before(r.expires)
}

// private reports whether r is on a host that is not of the public internet.
func (r *resource) private() bool {
	return r.host != "" && r.uid.Type != typeRecipient && privateHost(r.host)
}

// hour returns the hour of the day in UTC.
func hour(t time.Time) types.Long { return types.Long(t.UTC().Hour()) }
