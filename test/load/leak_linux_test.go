package load

import (
	"context"
	"net/http"
	"os"
	"testing"

	"ringfence/internal/daemon/api"
)

// TestR16Leak opens many sessions over HTTP, half of which nobody ends, and many of the
// engine, and has the server restarted many times. Processes, descriptors, goroutines and
// memory of both are then what they were before.
func TestR16Leak(t *testing.T) {
	sessions, restarts := 1_000, 10
	if os.Getenv("RINGFENCE_SOAK") != "" {
		sessions, restarts = 10_000, 100
	}
	s := newStage(t, "steady", "modern")
	all := &tally{}
	d := s.listen()
	s.once(d, all, 1)
	engine := s.enginePID()
	before, ours, guests := s.now(engine), s.now(d.cmd.Process.Pid), s.guests()
	if guests != 2 {
		t.Fatalf("%d servers run", guests)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for n := range sessions {
		p := s.session(client, d)
		p.book = newBook(1000+n, all)
		p.ask(context.Background(), "steady")
		if n%2 == 0 {
			s.must(p.end())
		}
	}
	s.endSessions(d)
	t.Logf("after the sessions of clients: the engine has %s, the mediator %s", s.now(engine), s.now(d.cmd.Process.Pid))
	for range restarts {
		_, err := s.Run(t.Context(), "servers", "restart", "steady")
		s.must(err)
		s.once(d, all, 2)
	}
	s.sessionsOfEngine(sessions)
	t.Logf("after restarts and sessions of the engine: it has %s, the mediator %s", s.now(engine), s.now(d.cmd.Process.Pid))
	if all.many > 0 || all.failed.Load() > 0 {
		t.Errorf("%d faults and %d errors: %q %v", all.many, all.failed.Load(), all.faults, all.why)
	}
	client.CloseIdleConnections()
	s.settles("the engine", engine, before)
	s.settles("the mediator", d.cmd.Process.Pid, ours)
	if now := s.guests(); now != guests {
		t.Errorf("%d servers run, there were %d", now, guests)
	}
	s.goroutines(d, engine, all)
	s.ends()
}

// sessionsOfEngine opens and closes sessions of the engine.
func (s *stage) sessionsOfEngine(n int) {
	s.t.Helper()
	c, err := s.Connect(s.t.Context())
	s.must(err)
	defer c.Close()
	for range n {
		one, err := c.OpenSession(s.t.Context(), api.OpenRequest{Principal: "default/leak", Workspace: s.Work, PolicyDir: s.policy, Ask: api.AskNever})
		s.must(err)
		s.must(one.Close(s.t.Context()))
	}
}
