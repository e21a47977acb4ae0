package mediator

import (
	"context"
	"errors"
	"time"
)

// probeWait is how long a server may take to say that it has the era of requests
// until it is asked for a session as well. Most servers refuse what they do not know
// at once; one that says nothing to it is slower by this, once.
const probeWait = 500 * time.Millisecond

// What is known of the era of a server. Its incarnations have the same.
type known uint8

const (
	unknown   known = iota
	sessioned       // it opens a session with initialize
	apart           // every request stands alone
)

// errProbed says that a server ended when it was asked for the era of requests; it
// is to be started again, and asked for a session only.
var errProbed = errors.New("it ended when it was asked for what it does not know")

type opened struct {
	offer offer
	err   error
}

// open makes l ready for requests in the era that the server has. A server of which
// nothing is known is asked for the newer one first; whatever but a good answer to
// that is taken for the older one.
func (l *link) open(ctx context.Context, k known, version string) (offer, error) {
	switch {
	case l.proc.Sessions || k == sessioned:
		return sessions{}.open(ctx, l, version)
	case k == apart:
		return requests{}.open(ctx, l, version)
	case l.first == sessioned:
		o, err := sessions{}.open(ctx, l, version)
		if err == nil || ctx.Err() != nil || !l.up() {
			return o, err
		}
		return requests{}.open(ctx, l, version)
	}
	probing, stop := context.WithCancel(ctx)
	defer stop()
	newer := l.opening(probing, requests{}, version)
	wait := time.NewTimer(probeWait)
	defer wait.Stop()
	select {
	case o := <-newer:
		if o.err == nil || ctx.Err() != nil {
			return o.offer, o.err
		}
		newer = nil
	case <-wait.C:
	}
	if !l.up() {
		return offer{}, errProbed
	}
	older := l.opening(probing, sessions{}, version)
	for {
		select {
		case o := <-newer:
			if o.err == nil {
				return o.offer, nil
			}
			if newer = nil; older == nil {
				return offer{}, errors.New("opening: it speaks neither era of MCP")
			}
		case o := <-older:
			if o.err != nil && newer != nil && ctx.Err() == nil && l.up() {
				older = nil // a server of the newer era refuses initialize, and is slow
				continue
			}
			return o.offer, o.err
		}
	}
}

func (l *link) opening(ctx context.Context, era serverEra, version string) chan opened {
	done := make(chan opened, 1)
	go func() { // ends with ctx
		o, err := era.open(ctx, l, version)
		done <- opened{o, err}
	}()
	return done
}

// era is what l turned out to speak, once it is open.
func (l *link) era() known {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alone != nil {
		return apart
	}
	return sessioned
}
