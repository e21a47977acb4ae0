package mediator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"ringfence/internal/act"
)

// healthy is how long an incarnation must live for earlier deaths to be forgotten.
const healthy = time.Minute

// A server is one entry behind the mediator, through all its incarnations.
type server struct {
	cfg   Server
	o     *Options
	slots chan struct{}
	meter meter
	log   ring // the end of what all its incarnations wrote to standard error

	// Set by attach, before anything runs.
	ctx   context.Context //nolint:containedctx // the life of the session, which starts and refreshes outlive calls in
	owned *sync.WaitGroup
	m     *Mediator

	mu        sync.Mutex
	era       known // of all its incarnations
	starts    int   // there were
	stale     bool  // it may ask more than it was told
	link      *link
	starting  chan struct{} // closed at the end of the start under way; nil if none is
	since     time.Time     // when the link came up
	deaths    int           // in a row
	err       error         // why there is no link; for people, as it may quote the server
	report    string
	tools     catalogue
	refreshes refreshing
	offer     offer                // of its newest incarnation
	shown     map[string]*showing  // lists but that of tools, by method
	idle      *saying              // for what it says to no request
	watchers  map[string][]*front  // of resources, by URI
	news      map[string]time.Time // when clients are told, or were, that a list changed
	spoken    turns                // by connections, for what it says
	asked     turns                // by clients, for what it asks

	texts tap
}

// minCommands is how many commands of an agent may run at once on the smallest machine:
// each has memory, files in memory and processes of its own.
const minCommands = 4

func newServer(cfg Server, o *Options) *server {
	slots := o.InFlight
	if cfg.Ringfence.Builtin == builtinExec {
		slots = min(slots, max(minCommands, 2*runtime.GOMAXPROCS(0)))
	}
	if n := cfg.Ringfence.Quota.Concurrent; n > 0 {
		slots = min(slots, n)
	}
	return &server{cfg: cfg, o: o, slots: make(chan struct{}, slots), meter: meter{quota: cfg.Ringfence.Quota}, log: ring{max: maxLog}}
}

func (s *server) attach(ctx context.Context, owned *sync.WaitGroup, m *Mediator) {
	s.ctx, s.owned, s.m = ctx, owned, m
}

// enter waits until the server may get one more call.
func (s *server) enter(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := s.meter.call(time.Now())
	if err != nil {
		s.leave()
	}
	return err
}

func (s *server) leave() { <-s.slots }

// A footing is what a call was decided on: an incarnation of the server, and
// the version of its definitions.
type footing struct {
	link    *link
	version int
}

// stands reports whether at is still what the server is.
func (s *server) stands(at footing) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link == at.link && at.link.up() && s.tools.version == at.version
}

// ready returns what calls can be decided on. If the server is not up it starts
// it, once for all who wait, and its definitions are decided before ready
// returns.
func (s *server) ready(ctx context.Context) (footing, error) {
	s.mu.Lock()
	if s.link != nil && s.link.up() && !s.outlived() {
		at := footing{s.link, s.tools.version}
		s.mu.Unlock()
		if at.link.outdated(time.Now()) {
			s.refresh() // meanwhile the list that is known holds
		}
		return at, nil
	}
	if s.starting == nil {
		if err := s.begin(); err != nil {
			s.mu.Unlock()
			return footing{}, err
		}
	}
	done := s.starting
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return footing{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil {
		return footing{}, s.told()
	}
	return footing{s.link, s.tools.version}, nil
}

// told is why the server is not up, as an agent may hear it: what is in a log may say
// more than that. s.mu is held.
func (s *server) told() error {
	if b, ok := errors.AsType[*BlockedError](s.err); ok {
		return b
	}
	return errNotReady
}

// A BlockedError says why a server must not be started, in words that an agent may read.
type BlockedError struct{ Why string }

func (e *BlockedError) Error() string { return e.Why }

// What an agent hears of a server that is not up.
var (
	errNotReady = errors.New("it could not be started; the reason is in the log of ringfence")
	errGivenUp  = errors.New("it failed too often and is not started again; the reason is in the log of ringfence")
)

// begin starts the server in a goroutine of its own. s.mu is held.
func (s *server) begin() error {
	if s.ctx.Err() != nil {
		return errStopped
	}
	old := s.link
	if s.stale {
		s.stale = false
	} else if old != nil {
		s.err = old.reason()
		if time.Since(s.since) >= healthy {
			s.deaths = 0
		}
		s.deaths++
	}
	if s.deaths > s.o.MaxRestarts {
		return errGivenUp // and the link stays, for stop
	}
	s.link = nil
	var pause time.Duration
	if s.deaths > 1 {
		pause = s.o.Backoff << min(s.deaths-2, 5)
	}
	done := make(chan struct{})
	s.starting = done
	s.owned.Go(func() {
		l, err := s.start(old, pause)
		missed := s.began(l, err)
		close(done)
		if missed {
			s.m.changed("tools")
		}
	})
	return nil
}

// began takes in the end of a start, and reports whether the client was shown a
// list without this server meanwhile.
func (s *server) began(l *link, err error) (missed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.since, s.starting = l, time.Now(), nil
	if err != nil {
		s.deaths++
		s.err = err
		if s.ctx.Err() == nil { // else nobody wants it any more
			s.o.Log.Error("starting server", slog.String("server", s.cfg.Name), slog.Any("err", err))
		}
		return false
	}
	missed, s.tools.missed = s.tools.missed, false
	if len(s.watchers) > 0 {
		s.owned.Go(s.rewatch)
	}
	return missed
}

// start brings the server up, after the end of old and a pause, until its
// definitions are decided. One that ends when it is probed is started once more.
func (s *server) start(old *link, pause time.Duration) (*link, error) {
	if old != nil {
		old.stop(s.o.StopGrace)
	}
	if !sleep(s.ctx, pause) || s.m.met(s.ctx) != nil {
		return nil, errStopped
	}
	l, err := s.incarnate()
	if errors.Is(err, errProbed) {
		s.mu.Lock()
		s.era = sessioned
		s.mu.Unlock()
		l, err = s.incarnate()
	}
	return l, err
}

// incarnate starts one incarnation.
func (s *server) incarnate() (*link, error) {
	s.mu.Lock()
	s.starts++
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.o.StartTimeout, errors.New("it did not get ready in time"))
	defer cancel()
	p, err := s.o.Starter.Start(ctx, s.cfg)
	if err != nil {
		return nil, err
	}
	log := s.o.Log
	log.InfoContext(ctx, "server started", slog.String("server", s.cfg.Name), slog.String("report", p.Report))
	p.Stderr = tee{p.Stderr, &s.log}
	l := newLink(s.cfg, s.o.Commander, p, s.o.MaxResult, log, s.refresh, s.heard, s.lone)
	l.meter, l.declares, l.mayAsk, l.first = &s.meter, s.m.declares(), s.o.MayAsk, s.m.prefers()
	if err := s.prepare(ctx, l, p.Report); err != nil {
		tail := l.told()
		l.stop(s.o.StopGrace)
		if s.ctx.Err() == nil {
			log.WarnContext(ctx, "server not ready", slog.String("server", s.cfg.Name), slog.String("stderr", orElse(l.told(), tail)))
		}
		return nil, err
	}
	return l, nil
}

func (s *server) prepare(ctx context.Context, l *link, report string) error {
	s.mu.Lock()
	s.report = report
	era := s.era
	s.mu.Unlock()
	raw, o, err := definitionsOf(ctx, l, era, s.o.Version)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.era, s.offer = l.era(), o
	s.mu.Unlock()
	return s.publish(ctx, raw)
}

// stop ends the server for good; s.ctx has ended.
func (s *server) stop() {
	s.mu.Lock()
	starting := s.starting
	s.mu.Unlock()
	if starting != nil {
		<-starting
	}
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.stop(s.o.StopGrace)
	}
}

// sleep waits for d and reports whether ctx was still going on then.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// decideList asks what may be seen of raw, the list that is decided under name, and
// returns that; empty if it is none of it.
func (s *server) decideList(ctx context.Context, name string, raw, empty []byte) ([]byte, error) {
	t, err := s.o.Decider.Decide(ctx, act.Request{
		Session: s.o.Session, Principal: s.o.Principal, Verb: act.VerbList, Tool: name, Args: raw,
	})
	if err != nil {
		return nil, fmt.Errorf("deciding the list %s: %w", name, err)
	}
	if t.Verdict != act.Allow {
		s.o.Log.WarnContext(ctx, "list denied", slog.String("list", name), slog.String("code", string(t.Code)), slog.String("reason", t.Reason))
		return empty, nil
	}
	fctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	r, err := s.o.Decider.Finish(fctx, t, act.Outcome{Body: raw})
	if err != nil {
		return nil, fmt.Errorf("recording the list %s: %w", name, err)
	}
	return r.Body, nil
}
