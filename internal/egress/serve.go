package egress

import (
	"context"
	"net"
)

// Serve carries the connections that l accepts, until ctx ends or l is closed. It closes
// l, and returns when everything that it began is over and on record. The error is that
// of l, nil if it was closed.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	if o.Decider == nil {
		return errNoDecider
	}
	<-ctx.Done()
	return l.Close()
}
