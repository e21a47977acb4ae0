// Package daemon is the engine: it builds the parts, wires them to each other,
// and answers the socket until nobody needs it.
//
// It is wiring and not logic: deciding is the gate's, recording the ledger's,
// asking the desk's. It is the only process of its home that opens the ledger,
// its key, the pins and the desk.
//
// Invariants:
//
//	E1  One engine per home: it holds the lock before it opens anything.
//	E2  A session exists for clients only after its start has been recorded, and
//	    is resumed only with its token, by the same user.
//	E3  What a lost client left under way is recorded as orphaned, once, before
//	    its session goes on or ends.
//	E4  The engine ends by itself only when no session is open, and a session
//	    without a client is open for its grace at most, whichever engines it has
//	    in that time; not even so long once the process of its client has ended,
//	    which alone can resume it.
//
// Lock order: waiting.turn, Engine.mu, then nothing; parts are called without the
// latter.
package daemon

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/config"
	"ringfence/internal/daemon/api"
	"ringfence/internal/daemon/statistics"
	"ringfence/internal/desk"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
	"ringfence/internal/session"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
)

// Options say which engine runs, and how.
type Options struct {
	Home    string // of ringfence; it must exist
	Program string // version, told to clients and recorded
	// UserHome is the person's home. Default: that of this process.
	UserHome string
	// Ready is called once, when clients can connect.
	Ready func()
	// Failed is called once with why, when the engine of the home cannot start.
	// It then tells that to every client for Linger, or until its files change, so
	// that they do not start one engine after the other. Nil: Run returns at once.
	Failed func(error)
	Linger time.Duration // 0 is five seconds
	// Idle is how long the engine stays without a session and a connection.
	// 0 is the configured time.
	Idle time.Duration
	// Grace is how long a session whose client is not connected can be resumed. 0 is
	// two minutes. It is over when the process of the client has ended.
	Grace time.Duration
	// Sessions bounds the sessions that are open at once. 0 is 256.
	Sessions int
	// Sweep, if set, is called once at the start, beside everything else, to remove
	// what boxes of dead processes left on the machine.
	Sweep func(context.Context) error
	Now   func() time.Time // default time.Now
}

const (
	defaultGrace    = 2 * time.Minute
	defaultLinger   = 5 * time.Second
	defaultSessions = 256
	// drainTime is how long an engine that is stopped goes on with what it has begun.
	drainTime = time.Second
	// heapRoom is how many bytes the heap may grow, about, before garbage is collected.
	// What lives in an engine is so little that it would be after every few calls, and
	// each time all threads are woken.
	heapRoom = 12 << 20
)

// An Engine is the running engine of one home.
type Engine struct {
	o       Options
	conf    config.Config
	started time.Time
	user    string // real path of the person's home
	signer  ed25519.PrivateKey

	compiled  compiled
	authority *authority
	ledger    *ledger.Ledger
	desk      *desk.Desk
	pins      *pins
	secrets   *secrets
	lists     *lists
	gate      *gate.Gate
	server    *api.Server
	counts    *statistics.Recorder // nil: none are kept
	people    []desk.Person        // who can answer
	stop      context.CancelCauseFunc
	done      <-chan struct{} // closed when the engine is to stop

	mu       sync.Mutex
	runs     map[string]*run
	opening  int                         // places for sessions that are about to be runs
	waiting  map[string]*waiting         // adopted, and not resumed yet
	monitors map[string]*policy.Monitors // by policy hash
	accounts map[string]*account         // by persona: what it used of models today
	changed  chan struct{}               // closed and replaced when runs or waiting change
	work     sync.WaitGroup              // goroutines that the engine started
}

// A run is an open session that this engine has built.
type run struct {
	gate      *gate.Run
	file      session.File // Engine.mu
	verb      string
	notes     []string
	ports     []uint16 // that the policy names
	asker     atomic.Pointer[asker]
	owner     uint64             // connection that owns it; 0: none
	connected connected          // what certificates may be signed for
	inferring inferring          // requests to models that are under way
	lost      context.CancelFunc // stops the grace timer, nil while owned
}

var _ api.Handler = (*Engine)(nil)

// errStopped is why the engine's context ends when it was asked to stop.
var errStopped = errors.New("the engine was stopped")

// Run is the engine from lock to last checkpoint. It returns nil when it was
// asked to stop, was idle, or ctx ended; ipc.ErrLocked when another process is
// the engine of that home.
func Run(ctx context.Context, o Options) (err error) {
	// It is never touched, so it counts for the collector and takes no memory: if it comes
	// before anything that is given back, whose place it would get and have to clear.
	room := make([]byte, heapRoom)
	defer runtime.KeepAlive(room)
	lock, err := ipc.NewLock(paths.EngineLock(o.Home))
	if err != nil {
		return fmt.Errorf("becoming the engine of %s: %w", o.Home, err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	socket, err := paths.EngineSocket(o.Home)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	conf := statOf(paths.ConfigFile(o.Home))
	e, err := open(ctx, o)
	if err != nil {
		return o.refuse(ctx, lock, socket, conf, err)
	}
	e.stop, e.done = stop, ctx.Done()
	l, err := lock.Listen(socket)
	if err != nil {
		return errors.Join(fmt.Errorf("listening for clients: %w", err), e.close())
	}
	guests, err := admitGuests(e.conf, e.people)
	if err != nil {
		return errors.Join(err, l.Close(), e.close())
	}
	if err := e.tellPeople(ctx); err != nil {
		return errors.Join(err, l.Close(), e.close())
	}
	if o.Ready != nil {
		o.Ready()
	}
	e.work.Go(func() { e.idle(ctx) })
	e.work.Go(func() { e.reap(ctx) })
	e.work.Go(func() { e.sweep(ctx) })
	serving, left := context.WithCancelCause(context.WithoutCancel(ctx))
	e.work.Go(func() {
		<-ctx.Done()
		e.desk.Close() // who waits is told so
		e.server.Drain(drainTime)
		left(context.Cause(ctx))
	})
	if guests != nil {
		e.work.Go(func() { e.serveGuests(serving, guests) })
	}
	err = e.server.Serve(serving, l)
	stop(nil)
	e.work.Wait()
	return errors.Join(err, e.close())
}

// sweep has removed what dead processes left. It is housekeeping: the log says why it
// could not be done.
func (e *Engine) sweep(ctx context.Context) {
	if e.o.Sweep == nil {
		return
	}
	if err := e.o.Sweep(ctx); err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "sweeping", slog.Any("err", err))
	}
}

// open builds the parts.
func open(ctx context.Context, o Options) (*Engine, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Sessions == 0 {
		o.Sessions = defaultSessions
	}
	conf, _, err := config.Load(o.Home)
	if err != nil {
		return nil, err
	}
	if o.Idle == 0 {
		o.Idle = conf.Idle
	}
	e := &Engine{
		o: o, conf: conf, started: o.Now(), runs: map[string]*run{}, waiting: map[string]*waiting{},
		monitors: map[string]*policy.Monitors{}, accounts: map[string]*account{}, changed: make(chan struct{}),
	}
	if e.user = o.UserHome; e.user == "" {
		if e.user, err = paths.UserHome(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(paths.Sessions(o.Home), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of sessions: %w", err)
	}
	if e.signer, err = keychain.LoadOrCreate(paths.LedgerKey(o.Home)); err != nil {
		return nil, err
	}
	e.secrets = newSecrets(o.Home, e.signer.Seed(), o.Now)
	e.authority = newAuthority(e.secrets, paths.AuthorityFile(o.Home), o.Now)
	if e.pins, err = openPins(paths.PinsFile(o.Home)); err != nil {
		return nil, err
	}
	if e.lists, err = openLists(Lists(o.Home)); err != nil {
		return nil, err
	}
	if err := e.adopt(); err != nil {
		return nil, err
	}
	e.ledger, err = ledger.Open(ctx, paths.LedgerDir(o.Home), ledger.Options{
		Key: e.signer, Now: o.Now, Version: o.Program,
	})
	if err != nil {
		return nil, unopened(err)
	}
	people, more := peopleOf(conf)
	e.people = people
	e.desk = desk.New(desk.Options{Roles: conf.Approvers, People: e.people, Wait: conf.AskWait, Now: o.Now})
	e.gate = gate.New(gate.Options{
		Runs: e.gateRun, Ledger: e.ledger, Desk: deskFace{e.desk, o.Now, more}, Pins: e.pins,
		Inspect: e.secrets, Now: o.Now, Digest: digest,
	})
	if !conf.StatisticsOff {
		e.counts = statistics.NewRecorder(statistics.Options{Path: paths.StatisticsFile(o.Home), Days: conf.StatisticsDays, Now: o.Now})
	}
	e.server = api.NewServer(e, api.ServerOptions{Home: o.Home, Program: o.Program})
	return e, nil
}

// unopened is the error of a ledger that does not open: nothing can be recorded,
// unless the reason is what it holds.
func unopened(err error) error {
	switch {
	case errors.Is(err, ipc.ErrLocked): // who holds it is not the engine: we are
		return fmt.Errorf("opening the ledger: %w: another process has it open: %v", ledger.ErrUnwritable, err) //nolint:errorlint // not ErrLocked to callers
	case errors.Is(err, ledger.ErrUnwritable), errors.Is(err, ledger.ErrTampered), errors.Is(err, ledger.ErrKey):
		return fmt.Errorf("opening the ledger: %w", err)
	}
	return fmt.Errorf("opening the ledger: %w: %w", ledger.ErrUnwritable, err)
}

// close records what every session that is open leaves under way, and writes the
// last checkpoint. Sessions stay resumable by the next engine.
func (e *Engine) close() error {
	ctx := context.Background()
	errs := []error{e.settle(ctx)}
	for _, r := range e.all() {
		errs = append(errs, e.gate.Orphan(ctx, r.gate))
	}
	e.counts.Close()
	return errors.Join(append(errs, e.ledger.Close(ctx), e.secrets.close())...)
}

// idle stops the engine when it has had neither session nor connection for
// Options.Idle.
func (e *Engine) idle(ctx context.Context) {
	for {
		e.mu.Lock()
		changed, busy := e.changed, len(e.runs)+len(e.waiting) > 0
		e.mu.Unlock()
		timer := time.NewTimer(e.o.Idle)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-timer.C:
			if !busy && e.server.Connections() == 0 {
				e.stop(errStopped)
				return
			}
		}
	}
}

func (e *Engine) gateRun(id string) (*gate.Run, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.runs[id]
	if r == nil {
		return nil, false
	}
	return r.gate, true
}

func (e *Engine) all() []*run {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*run, 0, len(e.runs))
	for _, r := range e.runs {
		all = append(all, r)
	}
	return all
}

// note wakes whoever waits for the set of runs to change. Engine.mu is held.
func (e *Engine) note() {
	close(e.changed)
	e.changed = make(chan struct{})
}
