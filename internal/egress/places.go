package egress

import (
	"context"
	"time"
)

// Places bound how many connections of a box are carried at once. Programs that make very
// many at once mostly end the ones that they do not need, so the next waits for a place,
// and those behind it in the queue of the socket. One goroutine takes, any may leave.
type places struct {
	taken chan struct{}
	wait  time.Duration
	full  bool // the last that waited did so in vain: what comes next does not wait
}

func newPlaces(l Limits) *places {
	return &places{taken: make(chan struct{}, l.Connections), wait: l.PlaceWait}
}

// take reports whether there was a place, or came to be one in time.
func (p *places) take(ctx context.Context) bool {
	select {
	case p.taken <- struct{}{}:
		p.full = false
		return true
	default:
	}
	if p.full {
		return false
	}
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	select {
	case p.taken <- struct{}{}:
		return true
	case <-timer.C:
		p.full = true
	case <-ctx.Done():
	}
	return false
}

func (p *places) leave() { <-p.taken }
