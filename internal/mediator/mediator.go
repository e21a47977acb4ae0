// Package mediator stands between MCP clients and any number of MCP servers on the
// streams of their processes. A client is on a pair of streams, or is brought by a
// transport (package listen). It asks an [act.Decider] before anything happens, and
// shows a client only what the Decider replies.
//
// It is not a policy: it knows no verdict but the one it is given, keeps no
// pins, scans nothing and records nothing. It is not an SDK either: it frames
// newline-delimited JSON-RPC itself, so that bytes it need not change do not
// change.
//
// Invariants:
//
//	M1  No request of a client reaches a server, no definition is shown, and no
//	    question of a server is put to a client without a ticket that allows it,
//	    obtained for the very bytes that are then used. A method that is not in
//	    the table of methods.go reaches nobody. An error denies.
//	M2  Each ticket that allows is finished exactly once, whether its call was
//	    dispatched, cancelled, timed out, lost, or became a task.
//	M3  A call is dispatched at most once, to the incarnation of the server and
//	    the list of definitions that it was decided for. A server of the era of
//	    requests that wants input gets the same call again, with the input.
//	M4  Of a client's call, only the name, the id, the progress token, what _meta says
//	    of the revision and the client, and the arguments that the ticket replaces
//	    differ on their way to the server. The result the client reads is, byte for
//	    byte, what the Decider replied, but for what its era must have: the kind of
//	    result, how long it may be kept, and our seal on the state of a request; for
//	    the ids of tasks; and for the pages of [Options.PageAbove].
//	M5  A message of the client has one reading (package strictjson) or is
//	    refused; names that differ from known ones only in case are refused. So it is
//	    with what a result, an error or a question of a server is decided by: names
//	    and values count as they decode, never as they are written.
//	M6  Text of a server reaches the client as the Decider leaves it only: as the
//	    reply of Finish or, of what it asks the client, as the bytes of the ticket.
//	    Of progress the numbers pass as they are; standard error does not pass.
//	M7  A command runs for a call that is under way, whose arguments it has byte for
//	    byte, once, and no longer than the call.
//	M8  Everything is bounded: lines, calls in flight, waiting bytes, restarts,
//	    refreshed lists, kept standard error, what servers ask. Calls that wait for
//	    their client leave places at the server for those of others.
//	M9  What a server asks belongs to the request of exactly one connection, or there
//	    is but one, and goes to that one; otherwise it is refused.
//	M10 Ids, progress tokens, questions, subscriptions, tasks and suspended requests of
//	    one connection reach no other. A suspended request is gone on with once, by a
//	    client that its transport knows by the same name, for the same request.
//
// Locks: server.mu before link.mu; none is held while a stream is read or
// written or the Decider asked.
package mediator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/act"
)

// Bounds that no option changes.
const (
	maxFronts   = 4096 // connections of clients at once
	maxCalls    = 256  // requests of one connection in flight
	maxLists    = 4    // lists for one connection at once
	maxNoise    = 100  // lines of a server that are not JSON-RPC, until it is stopped
	maxPages    = 100  // pages of one tools/list
	maxTools    = 2000
	maxStderr   = 8 << 10   // kept bytes of a server's standard error
	maxHeld     = 256 << 20 // bytes of results that wait for the Decider, per server
	resultDepth = 256       // nesting of a server's message
)

// DefaultDrain is how long what is in flight may take after the last line of a client.
const DefaultDrain = 10 * time.Second

// Options configure a [Mediator]. Decider and Starter must be set; every other
// zero value has the meaning its comment gives.
type Options struct {
	Decider act.Decider
	Starter Starter
	Servers []Server
	// Commander runs commands for the built-in server "exec"; nil runs none.
	Commander Commander

	// MayAsk are the requests that servers may make of a client, if the Decider and the
	// client agree: roots/list, sampling/createMessage, elicitation/create. Servers with
	// sessions are told of no other, and wait for the first client before they start.
	MayAsk []string

	Session   string // for [act.Request]
	Principal string // for [act.Request]

	Version      string       // of this program, for the other side's information
	Instructions string       // shown to the client at initialize; "" shows none
	Log          *slog.Logger // for people; nil drops it

	StartTimeout time.Duration // of one start, until the definitions are decided: 60 s
	ListWait     time.Duration // how long tools/list waits for servers that start: 20 s
	CallTimeout  time.Duration // of one call after its decision: 300 s; a server may set its own
	Drain        time.Duration // how long what is in flight may take after the last line of the client: DefaultDrain
	StopGrace    time.Duration // after closing standard input, and again after the polite signal: 2 s
	Backoff      time.Duration // before the second restart; doubles with each: 1 s
	RefreshEvery time.Duration // least time between two refreshed lists of one server: 500 ms
	AskAfter     time.Duration // until the client hears that a decision waits for a person: 1 s
	AskEvery     time.Duration // and between two such notices: 10 s
	InFlight     int           // calls at once to one server: 64
	MaxResult    int           // bytes of one line of a server: 64 MiB
	PageAbove    int           // bytes of a result without structured content from which on a client gets its beginning and pages; 0 is never
	MaxRestarts  int           // in a row, without a minute of life between: 5
}

func (o Options) withDefaults() Options {
	durations := []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.StartTimeout, time.Minute},
		{&o.ListWait, 20 * time.Second},
		{&o.CallTimeout, 300 * time.Second},
		{&o.Drain, DefaultDrain},
		{&o.StopGrace, 2 * time.Second},
		{&o.Backoff, time.Second},
		{&o.RefreshEvery, 500 * time.Millisecond},
		{&o.AskAfter, time.Second},
		{&o.AskEvery, 10 * time.Second},
	}
	for _, d := range durations {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.InFlight <= 0 {
		o.InFlight = 64
	}
	if o.MaxResult <= 0 {
		o.MaxResult = 64 << 20
	}
	if o.MaxRestarts <= 0 {
		o.MaxRestarts = 5
	}
	if o.Version == "" {
		o.Version = "0"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Mediator serves clients. Make one with [New] and call [Mediator.Run] or
// [Mediator.Serve] once.
type Mediator struct {
	o       Options
	servers []*server
	byName  map[string]*server
	started sync.Once
	seals   seals
	meeting *meeting
	serving atomic.Bool // servers are attached

	ctx   context.Context //nolint:containedctx // while clients are served; set by Serve
	owned sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	fronts    map[*front]struct{}
	suspended map[string]*suspension // by their tickets
	waiting   map[guest]int          // questions that are not answered
	passed    map[string]*passed     // by their handles
	spilled   []*spilled             // oldest first
	tasks     map[string]*task       // by the ids that clients know
}

// New checks o and returns a Mediator that has started nothing yet.
func New(o Options) (*Mediator, error) {
	if o.Decider == nil || o.Starter == nil {
		return nil, errors.New("making mediator: it needs a decider and a starter")
	}
	m := &Mediator{
		o: o.withDefaults(), byName: map[string]*server{}, fronts: map[*front]struct{}{}, suspended: map[string]*suspension{}, waiting: map[guest]int{}, meeting: newMeeting(),
	}
	var err error
	if m.seals, err = newSeals(); err != nil {
		return nil, fmt.Errorf("making mediator: %w", err)
	}
	known, err := secretsOf(o.Servers)
	if err != nil {
		return nil, fmt.Errorf("making mediator: %w", err)
	}
	for _, cfg := range o.Servers {
		cfg.known = known
		if err := CheckName(cfg.Name); err != nil {
			return nil, fmt.Errorf("making mediator: %w", err)
		}
		if m.byName[cfg.Name] != nil {
			return nil, fmt.Errorf("making mediator: two servers are named %q", cfg.Name)
		}
		s := newServer(cfg, &m.o)
		m.servers = append(m.servers, s)
		m.byName[cfg.Name] = s
	}
	return m, nil
}

// ErrRan says that Run or Serve was called before.
var ErrRan = errors.New("a mediator runs once")

var errGone = errors.New("the client has gone") // in the record of what was in flight

// Run serves the client that writes to in and reads from out, until in ends and
// what it asked for is answered, out breaks, or ctx ends. It then cancels what is
// in flight – at the end of in with an error as its answer –, records that, stops every server and waits for all of it. It returns
// nil at the end of in, the cause of ctx, or an error.
//
// If ctx ends while in blocks, the goroutine that reads in is left behind; it
// ends with the next byte and does nothing more. The same holds for out.
func (m *Mediator) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	box := newOutbox(out, 64)
	err := m.Serve(ctx, func(ctx context.Context) error {
		c, err := m.Connect("stdio", pipe{box})
		if err != nil {
			return err
		}
		defer c.Close()
		return c.f.run(c.f.ctx, in, box.done)
	})
	box.close()
	select {
	case <-box.done:
	case <-time.After(m.o.StopGrace):
	}
	return err
}

// Serve starts the servers and runs clients, which may [Mediator.Connect] as long as
// it runs and its context has not ended. Then it cancels what is in flight, records
// that, stops every server and waits for all of it. It returns what clients did.
func (m *Mediator) Serve(ctx context.Context, clients func(ctx context.Context) error) error {
	err := ErrRan
	m.started.Do(func() { err = m.serve(ctx, clients) })
	return err
}

func (m *Mediator) serve(parent context.Context, clients func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	m.ctx = ctx
	if m.o.MayAsk == nil {
		m.o.MayAsk = m.mayAsk(ctx)
	}
	for _, s := range m.servers {
		s.attach(ctx, &m.owned, m)
	}
	m.serving.Store(true)
	for _, s := range m.servers {
		m.owned.Go(func() { _, _ = s.ready(ctx) }) // s keeps the error, and logged it
	}
	err := clients(ctx)
	left := m.close()
	cancel(errGone)
	for _, f := range left {
		f.calls.Wait()
	}
	m.forgetPassed("")
	m.forgetTasks(nil)
	m.forgetSpilled()
	var stopping sync.WaitGroup
	for _, s := range m.servers {
		stopping.Go(s.stop)
	}
	stopping.Wait()
	m.owned.Wait()
	return err
}

// admit counts a connection in.
func (m *Mediator) admit(who string, out Stream) (*front, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed || m.ctx == nil || m.ctx.Err() != nil:
		return nil, errStopped
	case len(m.fronts) >= maxFronts:
		return nil, ErrFull
	}
	f := newFront(m, who, out)
	m.fronts[f] = struct{}{}
	return f, nil
}

func (m *Mediator) release(f *front) {
	for _, s := range m.servers {
		s.unwatch(f)
	}
	m.forgetTasks(f)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.fronts, f)
}

// close lets no more connections in, and returns those that there are.
func (m *Mediator) close() []*front {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return slices.Collect(maps.Keys(m.fronts))
}

// connected returns the connections that there are.
func (m *Mediator) connected() []*front {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.fronts))
}
