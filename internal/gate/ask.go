package gate

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/waits"
	"ringfence/internal/gate/resolve"
)

// person is the step that asks. The request is recorded before anyone is
// asked, and resolved and judged again after the answer.
func (g *Gate) person(ctx context.Context, d *draft) *refusal {
	ask := d.judged
	if g.asksNobody(d) {
		return &refusal{code: act.CodeNoAnswer, rules: ask.Rules, reason: ask.Reason + " Nobody can be asked in this session: do without it, or tell the person what stands in the way."}
	}
	waits.Tell(ctx)
	if err := g.recordQuestion(ctx, d); err != nil {
		return refuse(act.CodeEvidence, "the question could not be recorded, so nobody was asked: %v", err)
	}
	digest := d.digest(g)
	d.choices = d.scopes()
	a, err := g.o.Desk.Ask(ctx, Question{
		Session: d.req.Session, Principal: d.req.Principal, Tool: d.req.Tool,
		Effects: d.res.Effects, Arguments: d.res.Bytes, Asked: ask.Ask, Scopes: d.choices, Digest: digest,
		Wait: d.run.Ask.Wait, Asker: d.run.Ask.Asker(),
	})
	if errors.Is(err, ErrNotAsked) {
		d.answer = &Answer{ID: a.ID, Code: act.CodeNoAnswer, Note: err.Error()}
		return &refusal{code: act.CodeNoAnswer, rules: ask.Rules, reason: ask.Reason + " " + sentence(err.Error())}
	}
	if err != nil {
		a = Answer{ID: a.ID, Code: act.CodeNoAnswer, Note: err.Error()}
		if errors.Is(err, context.Canceled) {
			a.Note = "the call was cancelled while a person was asked"
		}
	}
	d.answer = &a
	if !a.Approved {
		return d.unanswered(a)
	}
	return d.again(g)
}

// ErrNotAsked is wrapped by an error of [Desk.Ask] that says why nobody was asked, for
// people.
var ErrNotAsked = errors.New("nobody was asked")

// sentence is text as a sentence of its own.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

func (g *Gate) asksNobody(d *draft) bool { return d.run.Ask.Never || g.o.Desk == nil }

// unanswered is the denial of a question that nobody said yes to.
func (d *draft) unanswered(a Answer) *refusal {
	no := &refusal{code: a.Code, rules: d.judged.Rules, reason: d.judged.Reason + " A person was asked and said no."}
	if a.Code != act.CodeRefused {
		no.code = act.CodeNoAnswer
		no.reason = d.judged.Reason + " A person was asked; there was no answer in time."
	}
	if a.Code == act.CodeRefused && a.Message != "" {
		no.reason += " That person tells you: " + a.Message
	}
	if a.Note != "" {
		no.reason += " (" + a.Note + ")"
	}
	return no
}

// again resolves and judges d once more after the wait. What was shown must be
// what would happen now.
func (d *draft) again(g *Gate) *refusal {
	asked, effects, dispatch := d.judged, d.res.Effects, d.res.Bytes
	d.tool, d.res = nil, resolve.Resolution{}
	if no := d.resolve(); no != nil {
		return no
	}
	g.soften(d)
	g.inspect(d)
	if no := d.implied(d.query(g), false); no != nil {
		return no
	}
	d.waits(d.query(g))
	if !reflect.DeepEqual(effects, d.res.Effects) || !bytes.Equal(dispatch, d.res.Bytes) {
		return refuse(act.CodeChanged, "what this call would do changed while a person was asked; call again to ask about what it would do now")
	}
	d.approved = append(d.approved, clauses(asked.Ask)...)
	if no := d.judge(g); no != nil {
		return no
	}
	if d.judged.Verdict != act.Allow {
		return &refusal{code: act.CodeChanged, rules: d.judged.Rules, reason: d.judged.Reason + " Something else needs approval since the question was asked."}
	}
	d.judged.Ask = asked.Ask
	return nil
}

// digest is what an approval of d is bound to.
func (d *draft) digest(g *Gate) [32]byte {
	b := Bound{
		Principal: d.req.Principal, Session: d.req.Session, Tool: d.req.Tool,
		Arguments: d.res.Bytes, Effects: d.res.Effects, Policy: d.run.Policy.Hash(), Clauses: clauses(d.judged.Ask),
	}
	if d.tool != nil {
		b.Server, b.Launch, b.Pin = d.tool.server.Name, d.tool.server.Pin, d.tool.Pin
	}
	return g.o.Digest(b)
}
