package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
	"ringfence/internal/session"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// A waiting is a session that an engine before this one left open. Until its
// client resumes it, it is its file and nothing more. Its orphans are recorded when
// the engine gets to it, and before anything else happens with it.
type waiting struct {
	broken error     // why its file cannot be read, and so nobody can resume it
	until  time.Time // it ends then
	why    string    // and this is why
	info   api.OpenSession

	turn    sync.Mutex // held while something is done about it; before Engine.mu
	file    session.File
	settled bool // its orphans are on record
}

// adopt takes over the sessions that an engine before this one left open. Their
// number must not delay the start, so nothing is done about them yet.
func (e *Engine) adopt() error {
	dir, now := paths.Sessions(e.o.Home), e.o.Now()
	ids, err := session.IDs(dir)
	if err != nil {
		return fmt.Errorf("adopting sessions: %w", err)
	}
	for _, id := range ids {
		w := &waiting{until: now, why: clientGone}
		switch w.file, w.broken = session.LoadFile(dir, id); {
		case w.broken != nil:
			w.file = session.File{ID: id}
			w.why = "its file could not be read: " + w.broken.Error()
		case proc.Ended(w.file.PID):
			w.why = clientEnded(w.file.PID)
		default:
			w.until = since(w.file, now).Add(e.o.Grace)
		}
		w.info = infoOf(w.file)
		e.waiting[id] = w
	}
	return nil
}

// since is when f lost its client: now, if no engine noticed. A clock that was
// set back makes no grace longer.
func since(f session.File, now time.Time) time.Time {
	if f.Lost.IsZero() || f.Lost.After(now) {
		return now
	}
	return f.Lost
}

// openSessions returns how many sessions are open, and how many of those have no
// client.
func (e *Engine) openSessions() (open, lost int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.countSessions()
}

// countSessions is openSessions while Engine.mu is held.
func (e *Engine) countSessions() (open, lost int) {
	lost = len(e.waiting)
	for _, r := range e.runs {
		if r.owner == 0 {
			lost++
		}
	}
	return len(e.runs) + len(e.waiting), lost
}

// reap settles adopted sessions and ends those that nobody resumes in time. It returns when none
// waits any more, or ctx ends.
func (e *Engine) reap(ctx context.Context) {
	if err := e.settle(ctx); err != nil {
		e.stop(err) // evidence before anything else
		return
	}
	for {
		due, next := e.due()
		if err := e.expire(ctx, due); err != nil {
			e.stop(err)
			return
		}
		if next.IsZero() || ctx.Err() != nil {
			return
		}
		timer := time.NewTimer(next.Sub(e.o.Now()))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// settle records what adopted sessions left under way, and writes down since when
// they have no client, so that yet another engine gives them no new grace.
func (e *Engine) settle(ctx context.Context) error {
	for _, w := range e.allWaiting() {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the next engine does it
		}
		if err := e.settleOne(context.WithoutCancel(ctx), w); err != nil {
			return fmt.Errorf("adopting session %s: %w", w.file.ID, err)
		}
	}
	return nil
}

func (e *Engine) settleOne(ctx context.Context, w *waiting) error {
	w.turn.Lock()
	defer w.turn.Unlock()
	if w.settled || !e.stillWaits(w) {
		return nil
	}
	past, err := e.past(ctx, w.file.ID)
	if err == nil {
		err = e.orphans(ctx, &gate.Run{Session: &session.Session{ID: w.file.ID}}, past)
	}
	if err != nil {
		return err
	}
	w.settled = true
	f := w.file
	f.Lost = w.until.Add(-e.o.Grace).UTC()
	if w.broken == nil && !f.Lost.Equal(w.file.Lost) {
		w.file = f
		// What is not written gives it another grace, and no more.
		_ = f.Save(paths.Sessions(e.o.Home))
	}
	return nil
}

func (e *Engine) allWaiting() []*waiting {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*waiting, 0, len(e.waiting))
	for _, w := range e.waiting {
		all = append(all, w)
	}
	return all
}

// due returns the sessions whose grace is over, and when that of the next is: zero
// if none waits.
func (e *Engine) due() (due []*waiting, next time.Time) {
	now := e.o.Now()
	for _, w := range e.allWaiting() {
		if !now.Before(w.until) {
			due = append(due, w)
		} else if next.IsZero() || w.until.Before(next) {
			next = w.until
		}
	}
	return due, next
}

// expire ends the sessions in due that still wait.
func (e *Engine) expire(ctx context.Context, due []*waiting) error {
	for _, w := range due {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the next engine does it
		}
		w.turn.Lock()
		err := e.bury(context.WithoutCancel(ctx), w)
		w.turn.Unlock()
		if err != nil {
			return err
		}
	}
	if len(due) == 0 {
		return nil
	}
	_, err := e.ledger.Checkpoint(context.WithoutCancel(ctx))
	return err
}

// stillWaits reports whether w is still neither resumed nor ended. w.turn is held.
func (e *Engine) stillWaits(w *waiting) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waiting[w.file.ID] == w
}

// bury ends w, if it still waits: orphans, last entry, file. w.turn is held.
func (e *Engine) bury(ctx context.Context, w *waiting) error {
	if !e.stillWaits(w) {
		return nil
	}
	id := w.file.ID
	past, err := e.past(ctx, id)
	if err != nil {
		return fmt.Errorf("ending session %s: %w", id, err)
	}
	return e.buryAs(ctx, w, past, w.why)
}

// buryAs is bury of a w that still waits and whose past is known.
func (e *Engine) buryAs(ctx context.Context, w *waiting, past past, why string) error {
	id := w.file.ID
	if past.started && !past.ended {
		if err := e.orphans(ctx, &gate.Run{Session: &session.Session{ID: id}}, past); err != nil {
			return fmt.Errorf("ending session %s: %w", id, err)
		}
		if err := e.append(ctx, id, entryEnd, map[string]any{"why": why}); err != nil {
			return fmt.Errorf("ending session %s: %w", id, err)
		}
	}
	e.mu.Lock()
	delete(e.waiting, id)
	e.note()
	e.mu.Unlock()
	return session.RemoveFile(paths.Sessions(e.o.Home), id)
}

// orphans records what past says was under way. It is on record once, whichever
// engine or call does it: what has a result is not under way. waiting.turn is held.
func (e *Engine) orphans(ctx context.Context, run *gate.Run, past past) error {
	if past.ended {
		return nil
	}
	for range past.unanswered {
		if err := e.unanswered(ctx, run.Session.ID, past); err != nil {
			return err
		}
	}
	for _, ticket := range past.open {
		if err := e.gate.OrphanTicket(ctx, run, ticket); err != nil {
			return err
		}
	}
	return nil
}

// unanswered records that a question of an engine before this one had no answer, and
// that what was asked about was not done: its client has no ticket for it.
func (e *Engine) unanswered(ctx context.Context, id string, past past) error {
	const note = "the engine ended before anybody had answered"
	var entries []ledger.Entry
	for _, b := range []struct {
		kind string
		body map[string]any
	}{
		{gate.EntryAnswer, map[string]any{"approved": false, "code": act.CodeNoAnswer, "note": note}},
		{gate.EntryDecision, map[string]any{
			"verdict": act.Deny, "code": act.CodeNoAnswer, "reason": "A person was asked. (" + note + ")",
			"policy": past.policy, "box": past.box, "durable": true,
		}},
	} {
		data, err := json.Marshal(b.body)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", b.kind, err)
		}
		entries = append(entries, ledger.Entry{Session: id, Type: b.kind, Body: data})
	}
	if _, err := e.ledger.Append(ctx, true, entries...); err != nil {
		return fmt.Errorf("recording a question without an answer: %w", err)
	}
	return nil
}

// rebuild makes a run of the adopted session with that id, as it was, for a client
// that has shown its token. ErrNoSession if it has ended or ends by this.
func (e *Engine) rebuild(ctx context.Context, id string) (*run, error) {
	e.mu.Lock()
	w := e.waiting[id]
	e.mu.Unlock()
	if w == nil {
		return nil, api.ErrNoSession
	}
	w.turn.Lock()
	defer w.turn.Unlock()
	if !e.stillWaits(w) { // a call at the same time was first
		e.mu.Lock()
		defer e.mu.Unlock()
		if r := e.runs[id]; r != nil {
			return r, nil
		}
		return nil, api.ErrNoSession
	}
	made, err := e.rebuilt(context.WithoutCancel(ctx), w)
	if err != nil {
		if !errors.Is(err, api.ErrNoSession) {
			err = api.Errorf(api.CodeUnavailable, "rebuilding session %s: %v", id, err)
		}
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waiting, id)
	e.runs[id] = made
	e.note()
	return made, nil
}

// rebuilt is the run of w with its labels, after its orphans were recorded; or the
// end of w and ErrNoSession. w.turn is held.
func (e *Engine) rebuilt(ctx context.Context, w *waiting) (*run, error) {
	past, err := e.past(ctx, w.file.ID)
	if err != nil {
		return nil, err
	}
	made, why := e.again(ctx, w, past)
	if why != "" {
		if err := e.buryAs(ctx, w, past, why); err != nil {
			return nil, err
		}
		return nil, api.Errorf(api.CodeNoSession, "the session has ended: %s", why)
	}
	made.gate.Session.Add(past.labels...)
	return made, e.orphans(ctx, made.gate, past)
}

// again builds w a second time, or says why it cannot go on.
func (e *Engine) again(ctx context.Context, w *waiting, past past) (made *run, why string) {
	if past.ended {
		return nil, "it had ended"
	}
	if !e.o.Now().Before(w.until) {
		return nil, w.why
	}
	var r api.OpenRequest
	err := json.Unmarshal(w.file.Open, &r)
	if err == nil {
		made, _, err = e.build(ctx, w.file.ID, api.Caller{}, r)
	}
	switch {
	case err != nil:
		return nil, "the engine restarted and it could not be rebuilt: " + err.Error()
	case made.gate.Policy.Hash() != past.policy:
		return nil, "the engine restarted and its policy is another now"
	}
	made.file = w.file
	made.file.Lost = since(w.file, e.o.Now())
	return made, ""
}

// A past is what the record says of one session; zero if it says nothing.
type past struct {
	policy         string
	labels         []act.Label
	open           []string // tickets that allowed and have no result
	started, ended bool
	box            string
	unanswered     int // questions without an answer: their engine ended first
}

func (e *Engine) past(ctx context.Context, id string) (past, error) {
	var p past
	err := e.ledger.Entries(ctx, ledger.Query{Session: id}, func(r ledger.Record) error {
		var b struct {
			Policy  string          `json:"policy"`
			Verdict act.Verdict     `json:"verdict"`
			Ticket  string          `json:"ticket"`
			Labels  []act.Label     `json:"labels"`
			Box     json.RawMessage `json:"box"`
		}
		if err := json.Unmarshal(r.Body, &b); err != nil {
			return fmt.Errorf("reading entry %d: %w", r.Index, err)
		}
		switch r.Type {
		case entryStart:
			p.policy, p.started, p.box = b.Policy, true, boxName(b.Box)
			p.labels = append(p.labels, b.Labels...)
		case entryEnd:
			p.ended = true
		case gate.EntryQuestion:
			p.unanswered++
		case gate.EntryAnswer:
			p.unanswered--
		case gate.EntryDecision:
			if b.Verdict == act.Allow {
				p.open = append(p.open, gate.TicketID(r.Ref))
				p.labels = append(p.labels, b.Labels...)
			}
		case gate.EntryResult:
			p.open = slices.DeleteFunc(p.open, func(t string) bool { return t == b.Ticket })
			p.labels = append(p.labels, b.Labels...)
		}
		return nil
	})
	if errors.Is(err, ledger.ErrNotFound) {
		err = nil
	}
	return p, err
}
