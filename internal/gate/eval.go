package gate

import (
	"maps"
	"slices"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// A Given is what an evaluation supposes about the session.
type Given struct {
	Labels   []act.Label
	Approved []string         // clauses taken as approved
	Counts   map[string]int64 // what limited clauses have allowed so far
	Now      time.Time
}

// A Judgement is what would be decided.
type Judgement struct {
	Verdict act.Verdict
	Code    act.Code // of a denial
	Rules   []string
	Ask     []policy.Asked // of an escalation
	Reason  string
	Effects []act.Effect
}

// Evaluate says what the steps schema, resolve and policy come to for r in run,
// supposing g. It asks, records, counts and opens nothing, and so allows
// nothing. The schema of a tool is its annotation alone: no server is there
// whose definition could be pinned.
func Evaluate(run *Run, r act.Request, g Given) Judgement {
	if r.Principal == "" {
		r.Principal = run.Session.Principal
	}
	d := &draft{run: run, req: r, labels: g.Labels}
	if r.Verb == act.VerbCall {
		if no := d.annotated(); no != nil {
			return d.judgement(no)
		}
	}
	if no := d.resolve(); no != nil {
		return d.judgement(no)
	}
	q := policy.Query{
		Principal: r.Principal, Tool: d.toolName(), Effects: d.res.Effects, Args: d.res.Facts,
		Labels: g.Labels, Now: g.Now, Counts: func(clause string) int64 { return g.Counts[clause] },
		Absent: d.res.Absent, Fixed: d.res.Fixed,
	}
	if no := d.implied(q, run.Ask.Never); no != nil {
		return d.judgement(no)
	}
	q.Effects = d.res.Effects
	d.waits(q)
	q.Effects, q.Approved = d.res.Effects, g.Approved
	d.judged, d.approved = run.Policy.Decide(q), g.Approved
	if no := d.byGrant(); no != nil {
		return d.judgement(no)
	}
	if d.judged.Verdict != act.Allow && d.judged.Verdict != act.Escalate {
		return d.judgement(d.denial())
	}
	return Judgement{
		Verdict: d.judged.Verdict, Rules: d.judged.Rules, Ask: d.judged.Ask, Reason: d.judged.Reason, Effects: d.res.Effects,
	}
}

func (d *draft) judgement(no *refusal) Judgement {
	return Judgement{Code: no.code, Rules: no.rules, Reason: no.text(), Effects: d.res.Effects}
}

// annotated takes the annotation of a tool for its definition.
func (d *draft) annotated() *refusal {
	server, tool, ok := split(d.req.Tool)
	s := d.run.Servers[server]
	if !ok || s == nil {
		return refuse(act.CodeUnknown, "there is no tool %q: tools are named server.tool, and the annotated servers are %s", d.req.Tool, d.run.serverNames())
	}
	if s.Annotation == nil {
		return refuse(act.CodeUnannotated, "nothing says what the tools of %s do", server)
	}
	if a, ok := s.Annotation.Method(tool); ok {
		d.tool = &Tool{Name: tool, Annotation: &a, server: s}
		return nil
	}
	a, ok := s.Annotation.Tools[tool]
	if !ok || policy.IsMethod(tool) {
		return refuse(act.CodeUnknown, "server %s has no annotated tool %q%s", server, tool, meant(tool, slices.Sorted(maps.Keys(s.Annotation.Tools))))
	}
	d.tool = &Tool{Name: tool, Annotation: &a, server: s}
	return nil
}
