// Package launch takes one program from a request to its end: the gate decides, a
// box is built and put on record, the program runs in it, and what came of it is
// recorded.
//
// It decides nothing and confines nothing: it holds the two who do, and keeps them
// in order. It is the same path for a command that a person types, one that an
// agent asks for, and an agent itself.
//
// Invariants:
//
//	L1  Nothing is built before the gate has allowed it, and the program does not
//	    start before its box is on record. What [Ahead] begins shows and runs nothing.
//	L2  What runs is what was decided: argv and paths are those of the ticket, not
//	    those of the request.
//	L3  Every ticket that allowed is finished, whatever becomes of the box.
package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"ringfence/internal/act"
	"ringfence/internal/sandbox"
)

// A Session decides and records. *api.Session is the one outside tests.
type Session interface {
	act.Decider
	RecordBox(ctx context.Context, server, ticket, box string, report any) error
}

// A DeniedError is the error of a launch that the gate did not allow.
type DeniedError struct{ Ticket act.Ticket }

// Error says why, as the gate put it.
func (d *DeniedError) Error() string { return d.Ticket.Reason }

// Denied is the ticket, for who must not know this package.
func (d *DeniedError) Denied() act.Ticket { return d.Ticket }

// Options say how to launch. Session and Tier are required.
type Options struct {
	Session Session
	Tier    sandbox.Tier
	// Confirmed, if set, is told the report once it is on record; an error of it
	// keeps the program from starting.
	Confirmed func(sandbox.Report) error
	// Call is the ticket of the call that starts the program, "" if none does: what a
	// person was shown with it need not be asked again.
	Call string
	// Absent are trees that the box must not have, and Fixed those that it must not change:
	// nobody is asked about them, and the box hides and holds them. They are for a Tier
	// whose boxes do that.
	Absent, Fixed []string
	// Review says that the box changes nothing in the workspace before a person takes it:
	// the Tier keeps its changes apart.
	Review bool
	// Narrowed, if set, is told what the box does not give of what was asked for, and why,
	// if there is anything, before it is built. It may hold text of an agent.
	Narrowed func(note string)
}

// A Running is a program that was started. Finish, or Conclude and Wait, must be called
// once.
type Running struct {
	sandbox.Box
	Spec    sandbox.Spec // what the box was asked for, as it was decided
	session Session
	ticket  act.Ticket
	began   time.Time
}

// Start has s decided, builds its box and starts its program. Argv[0] and all paths
// of s may be given as a person writes them; the resolved ones are used.
//
// ctx ends the wait for the decision. A box that is being built, or runs, outlives it:
// signals go to the program, which may have something to finish.
//
// The error is a *DeniedError, or wraps sandbox.ErrNotBuilt or sandbox.ErrNotFound; in
// each case nothing was run.
func Start(ctx context.Context, o Options, s sandbox.Spec) (*Running, error) {
	if len(s.Argv) == 0 {
		return nil, errors.New("no program to run")
	}
	if err := checkText(s, o.Absent, o.Fixed); err != nil {
		return nil, err
	}
	if len(o.Absent)+len(o.Fixed) > 0 && o.Tier.Name() == sandbox.TierNone {
		return nil, fmt.Errorf("%w: without a box nothing is hidden and held", sandbox.ErrNotBuilt)
	}
	request := asked(s)
	request.Call, request.Absent, request.Fixed, request.Review = o.Call, o.Absent, o.Fixed, o.Review
	args, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encoding a command: %w", err)
	}
	t, err := o.Session.Decide(ctx, act.Request{Verb: act.VerbExec, Args: args})
	if err != nil {
		return nil, fmt.Errorf("deciding about %s: %w", s.Argv[0], err)
	}
	if t.Verdict != act.Allow {
		return nil, &DeniedError{t}
	}
	if o.Narrowed != nil && t.Reason != "" {
		o.Narrowed(t.Reason)
	}
	s, err = granted(s, t)
	if err == nil {
		s.Confirm = func(r sandbox.Report) error {
			if err := o.Session.RecordBox(ctx, "", t.ID, r.String(), r); err != nil || o.Confirmed == nil {
				return err
			}
			return o.Confirmed(r)
		}
		var box sandbox.Box
		if box, err = o.Tier.Start(context.WithoutCancel(ctx), s); err == nil {
			return &Running{Box: box, Spec: s, session: o.Session, ticket: t, began: time.Now()}, nil
		}
	}
	err = fmt.Errorf("running %s: %w", s.Argv[0], err)
	return nil, errors.Join(err, finish(ctx, o.Session, t, act.Outcome{Error: err.Error()}))
}

// Ahead returns a tier that has begun with a box for s, if o is one that can: its first
// Start goes on with it. Discard gives back what was begun, if it was not used.
func Ahead(o sandbox.Tier, s sandbox.Spec) (t sandbox.Tier, discard func() error) {
	p, ok := o.(sandbox.Preparer)
	if !ok {
		return o, func() error { return nil }
	}
	box := p.Prepare(s)
	return &ahead{Tier: o, box: box}, box.Discard
}

// ahead is a tier with a box that was begun.
type ahead struct {
	sandbox.Tier
	used atomic.Bool
	box  sandbox.Prepared
}

// Start implements [sandbox.Tier].
func (a *ahead) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	if a.used.Swap(true) {
		return a.Tier.Start(ctx, s)
	}
	return a.box.Start(ctx, s)
}

// An exec is the JSON of a request and of its ticket, as package resolve has it.
type exec struct {
	Argv  []string `json:"argv"`
	Dir   string   `json:"dir,omitempty"`
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	Later bool     `json:"later,omitempty"`
	Hide  []string `json:"hide,omitempty"`
	Hold  []string `json:"hold,omitempty"` // only in a ticket
	Call  string   `json:"call,omitempty"`

	Absent []string `json:"absent,omitempty"`
	Fixed  []string `json:"fixed,omitempty"`
	Review bool     `json:"review,omitempty"`
}

// checkText refuses what JSON cannot carry: the encoder puts another character in the
// place of bytes that are no UTF-8, and another program or directory would be decided on.
func checkText(s sandbox.Spec, more ...[]string) error {
	e := asked(s)
	for _, list := range append(more, e.Argv, []string{e.Dir}, e.Read, e.Write, e.Hide) {
		for _, text := range list {
			if !utf8.ValidString(text) {
				return fmt.Errorf("%w: %q is not valid UTF-8, and cannot be decided on or put on record", sandbox.ErrNotBuilt, text)
			}
		}
	}
	return nil
}

func asked(s sandbox.Spec) exec {
	e := exec{Argv: s.Argv, Dir: s.WorkingDir(), Read: slices.Clone(s.ReadOnly), Write: slices.Clone(s.ReadWrite), Later: s.LaterWritable, Hide: s.Denied}
	switch s.Workspace.Mode {
	case sandbox.NoAccess:
	case sandbox.ReadOnly:
		e.Read = append(e.Read, s.Workspace.Path)
	case sandbox.ReadWrite:
		e.Write = append(e.Write, s.Workspace.Path)
	}
	return e
}

// granted returns s with what the ticket allows in place of what was asked for.
func granted(s sandbox.Spec, t act.Ticket) (sandbox.Spec, error) {
	var e exec
	if err := json.Unmarshal(t.Bytes, &e); err != nil {
		return s, fmt.Errorf("%w: reading the ticket: %w", sandbox.ErrNotBuilt, err)
	}
	s.Denied = slices.Concat(s.Denied, e.Hide, t.Filter.LeaveOut)
	s.Held = slices.Concat(s.Held, e.Hold)
	was := asked(s)
	if len(e.Argv) != len(was.Argv) || len(e.Read) != len(was.Read) || len(e.Write) != len(was.Write) || e.Later != was.Later {
		return s, fmt.Errorf("%w: the ticket is not about this command", sandbox.ErrNotBuilt)
	}
	s.Argv, s.Dir = e.Argv, e.Dir
	s.Decided = slices.Concat(e.Read, e.Write)
	s.ReadOnly, s.ReadWrite = e.Read[:len(s.ReadOnly)], e.Write[:len(s.ReadWrite)]
	switch s.Workspace.Mode {
	case sandbox.NoAccess:
	case sandbox.ReadOnly:
		s.Workspace.Path = e.Read[len(s.ReadOnly)]
	case sandbox.ReadWrite:
		s.Workspace.Path = e.Write[len(s.ReadWrite)]
	}
	return lifted(s), nil
}

// lifted makes a workspace that is read writable where it is, or lies in, a tree that
// may be changed: a box takes the narrower of two words about one place.
func lifted(s sandbox.Spec) sandbox.Spec {
	if s.Workspace.Mode != sandbox.ReadOnly || slices.Contains(s.ReadOnly, s.Workspace.Path) {
		return s
	}
	var others []string
	for _, w := range s.ReadWrite {
		if rel, err := filepath.Rel(w, s.Workspace.Path); err == nil && filepath.IsLocal(rel) {
			s.Workspace.Mode = sandbox.ReadWrite
		}
		if w != s.Workspace.Path {
			others = append(others, w)
		}
	}
	s.ReadWrite = others
	return s
}

// finish hands in an outcome also when ctx has ended.
func finish(ctx context.Context, s Session, t act.Ticket, o act.Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := s.Finish(ctx, t, o)
	return err
}

// A Result is what the record says of how a program ended.
type Result struct {
	Exit    string           `json:"exit"`   // "status 1", "signal 9", "deadline"
	Status  int              `json:"status"` // as on a command line
	Millis  int64            `json:"millis"`
	Denials []sandbox.Denial `json:"denials,omitempty"`
	Stdout  string           `json:"stdout,omitempty"` // where the caller kept it
	Stderr  string           `json:"stderr,omitempty"`
	Dropped int64            `json:"dropped,omitempty"` // bytes of both beyond the limit
	Ended   sandbox.Exit     `json:"-"`                 // Exit and Status are of it
}

// Finish waits for the end and records it, with what was kept of its streams; the
// reply is what an agent may see of the result.
func (r *Running) Finish(ctx context.Context, stdout, stderr []byte, dropped int64) (Result, act.Reply, error) {
	res, reply, err := r.Conclude(ctx, stdout, stderr, dropped)
	if _, werr := r.Wait(); !errors.Is(err, werr) {
		err = errors.Join(err, werr)
	}
	return res, reply, err
}

// Conclude is Finish for who calls Wait himself afterwards: what the box had may not be
// given back yet.
func (r *Running) Conclude(ctx context.Context, stdout, stderr []byte, dropped int64) (Result, act.Reply, error) {
	wait := r.Wait
	if e, ok := r.Box.(sandbox.Ender); ok {
		wait = e.Ended
	}
	exit, err := wait()
	if err != nil {
		_, ferr := r.session.Finish(context.WithoutCancel(ctx), r.ticket, act.Outcome{Error: err.Error()})
		return Result{}, act.Reply{}, errors.Join(err, ferr)
	}
	res := Result{
		Ended: exit, Exit: exit.String(), Status: exit.Status(), Millis: time.Since(r.began).Milliseconds(),
		Denials: r.Denials(), Stdout: string(stdout), Stderr: string(stderr), Dropped: dropped,
	}
	body, err := json.Marshal(res)
	if err != nil {
		return res, act.Reply{}, fmt.Errorf("encoding how it ended: %w", err)
	}
	reply, err := r.session.Finish(context.WithoutCancel(ctx), r.ticket, act.Outcome{Body: body})
	return res, reply, err
}
