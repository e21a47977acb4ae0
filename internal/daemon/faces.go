package daemon

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
)

// deskFace is the desk as the gate needs it.
type deskFace struct {
	desk *desk.Desk
	now  func() time.Time
	more string // what lets more people answer
}

var _ gate.Desk = deskFace{}

// Ask puts the gate's question to people.
func (f deskFace) Ask(ctx context.Context, q gate.Question) (gate.Answer, error) {
	who, _ := q.Asker.(asker)
	dq := desk.Question{
		Session: q.Session, Principal: q.Principal, Tool: q.Tool, Effects: q.Effects,
		Args: string(q.Arguments), Clauses: clausesOf(q.Asked), Digest: desk.Sum(q.Digest),
		Asker: who.who, OwnTerminal: who.ownTerminal,
	}
	for _, s := range q.Scopes {
		dq.Scopes = append(dq.Scopes, desk.Scope{Form: s.Form, Text: s.Text, Such: s.Such, Not: s.Not})
	}
	if q.Wait > 0 {
		dq.Deadline = f.now().Add(q.Wait)
	}
	a, err := f.desk.Ask(ctx, dq)
	out := gate.Answer{ID: a.Question, Approved: err == nil && a.Approved, Token: a.Token, Scope: a.Scope}
	if !out.Approved {
		out.Code = act.CodeRefused
	}
	for _, v := range a.Votes {
		out.By = append(out.By, voter(v))
		if !out.Approved && !v.Yes {
			out.Message = v.Message
		}
	}
	if a.SelfNotExcluded {
		out.Note = "self-approval not excluded"
	}
	switch {
	case errors.Is(err, desk.ErrNoAnswer):
		out.Code = act.CodeNoAnswer
		return out, nil
	case errors.Is(err, desk.ErrQuorum):
		return out, fmt.Errorf("%w: %s; %s", gate.ErrNotAsked, said(err), f.more)
	case errors.Is(err, desk.ErrCrowded), errors.Is(err, desk.ErrTooLarge):
		return out, fmt.Errorf("%w: %s", gate.ErrNotAsked, said(err))
	case err != nil:
		return out, err
	}
	return out, nil
}

// said is what err says after what was being done, which the reader knows.
func said(err error) string { return strings.TrimPrefix(err.Error(), "asking a person: ") }

// Consume uses the approval up.
func (f deskFace) Consume(a gate.Answer, digest [32]byte) error {
	return f.desk.Consume(a.Token, desk.Sum(digest))
}

func clausesOf(asked []policy.Asked) []desk.Clause {
	out := make([]desk.Clause, len(asked))
	for i, a := range asked {
		out[i] = desk.Clause{ID: a.Clause, Text: a.Text, Count: a.Quorum.Count, Role: a.Quorum.Role}
	}
	return out
}

// digest is what an approval binds to.
func digest(b gate.Bound) [32]byte {
	return desk.Digest(desk.Bound{
		Principal: b.Principal, Session: b.Session, Server: b.Server, ServerPin: b.Launch, Tool: b.Tool, ToolPin: b.Pin,
		Args: canonicalSum(b.Arguments), Effects: b.Effects, Policy: b.Policy, Clauses: b.Clauses,
	})
}

// Questions returns the open questions.
func (e *Engine) Questions(_ context.Context, c api.Caller) ([]api.Question, error) {
	open := e.desk.List()
	out := make([]api.Question, 0, len(open))
	for _, q := range open {
		if e.concerns(c, q) {
			out = append(out, question(desk.Preview(q)))
		}
	}
	return out, nil
}

// concerns reports whether the person at the other end is shown q.
func (e *Engine) concerns(c api.Caller, q desk.Question) bool {
	return !c.Guest || e.desk.Concerns(q, identity(c.Peer))
}

// Question returns one open question.
func (e *Engine) Question(_ context.Context, c api.Caller, id string) (api.Question, error) {
	q, err := e.desk.Get(id)
	if err == nil && !e.concerns(c, q) {
		err = desk.ErrGone
	}
	if err != nil {
		return api.Question{}, api.Errorf(api.CodeNotFound, "%v", err)
	}
	return question(q), nil
}

// AnswerQuestion takes the choice of the person at the other end. That somebody
// tried who may not is on record.
func (e *Engine) AnswerQuestion(ctx context.Context, c api.Caller, id string, choice api.Choice) error {
	q, _ := e.desk.Get(id) // the answer says if there is none
	err := e.desk.Answer(id, identity(c.Peer), desk.Choice{Yes: choice.Yes, Mark: choice.Mark, Message: choice.Message, Scope: choice.Scope})
	switch {
	case errors.Is(err, desk.ErrGone):
		return api.Errorf(api.CodeNotFound, "%v", err)
	case errors.Is(err, desk.ErrSelf), errors.Is(err, desk.ErrRole):
		told := e.append(ctx, q.Session, entryAttempt, map[string]any{
			"question": id, "by": person(identity(c.Peer), choice.Yes), "refused": err.Error(),
		})
		return errors.Join(api.Errorf(api.CodeRefused, "question %s: %v", id, err), told)
	case err != nil:
		return api.Errorf(api.CodeRefused, "question %s: %v", id, err)
	}
	return nil
}

// entryAttempt is an answer that was not taken, because whoever gave it may not.
const entryAttempt = "answer-refused"

// WatchQuestions sends what happens at the desk until ctx ends.
func (e *Engine) WatchQuestions(ctx context.Context, c api.Caller, send func(api.QuestionEvent) error) error {
	events, err := e.desk.Watch(ctx)
	if err != nil {
		return api.Errorf(api.CodeBusy, "watching the desk: %v", err)
	}
	for ev := range events {
		if !e.concerns(c, ev.Question) {
			continue
		}
		if err := send(api.QuestionEvent{Kind: string(ev.Kind), Question: question(desk.Preview(ev.Question))}); err != nil {
			return err
		}
	}
	return api.Errorf(api.CodeStopping, "the engine ends, or who watched has gone")
}

func question(q desk.Question) api.Question {
	out := api.Question{
		ID: q.ID, Session: q.Session, Principal: q.Principal, Tool: q.Tool, Effects: q.Effects,
		Args: q.Args, ArgsBytes: q.ArgsBytes, Digest: hex.EncodeToString(q.Digest[:]),
		Asker: api.Person{
			UID: q.Asker.UID, PID: q.Asker.PID, SID: q.Asker.SID, TTY: q.Asker.TTY, Name: q.Asker.Name, Known: q.Asker.Known,
		},
		OwnTerminal: q.OwnTerminal, Asked: q.Asked, Deadline: q.Deadline, Calls: q.Calls, Mark: q.Mark,
		Text: desk.Render(q), ScopesText: desk.RenderScopes(q),
	}
	for _, s := range q.Scopes {
		out.Scopes = append(out.Scopes, api.QuestionScope(s))
	}
	for _, c := range q.Clauses {
		out.Clauses = append(out.Clauses, api.QuestionClause(c))
	}
	return out
}

func voter(v desk.Vote) string { return person(v.By, v.Yes) }

// person is who said what, for the record.
func person(who desk.Identity, yes bool) string {
	word := "no"
	if yes {
		word = "yes"
	}
	return fmt.Sprintf("%s: %s (uid %d, pid %d)", word, who.Name, who.UID, who.PID)
}

// Decide passes a request of a session that c owns through the gate.
func (e *Engine) Decide(ctx context.Context, _ api.Caller, r act.Request) (act.Ticket, error) {
	t, err := e.gate.Decide(ctx, r)
	if err == nil {
		e.noteConnected(r.Session, t)
		e.noteAsked(r, t)
		return t, nil
	}
	var code api.Code
	switch t.Code {
	case act.CodeEvidence:
		code = api.CodeUnavailable
	case act.CodeSession:
		code = api.CodeNoSession
	default:
		code = api.CodeInternal
	}
	return act.Ticket{}, api.Errorf(code, "%v", err)
}

// Finish passes an outcome through the gate.
func (e *Engine) Finish(ctx context.Context, _ api.Caller, session, ticket string, o act.Outcome) (act.Reply, error) {
	r, err := e.gate.Finish(ctx, act.Ticket{ID: ticket, Session: session}, o)
	if err == nil {
		e.noteAnswered(session, ticket, o)
	}
	return r, evidence(err)
}

// errNoEvidence is for errors.Is.
var errNoEvidence = &api.Error{Code: api.CodeUnavailable}

// evidence gives err the code that says that nothing can be recorded, if that is
// what it means.
func evidence(err error) error {
	for _, e := range []error{ledger.ErrUnwritable, ledger.ErrClosed, syscall.EROFS, syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, e) {
			return api.Errorf(api.CodeUnavailable, "%v", err)
		}
	}
	return err
}
