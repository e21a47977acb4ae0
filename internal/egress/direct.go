package egress

import (
	"context"
	"net/netip"
	"time"

	"ringfence/internal/act/weburl"
)

// direct carries a stream that came to an address in the box. One that stands for a name
// is that name; any other address of the local ranges is nothing.
func (w *way) direct(s *stream) {
	host, ok := w.names.host(s.from.Dst.Addr())
	if !ok || s.await(0) != nil {
		return
	}
	ctx, left := w.untilGone(s)
	d := &destination{
		host: host, port: s.from.Dst.Port(), via: viaDirect, stream: s, conn: s,
		granted: func(err error) error { return err }, // it believes that it is connected
	}
	t, no := w.askConnect(ctx, d)
	if left(); no != nil {
		return
	}
	w.carry(w.ctx, d, t)
}

// untilGone returns a context that ends when the program has gone, as far as that can be
// seen without losing a byte of it: what it sends meanwhile is kept to be read again. left
// must be called before anything else is read.
func (w *way) untilGone(s *stream) (ctx context.Context, left func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := s.Peek(len(s.peeked) + 1); err != nil && !isTimeout(err) {
			cancel()
		}
	}()
	return ctx, func() {
		_ = s.SetReadDeadline(time.Unix(1, 0)) // wakes the reader; a closed connection needs no waking
		<-done
		_ = s.SetReadDeadline(time.Time{})
		cancel()
	}
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// literal is the host of an address that is no stand-in.
func literal(a netip.Addr) weburl.Host { return weburl.AddrHost(a) }
