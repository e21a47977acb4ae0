package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/waits"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/inspect"
	"ringfence/internal/policy"
	"ringfence/internal/session"
)

// A draft is one request on its way through the gate.
type draft struct {
	run      *Run
	req      act.Request
	tool     *Tool // nil for effects that no tool asked for
	res      resolve.Resolution
	labels   []act.Label       // of the session and of this request
	found    *inspect.Findings // in the arguments; nil until they are scanned
	judged   policy.Decision
	approved []string // clauses that a person approved
	answer   *Answer
	lasted   string   // the yes for the session by which nobody is asked
	choices  []Scope  // what a person can say yes to for the session
	asked    bool     // the request entry is already in the ledger
	paying   bool     // a place in the purse is taken
	notes    []string // what of its trees a box does not give, and why
}

// A refusal ends a draft with a denial.
type refusal struct {
	code   act.Code
	rules  []string
	reason string
}

// text says that it is a denial, once: what a policy says begins so already.
func (no *refusal) text() string {
	const denied = "denied: "
	return cut(denied+strings.TrimPrefix(no.reason, denied), maxReason)
}

func refuse(code act.Code, format string, args ...any) *refusal {
	return &refusal{code: code, reason: fmt.Sprintf(format, args...)}
}

// Decide answers r. See [act.Decider] for what holds when it returns.
func (g *Gate) Decide(ctx context.Context, r act.Request) (act.Ticket, error) {
	run, ok := g.o.Runs(r.Session)
	if !ok || run.Session.Ended() {
		no := refuse(act.CodeSession, "this session is not known or has ended: start a new one")
		return (&draft{req: r}).denied(no), nil
	}
	if run.Session.Crowded() {
		no := refuse(act.CodeInternal, "too many requests of this session are under way: wait for their results")
		return (&draft{req: r}).denied(no), nil
	}
	r.Principal = run.Session.Principal
	r.Tool = cut(r.Tool, maxToolName) // no tool has a longer one
	d := &draft{run: run, req: r}
	if r.Verb == act.VerbList {
		return g.decideList(ctx, d)
	}
	if r.Verb == act.VerbOffers {
		return g.decideOffers(ctx, d)
	}
	no := g.walk(ctx, d)
	return g.settle(ctx, d, no)
}

// Bounds of what an entry has to hold, in bytes. The ledger takes 1 MiB.
const (
	maxToolName = 256
	maxReason   = 8 << 10
	maxEffects  = 512 << 10
)

// sizeOfEffects is how many bytes the effects of d take in an entry; 0 if that is
// certainly within bounds.
func (g *Gate) sizeOfEffects(d *draft) int {
	if len(d.res.Effects) < 16 && len(d.req.Args) < maxRecorded {
		return 0
	}
	return len(g.cleanEffects(d.res.Effects))
}

// cut keeps the beginning of a text that an agent can make as long as it likes.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}

// walk takes d through every step before the ledger; nil means allowed.
func (g *Gate) walk(ctx context.Context, d *draft) *refusal {
	if no := d.resolve(); no != nil {
		return no
	}
	g.soften(d)
	if n := g.sizeOfEffects(d); n > maxEffects {
		count := len(d.res.Effects)
		d.res.Effects = nil
		return refuse(act.CodeInvalid, "this call would have %d effects, which take %d bytes to record; at most %d do: ask for less at once", count, n, maxEffects)
	}
	g.inspect(d)
	if no := d.implied(d.query(g), g.asksNobody(d)); no != nil {
		return no
	}
	d.waits(d.query(g))
	d.cover()
	if no := d.judge(g); no != nil {
		return no
	}
	if no := d.lasts(g); no != nil {
		return no
	}
	if no := g.guard(ctx, d); no != nil {
		return no
	}
	if d.judged.Verdict == act.Escalate {
		if no := d.unasked(); no != nil || d.judged.Verdict == act.Allow {
			return no
		}
		if d.tool != nil && policy.IsNotice(d.tool.Name) {
			return &refusal{code: act.CodeNoAnswer, rules: d.judged.Rules, reason: d.judged.Reason + " Nobody is asked about what a server says unasked."}
		}
		return g.person(ctx, d)
	}
	return nil
}

// resolve is the steps schema and resolve: what the request would really do.
func (d *draft) resolve() *refusal {
	switch d.req.Verb {
	case act.VerbCall:
		if d.tool == nil {
			if no := d.findTool(); no != nil {
				return no
			}
		}
		if err := d.tool.check(d.req.Args); err != nil {
			return refuse(act.CodeInvalid, "%s does not accept these arguments: %v", d.req.Tool, err)
		}
		res, err := d.run.View.Call(resolve.Call{
			Tool: d.req.Tool, Args: d.req.Args, Annotation: d.tool.Annotation, Dir: d.tool.server.Dir,
		})
		if err != nil {
			return refuse(act.CodeUnresolved, "%v", err)
		}
		d.res = res
		d.asks()
		return d.boxed()
	case act.VerbExec:
		res, err := d.run.View.Exec(d.req.Args)
		if e, ok := errors.AsType[*resolve.Error](err); ok && e.NotFound {
			return refuse(act.CodeNotFound, "%v", err)
		}
		if err != nil {
			return refuse(act.CodeUnresolved, "%v", err)
		}
		d.res = res
	case act.VerbEffect:
		if len(d.req.Direct) == 0 {
			return refuse(act.CodeInvalid, "a request without a tool must name its effects")
		}
		for _, e := range d.req.Direct {
			got, err := d.run.View.Effect(e.Kind, e.Resource.Text)
			if err != nil {
				return refuse(act.CodeUnresolved, "%v", err)
			}
			got.Tree = got.Tree || e.Tree
			got.Resource = aged(got.Resource, e.Resource)
			d.res.Effects = append(d.res.Effects, got)
		}
		d.res.Bytes = d.req.Args
		if no := d.directFacts(); no != nil {
			return no
		}
		if no := d.narrowed(); no != nil {
			return no
		}
		d.vouch()
		return d.lends()
	default:
		return refuse(act.CodeInvalid, "%q is no kind of request; known are tools/call, tools/list, exec and effect", d.req.Verb)
	}
	return nil
}

// inspect is the request side of inspection: labels are facts that policy reads.
func (g *Gate) inspect(d *draft) {
	d.labels = d.run.Session.Labels()
	found := g.o.Inspect.ScanFrom(d.req.Args, inspect.Arguments)
	d.found = &found
	for _, l := range found.Labels {
		if l == act.LabelSecret && !slices.Contains(d.labels, l) {
			d.labels = append(d.labels, l)
		}
	}
}

// judge is the step policy, bedrock included. It leaves the decision in
// d.judged; a denial is returned. What an allowed request counts against limits
// is counted before any other request is judged.
func (d *draft) judge(g *Gate) *refusal {
	q, m := d.query(g), d.run.Monitors
	d.judged = d.run.Policy.Decide(q)
	if no := d.byGrant(); no != nil {
		return no
	}
	if d.judged.Verdict == act.Allow && m != nil && !m.Take(d.judged.Limited, d.req.Principal, d.req.Session, q.Now) {
		// Another request took the last place between the two lines above.
		d.judged = d.run.Policy.Decide(q)
		if d.judged.Verdict == act.Allow {
			return refuse(act.CodePolicy, "the limit of %s is used up", strings.Join(d.judged.Limited, ", "))
		}
	}
	if d.judged.Verdict == act.Allow || d.judged.Verdict == act.Escalate {
		return nil
	}
	return d.denial()
}

// query is what the policy is asked about d.
func (d *draft) query(g *Gate) policy.Query {
	q := policy.Query{
		Principal: d.req.Principal, Tool: d.toolName(), Effects: d.res.Effects, Args: d.res.Facts,
		Labels: d.labels, Approved: d.approved, Now: g.o.Now(), Absent: d.res.Absent, Fixed: d.res.Fixed,
	}
	if m := d.run.Monitors; m != nil {
		q.Counts = m.Counts(d.req.Principal, d.req.Session, q.Now)
	}
	return q
}

// denial is the refusal that a denying decision means.
func (d *draft) denial() *refusal {
	code := act.CodePolicy
	if slices.ContainsFunc(d.judged.Rules, func(id string) bool { return strings.HasPrefix(id, "bedrock.") }) {
		code = act.CodeTripwire
	}
	return &refusal{code: code, rules: d.judged.Rules, reason: d.judged.Reason + d.unsaid()}
}

// guard is the optional second opinion. It turns allow into escalate or deny,
// never the other way, and an error of it denies.
func (g *Gate) guard(ctx context.Context, d *draft) *refusal {
	if g.o.Guard == nil {
		return nil
	}
	waits.Tell(ctx)
	v, why, err := g.o.Guard.Judge(ctx, d.req, d.res.Effects)
	switch {
	case err != nil:
		return refuse(act.CodeGuard, "the guard could not judge this: %v", err)
	case v == act.Allow:
		return nil
	case v == act.Escalate:
		if d.judged.Verdict == act.Allow {
			d.judged.Verdict = act.Escalate
			d.judged.Ask = []policy.Asked{{Clause: guardClause, Text: why, Quorum: policy.Quorum{Count: 1}}}
		}
		return nil
	}
	return refuse(act.CodeGuard, "the guard refused: %s", why)
}

// guardClause is what an approval of the guard's doubt names in place of a
// clause of a constitution.
const guardClause = "guard"

// settle records what became of d and makes the ticket.
func (g *Gate) settle(ctx context.Context, d *draft, no *refusal) (act.Ticket, error) {
	if no == nil && ctx.Err() != nil {
		no = refuse(act.CodeInternal, "the request was cancelled before it was decided")
	}
	if no == nil && d.answer != nil {
		if err := g.o.Desk.Consume(*d.answer, d.digest(g)); err != nil {
			no = refuse(act.CodeNoAnswer, "the approval could not be used: %v", err)
		}
	}
	var loans []act.Loan
	if no == nil {
		loans, no = d.loans()
	}
	if no == nil {
		no = d.keep(g)
	}
	if no == nil {
		no = d.pay()
	}
	if no == nil {
		d.granted()
	}
	t := d.allowed()
	if no != nil {
		t = d.denied(no)
	}
	id, err := g.record(ctx, d, t, no == nil && !act.Observes(d.res.Effects))
	if err != nil {
		d.unpay()
		d.unkeep()
		evidence := refuse(act.CodeEvidence, "the decision could not be recorded, so nothing was done: %v", err)
		return d.denied(evidence), err
	}
	t.ID = id
	if t.Verdict != act.Allow {
		return t, nil
	}
	if err := d.grant(); err != nil {
		return d.denied(refuse(act.CodeInternal, "%v", err)), err
	}
	// Of the ticket, what its outcome is judged by: arguments can be large.
	open := session.Open{Ticket: act.Ticket{ID: id, Session: t.Session, Verb: t.Verb, Tool: t.Tool, Verdict: t.Verdict}, Box: d.starts(), Infers: d.paying}
	if d.tool != nil {
		open.Reads = d.tool.Annotation.Reads
		d.run.Session.Add(d.tool.Annotation.Sets...)
	}
	if err := d.run.Session.Open(open); err != nil {
		d.unpay()
		return d.denied(refuse(act.CodeSession, "the session has ended")), fmt.Errorf("opening ticket %s: %w", id, err)
	}
	t.Lend = loans
	return t, nil
}

// sets is the labels that this decision gives the session and that it did not
// have before.
func (d *draft) sets() []act.Label {
	if d.tool == nil {
		return nil
	}
	had := d.run.Session.Labels()
	return slices.DeleteFunc(slices.Clone(d.tool.Annotation.Sets), func(l act.Label) bool { return slices.Contains(had, l) })
}

func (d *draft) allowed() act.Ticket {
	return act.Ticket{
		Session: d.req.Session, Verb: d.req.Verb, Tool: d.req.Tool, Verdict: act.Allow,
		Rules: d.judged.Rules, Reason: cut(strings.Join(d.notes, "; "), maxReason),
		Effects: d.res.Effects, Bytes: d.res.Bytes, Filter: d.judged.Filter,
	}
}

func (d *draft) denied(no *refusal) act.Ticket {
	return act.Ticket{
		Session: d.req.Session, Verb: d.req.Verb, Tool: d.req.Tool, Verdict: act.Deny,
		Code: no.code, Rules: no.rules, Reason: no.text(), Effects: d.res.Effects,
	}
}

func (d *draft) toolName() string {
	if d.req.Verb == act.VerbCall {
		return d.req.Tool
	}
	return ""
}
