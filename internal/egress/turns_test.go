package egress

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"ringfence/internal/act"
)

// slow is a Decider that counts who is with it, and lets nobody go before it is told.
type slow struct {
	deciding, finishing, most atomic.Int64
	free                      chan struct{}
}

func (s *slow) Decide(context.Context, act.Request) (act.Ticket, error) {
	s.most.Store(max(s.most.Load(), s.deciding.Add(1)))
	<-s.free
	s.deciding.Add(-1)
	return act.Ticket{}, nil
}

func (s *slow) Finish(context.Context, act.Ticket, act.Outcome) (act.Reply, error) {
	s.finishing.Add(1)
	return act.Reply{}, nil
}

// TestTurns: of many requests at once no more are asked about than the engine takes, each
// is decided in the end, and results do not wait for decisions.
func TestTurns(t *testing.T) {
	s := &slow{free: make(chan struct{})}
	d := inTurns(s)
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			if _, err := d.Decide(t.Context(), act.Request{}); err != nil {
				t.Error(err)
			}
		})
	}
	for len(d.deciding) < maxDeciding {
		if _, err := d.Finish(t.Context(), act.Ticket{}, act.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Finish(t.Context(), act.Ticket{}, act.Outcome{}); err != nil || s.finishing.Load() == 0 {
		t.Errorf("a result waits for decisions: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Decide(gone, act.Request{}); err == nil {
		t.Error("decided for who has gone")
	}
	close(s.free)
	all.Wait()
	if s.most.Load() > maxDeciding {
		t.Errorf("%d were asked about at once", s.most.Load())
	}
}
