package mediator

import (
	"context"
	"errors"
	"time"
)

// aliveTime is how long a server that let a call time out may take for a ping.
const aliveTime = 10 * time.Second

// doubt finds out whether a server still answers at all, and takes the link down if
// it does not, so that the next call starts another.
func (l *link) doubt() {
	l.mu.Lock()
	busy := l.doubted
	l.doubted = true
	l.mu.Unlock()
	if busy {
		return
	}
	go func() { // ends with the time
		ctx, cancel := context.WithTimeout(context.Background(), aliveTime)
		defer cancel()
		err := l.alive(ctx)
		l.mu.Lock()
		l.doubted = false
		l.mu.Unlock()
		if err != nil && ctx.Err() != nil && l.up() {
			l.breach(errors.New("it does not answer any more"))
		}
	}()
}

// alive returns nil if the server answers, with whatever.
func (l *link) alive(ctx context.Context) error {
	l.mu.Lock()
	me := l.alone
	l.mu.Unlock()
	method := "ping"
	if me != nil {
		method = "server/discover"
	}
	a, err := l.request(ctx, errand{}, func(id int64) ([]byte, error) {
		return plain(id, method, []byte(`{}`)), nil
	})
	if err == nil {
		a.free()
	}
	return err
}
