package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"ringfence/internal/sys/paths"
	"ringfence/test/rig"
)

const (
	agents    = 3                      // clients at any time
	hands     = 2                      // calls that each has under way
	mostCalls = 12                     // that a kill waits for
	mostWait  = 60 * time.Millisecond  // that a kill waits for
	patience  = 120 * time.Second      // for something to work again
	each      = 50                     // rounds between two looks at the record
	coarse    = 10 * time.Millisecond  // how far the clock of a file system may be behind
	keepEnv   = "RINGFENCE_CRASH_KEEP" // keep the files of a run that failed
)

// TestCrash has agents write files through one engine, kills engine and agents
// with SIGKILL at random moments, and checks against the record that there is no
// effect without its entry, that nothing acknowledged is lost, and that every
// record verifies. RINGFENCE_CRASH_ROUNDS is how many kills there are, and
// RINGFENCE_CRASH_SEED repeats the choices of an earlier run.
func TestCrash(t *testing.T) {
	rounds, seed := setting(t, "RINGFENCE_CRASH_ROUNDS", 60), setting(t, "RINGFENCE_CRASH_SEED", int64(rand.Uint32()))
	t.Logf("%d rounds; RINGFENCE_CRASH_SEED=%d", rounds, seed)
	bin, err := rig.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h, err := rig.New(bin)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{home: h, log: t.Logf, rng: rand.New(rand.NewPCG(uint64(seed), 0)), record: newRecord(h)}
	defer func() {
		if t.Failed() {
			t.Logf("the end of the engine's log:\n%s\nof those of clients:\n%s", tail(paths.EngineLog(h.Own)), tail(h.Log()))
		}
		if t.Failed() && os.Getenv(keepEnv) != "" {
			t.Logf("the files are in %s", h.Own)
			return
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.play(t.Context(), rounds); err != nil {
		t.Fatal(err)
	}
	t.Log(s.record.summary())
}

// tail returns the last lines of a file.
func tail(name string) []byte {
	text, err := os.ReadFile(name)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-2000):]
}

func setting(t *testing.T, name string, otherwise int64) int64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// A scene is one run.
type scene struct {
	home            *rig.Home
	log             func(format string, args ...any)
	policy, servers string
	rng             *rand.Rand // only of the goroutine that kills
	record          *record
	agents          []*agent
	kills           map[string]int

	mu      sync.Mutex
	acks    int           // calls that were answered as they should be
	changed chan struct{} // closed and replaced when acks grows
	broken  error         // what no crash explains
}

func (s *scene) play(ctx context.Context, rounds int64) (err error) {
	s.kills, s.changed = map[string]int{}, make(chan struct{})
	if s.policy, err = s.home.Policy(ctx, "may do anything in the workspace"); err != nil {
		return err
	}
	if s.servers, err = s.home.Servers(rig.Filesystem()); err != nil {
		return err
	}
	work, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for n := range agents {
		a := &agent{scene: s, name: fmt.Sprint("a", n)}
		s.agents = append(s.agents, a)
		all.Go(func() { a.live(work) })
	}
	err = s.kill(ctx, rounds)
	stop()
	all.Wait()
	if err == nil {
		err = s.broken
	}
	if err == nil {
		err = s.finish(ctx)
	}
	if err != nil {
		return fmt.Errorf("after %v kills: %w", s.kills, err)
	}
	return nil
}

// kill kills something in each round. Most rounds wait until everything works
// again, some strike while it recovers.
func (s *scene) kill(ctx context.Context, rounds int64) error {
	for n := int64(1); n <= rounds; n++ {
		if err := s.moment(ctx); err != nil {
			return err
		}
		s.strike()
		if s.rng.IntN(4) > 0 {
			if err := s.recovered(ctx); err != nil {
				return fmt.Errorf("round %d: %w", n, err)
			}
		}
		if n%each == 0 {
			if err := s.recovered(ctx); err != nil {
				return fmt.Errorf("round %d: %w", n, err)
			}
			if err := s.record.check(ctx, false); err != nil {
				return fmt.Errorf("round %d: %w", n, err)
			}
			s.log("round %d, kills so far %v: %s", n, s.kills, s.record.summary())
		}
	}
	return s.recovered(ctx)
}

// moment waits for a random moment: so many more calls, or so much time.
func (s *scene) moment(ctx context.Context) error {
	if s.rng.IntN(2) == 0 {
		return s.await(ctx, s.answered()+s.rng.IntN(mostCalls))
	}
	timer := time.NewTimer(time.Duration(s.rng.Int64N(int64(mostWait))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// strike kills the engine, also one that is only about to listen, or an agent,
// or both.
func (s *scene) strike() {
	what := s.rng.IntN(10)
	if what < 6 {
		for _, p := range s.home.Processes("engine", "run") {
			_ = p.Kill() // it has ended meanwhile, which is as well
			s.kills["engine"]++
		}
	}
	if what >= 5 && s.agents[s.rng.IntN(agents)].kill() {
		s.kills["client"]++
	}
}

// recovered waits until every agent has got something done again.
func (s *scene) recovered(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nothing works again for %s", patience))
	defer cancel()
	for _, a := range s.agents {
		before := a.done.Load()
		for a.done.Load() == before {
			if err := s.await(ctx, s.answered()+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scene) answered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acks
}

// await waits until n calls were answered.
func (s *scene) await(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		acks, changed, broken := s.acks, s.changed, s.broken
		s.mu.Unlock()
		if broken != nil || acks >= n {
			return broken
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *scene) ack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks++
	close(s.changed)
	s.changed = make(chan struct{})
}

// fault notes what no crash explains, and ends the scene.
func (s *scene) fault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.broken = err
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// finish looks at the record for the last time, with nothing running.
func (s *scene) finish(ctx context.Context) error {
	if err := s.record.check(ctx, true); err != nil {
		return err
	}
	if _, err := s.home.Run(ctx, "engine", "stop", "--force"); err != nil {
		return err
	}
	if err := s.home.Ended(patience); err != nil {
		return err
	}
	return s.record.offline(ctx)
}
