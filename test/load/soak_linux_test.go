package load

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// soakFor is how long the clients of TestSoak work: some seconds, or what the environment
// says, which "make soak" does.
func soakFor(t *testing.T) time.Duration {
	text := os.Getenv("RINGFENCE_SOAK")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// mostMore is by how much the memory of a process may have grown when all is over, in bytes.
const mostMore = 32 << 20

// someMore is how many more descriptors or goroutines a process may have for a while: those of
// connections that it keeps, and of a server that it is about to start.
const someMore = 12

// TestSoak has ordinary and hostile clients of both transports and both eras work at
// servers that answer, die, flood and hang. Each question is answered once, each line that
// a client reads is about its own questions, and at the end nothing is left of it all.
func TestSoak(t *testing.T) {
	s := newStage(t, "steady", "modern", "dies", "floods", "hangs", "far")
	all := &tally{}
	d := s.listen()
	s.once(d, all, 1)
	engine := s.enginePID()
	before, ours := s.now(engine), s.now(d.cmd.Process.Pid)
	guests, files := s.guests(), s.files()
	start := time.Now()

	ctx, cancel := context.WithTimeout(t.Context(), soakFor(t))
	defer cancel()
	var working sync.WaitGroup
	speakers := s.speakers(d, all)
	for _, p := range speakers {
		for range 3 {
			working.Go(func() { work(ctx, p, s.names) })
		}
	}
	for range 3 {
		working.Go(func() { harm(ctx, d, all) })
	}
	working.Go(func() { harmPipe(ctx, s, all) })
	working.Go(func() { s.peaks(ctx, map[string]int{"the engine": engine, "the mediator": d.cmd.Process.Pid}) })
	working.Wait()
	for _, p := range speakers {
		if err := p.close(); err != nil {
			all.fault("a client leaves: %v", err)
		}
	}
	t.Logf("in %s: %d questions, %d answers, %d errors, %d withdrawn; hostile: %d", time.Since(start).Round(time.Second),
		all.asked.Load(), all.answered.Load(), all.failed.Load(), all.cancelled.Load(), all.hostile.Load())
	for _, why := range slices.Sorted(maps.Keys(all.why)) {
		t.Logf("%6d × %s", all.why[why], why)
	}
	if all.many > 0 {
		t.Errorf("%d faults, the first ones:\n%s", all.many, strings.Join(all.faults, "\n"))
	}
	if left := all.asked.Load() - all.answered.Load() - all.failed.Load() - all.cancelled.Load(); left != 0 {
		t.Errorf("%d questions are not accounted for", left)
	}
	if good := all.answered.Load(); good < all.asked.Load()/2 {
		t.Errorf("only %d of %d questions have an answer that is no error", good, all.asked.Load())
	}

	s.endSessions(d)
	s.once(d, all, 2)
	s.settles("the engine", engine, before)
	s.settles("the mediator", d.cmd.Process.Pid, ours)
	if now := s.guests(); now > guests {
		t.Errorf("there were %d processes of servers, there are %d", guests, now)
	}
	// It removes what killed ones have left, and fails where a server is down for the moment.
	_, _ = s.Run(t.Context(), "servers", "list")
	if now := s.files(); len(now) > len(files)+8 {
		t.Errorf("there were the files\n%s\nthere are\n%s", strings.Join(files, "\n"), strings.Join(now, "\n"))
	}
	s.goroutines(d, engine, all)
	out, err := s.Run(t.Context(), "ledger", "verify")
	if err != nil {
		t.Errorf("the ledger: %v\n%s", err, out)
	}
	s.ends()
}

// ends stops the engine, and looks for what is left of all processes and boxes.
func (s *stage) ends() {
	s.t.Helper()
	_, _ = s.Run(s.t.Context(), "engine", "stop", "--force") // it fails if none runs
	if err := s.Ended(10 * time.Second); err != nil {
		s.t.Error(err)
	}
	if n := s.guests(); n > 0 {
		s.t.Errorf("%d servers are left", n)
	}
}

func (s *stage) now(pid int) state {
	s.t.Helper()
	now, err := stateOf(pid)
	s.must(err)
	return now
}

// peaks says what processes have at most.
func (s *stage) peaks(ctx context.Context, pids map[string]int) {
	most := map[string]state{}
	for ctx.Err() == nil {
		for name, pid := range pids {
			if now, err := stateOf(pid); err == nil {
				m := most[name]
				most[name] = state{max(m.memory, now.memory), max(m.descriptors, now.descriptors), max(m.threads, now.threads)}
			}
		}
		pause(ctx, time.Second)
	}
	for name, m := range most {
		s.t.Logf("%s has at most %s", name, m)
	}
}

// speakers are three clients over standard input and output, and six over HTTP, half of
// which have sessions.
func (s *stage) speakers(d *door, all *tally) (speakers []speaker) {
	for n := range 3 {
		p, err := newPipe(s.mcp(), newBook(100+n, all))
		s.must(err)
		speakers = append(speakers, p)
	}
	for n := range 6 {
		p, err := newPoster(context.Background(), d.url, d.token, newBook(200+n, all), n%2 == 0)
		s.must(err)
		speakers = append(speakers, p)
	}
	return speakers
}

// endSessions ends what sessions hostile clients have left behind: newer ones take their
// places, and are ended by their clients.
func (s *stage) endSessions(d *door) {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var mine []*poster
	for range sessionsKept {
		mine = append(mine, s.session(client, d))
	}
	for _, p := range mine {
		_ = p.end() // one of them may have given way to one of before that was still in use
	}
}

// sessionsKept is how many sessions one client of HTTP may have.
const sessionsKept = 1024

// goroutines compares how many run in the door and in the engine with how many do in new ones
// that have done little. Both end.
func (s *stage) goroutines(d *door, engine int, all *tally) {
	s.t.Helper()
	old, err := d.quit()
	s.must(err)
	fresh := s.listen()
	s.once(fresh, all, 3)
	young, err := fresh.quit()
	s.must(err)
	s.t.Logf("the mediator had %d goroutines at the end, a new one has %d", old, young)
	if old == 0 || old > young+someMore {
		s.t.Errorf("the mediator had %d goroutines at the end, a new one has %d", old, young)
	}
	old = s.engineQuits(engine)
	young = s.engineQuits(s.enginePID())
	s.t.Logf("the engine had %d goroutines at the end, a new one has %d", old, young)
	if old == 0 || old > young+someMore {
		s.t.Errorf("the engine had %d goroutines at the end, a new one has %d", old, young)
	}
}

// engineQuits has the engine say in its log what runs in it, and end.
func (s *stage) engineQuits(pid int) int {
	s.t.Helper()
	log := s.Own + "/engine.log"
	was, _ := os.ReadFile(log)
	s.must(syscall.Kill(pid, syscall.SIGQUIT))
	for until := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil && time.Now().Before(until); {
		<-time.After(20 * time.Millisecond)
	}
	now, err := os.ReadFile(log)
	s.must(err)
	return strings.Count("\n"+string(now[min(len(was), len(now)):]), "\ngoroutine ")
}
