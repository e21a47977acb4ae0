package mediator

import (
	"context"
	"errors"
	"time"
)

// A lostError says why what was sent to a server has no answer.
type lostError struct{ why error }

func (e lostError) Error() string { return "sent, with unknown effect: " + e.why.Error() }
func (e lostError) Unwrap() error { return e.why }

// An unsentError says why something was not sent to a server at all.
type unsentError struct{ why error }

func (e unsentError) Error() string { return "not sent: " + e.why.Error() }
func (e unsentError) Unwrap() error { return e.why }

// plainly is err of a request that has no effect: whether it was sent is all the same.
func plainly(err error) error {
	if e, ok := errors.AsType[lostError](err); ok {
		return e.why
	}
	if e, ok := errors.AsType[unsentError](err); ok {
		return e.why
	}
	return err
}

// tell queues line. Of a server that takes nothing more the error is what became of
// it, not that a stream of ours has ended.
func (l *link) tell(ctx context.Context, line []byte) error {
	err := l.out.send(ctx, line)
	if !errors.Is(err, errClosed) {
		return err
	}
	l.deaf()
	if why := l.reason(); why != nil {
		return why
	}
	return err
}

// Bounds of the requests of one server that wait for clients.
const (
	maxServerAsks = 32
	maxClientAsks = 16 // of one client
)

// An asking is a request of a server that waits for its client.
type asking struct {
	cancel context.CancelCauseFunc
	client any // whose answer it waits for
	since  time.Time
	gone   bool // it gave way; what is done for it has yet to end
}

var errStopped = errors.New("it was stopped")

var errGaveWay = errors.New("the client has not answered, and newer ones wait")

// clientOf is whom a is about.
func clientOf(a asker) any {
	if c, ok := a.(*call); ok {
		return c.client()
	}
	return a.connection()
}

// admitAsk takes in one more request of the server, unless its id is in use. A client that
// has its share, or most of what there is room for, loses its oldest: who never answers
// keeps nobody else from being asked.
func (l *link) admitAsk(key string, a *asking) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking[key] != nil || len(l.asking) >= 2*maxServerAsks {
		return false
	}
	live, counts := 0, map[any]int{}
	for _, other := range l.asking {
		if !other.gone {
			live++
			counts[other.client]++
		}
	}
	if counts[a.client] >= maxClientAsks || live >= maxServerAsks {
		from := a.client
		for client, n := range counts {
			if counts[a.client] < maxClientAsks && n > counts[from] {
				from = client
			}
		}
		l.oldest(from).giveWay()
	}
	l.asking[key] = a
	return true
}

// settle ends what a server that is gone has asked, and waits until that is on record.
func (l *link) settle() {
	l.mu.Lock()
	for _, a := range l.asking {
		a.cancel(l.cause)
	}
	l.mu.Unlock()
	l.replies.Wait()
}

// oldest is the request that waits longest for a client, which has one. l.mu is held.
func (l *link) oldest(client any) *asking {
	var found *asking
	for _, a := range l.asking {
		if !a.gone && a.client == client && (found == nil || a.since.Before(found.since)) {
			found = a
		}
	}
	return found
}

func (a *asking) giveWay() {
	a.gone = true
	a.cancel(errGaveWay)
}

func (l *link) forgetAsk(key string, a *asking) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking[key] == a {
		delete(l.asking, key)
	}
}

// deaf takes the link down if nothing can be written any more. A process that is about to
// end says more by how it does.
func (l *link) deaf() {
	select {
	case <-l.out.done:
		select {
		case <-l.down:
		case <-time.After(drainTime / 4):
			l.breach(errors.New("it closed its input"))
		}
	default:
	}
}
