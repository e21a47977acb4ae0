package egress

import (
	"context"

	"ringfence/internal/act"
)

// How many decisions and results are asked for at once: fewer than a connection to the
// engine takes. Results have places of their own, so that what waits for a person holds up
// no result.
const (
	maxDeciding  = 128
	maxFinishing = 64
	maxLater     = 32 // results that nobody waits for
)

// turns is a Decider that asks another for so much at once and no more. What is above that
// waits.
type turns struct {
	act.Decider
	deciding, finishing, later chan struct{}
}

func inTurns(d act.Decider) *turns {
	return &turns{Decider: d, deciding: make(chan struct{}, maxDeciding), finishing: make(chan struct{}, maxFinishing), later: make(chan struct{}, maxLater)}
}

// Decide implements [act.Decider].
func (t *turns) Decide(ctx context.Context, r act.Request) (act.Ticket, error) {
	select {
	case t.deciding <- struct{}{}:
	case <-ctx.Done():
		return act.Ticket{}, ctx.Err()
	}
	defer func() { <-t.deciding }()
	return t.Decider.Decide(ctx, r)
}

// Finish implements [act.Decider].
func (t *turns) Finish(ctx context.Context, k act.Ticket, o act.Outcome) (act.Reply, error) {
	select {
	case t.finishing <- struct{}{}:
	case <-ctx.Done():
		return act.Reply{}, ctx.Err()
	}
	defer func() { <-t.finishing }()
	return t.Decider.Finish(ctx, k, o)
}

// done finishes the ticket of a request whose reply has been passed on but for its end. If
// nothing was found in it that later decisions depend on, the end does not wait for the
// record.
func (w *way) done(t *ticket, e ending) {
	turns, ok := w.o.Decider.(*turns)
	if !ok || len(e.labels) > 0 {
		t.finish(e)
		return
	}
	select {
	case turns.later <- struct{}{}:
		w.work.Go(func() {
			defer func() { <-turns.later }()
			t.finish(e)
		})
	default:
		t.finish(e)
	}
}
