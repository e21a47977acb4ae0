package desk

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Ask shows q and waits until it is answered, its deadline passes or ctx ends.
//
// A refusal is an Answer without Approved and no error. Errors are ErrNoAnswer,
// ErrCrowded, ErrTooLarge, ErrQuorum, ErrClosed, the cause of ctx, or what is wrong with q; with any
// of them the request is denied. A question with the digest of an open one joins
// it: it is shown once, and still needs its own yes and its own token.
func (d *Desk) Ask(ctx context.Context, q Question) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, fmt.Errorf("asking a person: %w", context.Cause(ctx))
	}
	q, err := d.bounded(q)
	if err != nil {
		return Answer{}, fmt.Errorf("asking a person: %w", err)
	}
	e, c, err := d.enter(q)
	if err != nil {
		return Answer{}, fmt.Errorf("asking a person: %w", err)
	}
	timer := time.NewTimer(q.Deadline.Sub(q.Asked))
	defer timer.Stop()

	select {
	case a := <-c.done:
		return d.grant(ctx, q.Digest, a)
	case <-timer.C:
		d.leave(e, c, Expired)
		return Answer{Question: e.q.ID, Votes: c.votes}, fmt.Errorf("asking a person: %w", ErrNoAnswer)
	case <-d.closed:
		d.leave(e, c, Withdrawn)
		return Answer{Question: e.q.ID, Votes: c.votes}, fmt.Errorf("asking a person: %w", ErrClosed)
	case <-ctx.Done():
		d.leave(e, c, Withdrawn)
		return Answer{Question: e.q.ID, Votes: c.votes}, fmt.Errorf("asking a person: %w", context.Cause(ctx))
	}
}

// bounded checks q and cuts its preview, so that what the desk keeps is what a
// person can be shown.
func (d *Desk) bounded(q Question) (Question, error) {
	switch {
	case q.Session == "" || q.Digest == Sum{}:
		return q, fmt.Errorf("the question has no session or no digest")
	case len(q.Clauses) == 0:
		return q, fmt.Errorf("the question has no clause to approve")
	case len(q.Clauses) > maxClauses || len(q.Effects) > maxEffects:
		return q, fmt.Errorf("%w: %d effects, %d clauses; at most %d and %d",
			ErrTooLarge, len(q.Effects), len(q.Clauses), maxEffects, maxClauses)
	}
	q.Effects = slices.Clone(q.Effects)
	q.Clauses = slices.Clone(q.Clauses)
	q.Scopes = slices.Clone(q.Scopes[:min(len(q.Scopes), maxScopes)])
	q.ArgsBytes = max(q.ArgsBytes, len(q.Args))
	if len(q.Args) > d.opts.MaxArgs {
		cut := d.opts.MaxArgs
		for cut > 0 && !utf8.RuneStart(q.Args[cut]) {
			cut--
		}
		q.Args = string([]byte(q.Args[:cut])) // a copy: the preview must not keep the whole alive
	}
	n := len(q.Session) + len(q.Principal) + len(q.Tool) + len(q.Args)
	for i := range q.Effects {
		q.Effects[i].Resource.Facts = nil // not shown, so not kept
		n += len(q.Effects[i].Resource.Text)
	}
	for i := range q.Clauses {
		q.Clauses[i].Have = 0
		n += len(q.Clauses[i].ID) + len(q.Clauses[i].Text) + len(q.Clauses[i].Role)
		if err := d.reachable(q.Clauses[i]); err != nil {
			return q, err
		}
	}
	for _, s := range q.Scopes {
		n += len(s.Form) + len(s.Text) + len(s.Such) + len(s.Not)
	}
	q.size = n
	if n > maxQuestion {
		return q, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, maxQuestion)
	}
	q.Asked = d.opts.Now()
	if q.Deadline.IsZero() {
		q.Deadline = q.Asked.Add(d.opts.Wait)
	}
	if last := q.Asked.Add(d.opts.MaxWait); q.Deadline.After(last) {
		q.Deadline = last
	}
	return q, nil
}

// enter puts the call on the desk: on an open question with the same digest, or
// on a new one.
func (d *Desk) enter(q Question) (*entry, *call, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &call{mark: 1, asker: q.Asker, own: q.OwnTerminal, deadline: q.Deadline, done: make(chan Answer, 1)}
	if e, ok := d.same[q.Digest]; ok {
		if e.q.Session != q.Session {
			return nil, nil, fmt.Errorf("the digest of the question belongs to another session")
		}
		if len(e.calls) >= d.opts.MaxCalls {
			return nil, nil, fmt.Errorf("%w: %d identical calls", ErrCrowded, len(e.calls))
		}
		c.mark = e.next
		e.next++
		e.calls = append(e.calls, c)
		d.emit(Changed, e)
		return e, c, nil
	}
	if n := d.count[q.Session]; n >= d.opts.MaxOpen || len(d.open) >= d.opts.MaxTotal {
		return nil, nil, fmt.Errorf("%w: %d of this session, %d in all", ErrCrowded, n, len(d.open))
	}
	if d.kept+q.size > maxKept {
		return nil, nil, fmt.Errorf("%w: their text is %d bytes", ErrCrowded, d.kept)
	}
	d.kept += q.size
	q.ID = d.newID()
	d.asked++
	e := &entry{q: q, order: d.asked, calls: []*call{c}, next: 2}
	d.open[q.ID] = e
	d.same[q.Digest] = e
	d.count[q.Session]++
	d.emit(Asked, e)
	return e, c, nil
}

// newID returns an id that is short enough to type. It is a name, not a secret:
// what an approver may do is settled by who they are. The lock is held.
func (d *Desk) newID() string {
	for {
		var b [4]byte
		rand.Read(b[:])
		if id := hex.EncodeToString(b[:]); d.open[id] == nil {
			return id
		}
	}
}

// leave takes a call that waits no longer off its question, and closes the
// question with its last call. It does nothing if the call was answered.
func (d *Desk) leave(e *entry, c *call, why EventKind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(e.calls, c) {
		return
	}
	e.calls = slices.DeleteFunc(e.calls, func(o *call) bool { return o == c })
	d.settle(e, why)
}

// settle closes e if no call waits on it, and tells the watchers. The lock is
// held.
func (d *Desk) settle(e *entry, why EventKind) {
	if len(e.calls) > 0 {
		d.emit(Changed, e)
		return
	}
	d.kept -= e.q.size
	delete(d.open, e.q.ID)
	delete(d.same, e.q.Digest)
	if d.count[e.q.Session]--; d.count[e.q.Session] <= 0 {
		delete(d.count, e.q.Session)
	}
	d.emit(why, e)
}
