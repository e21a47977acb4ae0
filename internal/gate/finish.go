package gate

import (
	"context"
	"fmt"
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/inspect"
	"ringfence/internal/session"
)

// Finish inspects and records the outcome of a ticket that allowed, and returns
// what the agent may see. Without a record there is no reply (G4).
func (g *Gate) Finish(ctx context.Context, t act.Ticket, o act.Outcome) (act.Reply, error) {
	run, ok := g.o.Runs(t.Session)
	if !ok {
		return act.Reply{}, fmt.Errorf("finishing %s: session %s is not known", t.ID, t.Session)
	}
	open, ok := run.Session.Take(t.ID)
	if !ok {
		return act.Reply{}, fmt.Errorf("finishing %s: no such request is under way", t.ID)
	}
	d := &draft{run: run, req: act.Request{Session: t.Session}}
	body := o.Body
	reply := act.Reply{}
	if open.Ticket.Verb == act.VerbList {
		body, reply.Note = g.visible(run, open.Ticket.Tool, o.Body)
	}
	found := g.o.Inspect.ScanFrom(body, inspect.Result)
	labels := run.Session.Add(slices.Concat(found.Labels, open.Reads, o.Labels)...)
	_, err := g.append(ctx, false, entry(d, EntryResult, resultEntry{
		Ticket: t.ID, Spent: spent(open, o), Size: len(o.Body), Digest: digest(o.Body), Error: g.readable([]byte(o.Error)),
		Labels: labels, Redacted: len(found.Matches), Carried: g.carried(open.Ticket, o),
	}))
	if err != nil {
		run.Session.Return(open)
		return act.Reply{}, fmt.Errorf("recording the result of %s: %w", t.ID, err)
	}
	run.paid(open, o.Spent)
	reply.Body, reply.Labels, reply.Redacted = g.o.Inspect.Redact(body, found), labels, len(found.Matches)
	return reply, nil
}

// Orphan records the tickets that a client left open when it went away. What
// could not be recorded stays open.
func (g *Gate) Orphan(ctx context.Context, run *Run) (err error) {
	for _, open := range run.Session.Drain() {
		if err == nil {
			err = g.OrphanTicket(ctx, run, open.Ticket.ID)
		}
		if err != nil {
			run.Session.Return(open)
			continue
		}
		run.paid(open, act.Spent{})
	}
	return err
}

// spent is what an outcome used of models, for its entry; nil where none was asked.
func spent(open session.Open, o act.Outcome) *act.Spent {
	if !open.Infers {
		return nil
	}
	return &o.Spent
}

// OrphanTicket records that nothing is known of what the ticket with that id
// led to.
func (g *Gate) OrphanTicket(ctx context.Context, run *Run, id string) error {
	d := &draft{run: run, req: act.Request{Session: run.Session.ID}}
	_, err := g.append(ctx, true, entry(d, EntryResult, resultEntry{
		Ticket: id, Error: "orphaned: the client went away before the outcome came in",
	}))
	if err != nil {
		return fmt.Errorf("recording orphan %s: %w", id, err)
	}
	return nil
}
