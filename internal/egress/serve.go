package egress

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/egress/bridge"
	"ringfence/internal/egress/mitm"
	"ringfence/internal/egress/registry"
	"ringfence/internal/inspect"
)

// A way is the way out of one box.
type way struct {
	o        Options
	limits   Limits
	ctx      context.Context //nolint:containedctx // the life of the box, which outlives each connection
	dial     dialer
	names    *names
	floods   floods
	carrier  *http.Transport
	outward  http.RoundTripper // carrier, for programs of a box
	serviced *http.Transport   // to registries and what runs models, whose addresses no clause has named
	packages *registry.Handler // nil: no registry is known
	forward  *mitm.Forwarder
	lendings
	placeholders *inspect.Inspector // knows what stands for secrets; nil: there are none
	shapes       inspect.Inspector  // knows no secrets
	server       *http.Server       // of every stream that speaks HTTP
	feed         *feed
	work         sync.WaitGroup
	tally        tally
	failed       atomic.Pointer[error] // the first result that could not be recorded

	mu      sync.Mutex
	streams map[*stream]struct{}
}

func newWay(ctx context.Context, o Options) *way {
	w := &way{
		o: o, limits: o.Limits.withDefaults(), ctx: ctx, feed: newFeed(),
		floods: floods{all: map[string]*flood{}}, streams: map[*stream]struct{}{},
	}
	w.o.Decider = inTurns(o.Decider)
	if w.o.Now == nil {
		w.o.Now = time.Now
	}
	w.dial = dialer{net: o.Network, told: newTelling(), now: w.o.Now}
	w.names = newNames(w.limits.Names, w.o.Local)
	limits := mitm.Limits{Head: w.limits.HeadWait, Idle: w.limits.Idle, HeadBytes: w.limits.Header}
	unnamed := w.dial
	unnamed.unnamed = true
	w.carrier = mitm.NewTransport(mitm.TransportOptions{Dial: w.dial.dialText, Roots: o.Network.Roots, Limits: limits})
	w.serviced = mitm.NewTransport(mitm.TransportOptions{Dial: unnamed.dialText, Roots: o.Network.Roots, Limits: limits})
	w.outward = outward{w.carrier}
	w.forward = &mitm.Forwarder{Transport: w.outward, Limits: limits}
	w.placeholders = placeholders(o.Sentinels)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	w.server = &http.Server{
		Handler: w, Protocols: &protocols, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: w.limits.HeadWait, IdleTimeout: w.limits.Idle, MaxHeaderBytes: w.limits.Header,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, spokenKey{}, speaker(c))
		},
		ConnState: func(c net.Conn, s http.ConnState) {
			if s == http.StateHijacked { // its handler carries it to the end
				speaker(c).taken.Store(true)
			}
			if s == http.StateClosed {
				speaker(c).end()
			}
		},
		ErrorLog: log.New(nowhere{}, "", 0),
	}
	return w
}

func (w *way) now() time.Time { return w.o.Now() }

// unrecorded notes that something could not be recorded: Serve says so in the end.
func (w *way) unrecorded(err error) { w.failed.CompareAndSwap(nil, &err) }

// Serve carries the connections that l accepts, until ctx ends or l is closed. It closes
// l, and returns when everything that it began is over and on record. The error is that
// of l, if it was not closed, or of the first result that could not be recorded.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	if o.Decider == nil {
		return errNoDecider
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newWay(ctx, o)
	if len(o.Registries) > 0 {
		var err error
		if w.packages, err = registry.New(registry.Options{Places: o.Registries, Upstream: w.serviced, Now: w.o.Now}); err != nil {
			_ = l.Close()
			return fmt.Errorf("the way out: %w", err)
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	w.work.Go(func() { _ = w.server.Serve(w.feed) }) // its error is that the feed was closed
	w.work.Go(w.tend)
	err := w.accept(l)
	cancel()
	_ = l.Close()
	_ = w.server.Close()
	w.work.Wait()
	w.carrier.CloseIdleConnections()
	w.serviced.CloseIdleConnections()
	w.settle(true)
	if failed := w.failed.Load(); failed != nil {
		err = errors.Join(err, fmt.Errorf("recording what left a box: %w", *failed))
	}
	return err
}

// accept starts a goroutine for each connection, as many at once as there are places.
func (w *way) accept(l net.Listener) error {
	places := newPlaces(w.limits)
	for {
		conn, err := l.Accept()
		switch {
		case w.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if conn != nil {
				_ = conn.Close()
			}
			return nil
		case err != nil:
			return fmt.Errorf("accepting connections of a box: %w", err)
		}
		if !places.take(w.ctx) {
			_ = conn.Close()
			continue
		}
		w.work.Go(func() {
			defer places.leave()
			w.take(conn)
		})
	}
}

// tend ends streams in which nothing moves, and settles floods.
func (w *way) tend() {
	tick := time.NewTicker(min(w.limits.Idle/4+1, floodFor))
	defer tick.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		now := w.now()
		w.settle(false)
		w.mu.Lock()
		for s := range w.streams {
			if s.waiting.Load() == 0 && now.UnixNano()-s.touched.Load() > int64(w.limits.Idle) {
				_ = s.Close()
			}
		}
		w.mu.Unlock()
	}
}

// take carries one connection to its end, and closes it.
func (w *way) take(conn net.Conn) {
	defer conn.Close()
	s := &stream{Conn: conn, now: w.now}
	s.touch()
	stop := context.AfterFunc(w.ctx, func() { _ = conn.Close() })
	defer stop()
	w.mu.Lock()
	w.streams[s] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.streams, s)
		w.mu.Unlock()
	}()
	if s.await(w.limits.HeadWait) != nil {
		return
	}
	var err error
	if s.from, err = bridge.ReadPreamble(conn); err != nil {
		return
	}
	switch s.from.Kind {
	case bridge.KindProxy:
		w.proxy(s)
	case bridge.KindDirect:
		w.direct(s)
	case bridge.KindResolver:
		w.resolver(s)
	}
}

// proxy tells HTTP and SOCKS apart.
func (w *way) proxy(s *stream) {
	first, err := s.Peek(1)
	switch {
	case err != nil:
	case first[0] == socksVersion:
		w.socks(s)
	case 'A' <= first[0] && first[0] <= 'Z':
		w.speak(s, &spoken{stream: s, via: viaHTTP})
	}
	// Everything else is no protocol of a proxy.
}

// nowhere is where net/http writes what a client did wrong.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// A feed is a listener whose connections were accepted elsewhere.
type feed struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newFeed() *feed { return &feed{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept implements net.Listener.
func (f *feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *feed) Close() error { f.once.Do(func() { close(f.done) }); return nil }

// Addr implements net.Listener.
func (f *feed) Addr() net.Addr { return &net.UnixAddr{Name: "egress", Net: "unix"} }

// give hands c over; false if nobody takes it any more.
func (f *feed) give(c net.Conn) bool {
	select {
	case f.conns <- c:
		return true
	case <-f.done:
		return false
	}
}
