package bridge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Sockets are those that a box can come to. Serve closes them.
type Sockets struct {
	Proxy    []net.Listener
	Resolver []net.Listener
	Packets  []net.PacketConn // the resolver over UDP
	Direct   []net.Listener
}

// A Conn is a connection of which one direction can be ended alone: *net.TCPConn,
// *net.UnixConn.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Options of [Serve].
type Options struct {
	// Dial connects to the way out, and says the Preamble there. Required.
	Dial func(context.Context, Preamble) (Conn, error)
	// Connections is how many there may be at once, of all kinds together; 0 is
	// [DefaultConnections].
	Connections int
}

// DefaultConnections is more than programs make that do not attack, and some 10 MB.
const DefaultConnections = 1024

const (
	dialTime = 10 * time.Second // to reach the way out, not what is behind it
	// acceptPause is how long a listener waits that has no descriptors left.
	acceptPause = 10 * time.Millisecond
)

var noDeadline time.Time

type server struct {
	o     Options
	ctx   context.Context
	slots chan struct{}
	all   sync.WaitGroup

	mu   sync.Mutex
	open map[io.Closer]bool
	done bool
}

// Serve carries connections until ctx is done, then cuts off those that are left, and
// returns when all is gone. It returns an error only if a socket fails for good.
func Serve(ctx context.Context, sockets Sockets, o Options) error {
	if o.Connections <= 0 {
		o.Connections = DefaultConnections
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &server{o: o, ctx: ctx, slots: make(chan struct{}, o.Connections), open: map[io.Closer]bool{}}
	defer context.AfterFunc(ctx, s.shut)()
	run := func(c io.Closer, f func() error) {
		s.keep(c)
		s.all.Go(func() {
			if err := f(); err != nil {
				cancel(err)
			}
		})
	}
	for kind, listeners := range map[Kind][]net.Listener{KindProxy: sockets.Proxy, KindResolver: sockets.Resolver, KindDirect: sockets.Direct} {
		for _, l := range listeners {
			run(l, func() error { return s.accept(l, kind) })
		}
	}
	for _, p := range sockets.Packets {
		run(p, func() error { return s.datagrams(p) })
	}
	<-ctx.Done()
	s.shut()
	s.all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// keep has c closed when Serve ends; false, and closed, if that is already.
func (s *server) keep(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		c.Close()
		return false
	}
	s.open[c] = true
	return true
}

func (s *server) drop(c io.Closer) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

func (s *server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	for c := range s.open {
		c.Close()
	}
	clear(s.open)
}

// place takes one of the places of B1, if there is one.
func (s *server) place() bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *server) accept(l net.Listener, kind Kind) error {
	for {
		c, err := l.Accept()
		if s.ctx.Err() != nil {
			if err == nil {
				reset(c)
			}
			break
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			// Descriptors or memory are short: what is there may end.
			select {
			case <-s.ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		in, ok := c.(Conn)
		if !ok || !s.place() {
			reset(c)
			continue
		}
		s.all.Go(func() {
			defer func() { <-s.slots }()
			s.carry(in, kind)
		})
	}
	return nil
}

// carry brings one connection to the way out and stays until both directions have ended.
func (s *server) carry(in Conn, kind Kind) {
	if !s.keep(in) {
		return
	}
	defer s.drop(in)
	ctx, cancel := context.WithTimeout(s.ctx, dialTime)
	defer cancel()
	out, err := s.o.Dial(ctx, Preamble{Kind: kind, Dst: destination(in)})
	if err != nil {
		reset(in)
		return
	}
	if !s.keep(out) {
		return
	}
	defer s.drop(out)
	if err := join(in, out, kind == KindDirect); err != nil {
		reset(in)
	}
}

func destination(c net.Conn) netip.AddrPort {
	a, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	to := a.AddrPort()
	return netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port())
}

// errRefused is how one ends that the way out closed before it said anything.
var errRefused = errors.New("the way out said nothing")

// join copies both ways until both have ended, or one is cut off. That nothing at all comes
// from out is no end but a refusal, if silence says so.
func join(in, out Conn, silence bool) error {
	up := make(chan error, 1)
	go func() { up <- pour(out, in) }()
	n, err := io.Copy(in, out)
	switch {
	case err == nil && n == 0 && silence:
		err = errRefused
	case err == nil:
		err = in.CloseWrite()
	}
	if err != nil {
		reset(in)
		out.Close()
	}
	return errors.Join(err, <-up)
}

// pour copies from to to, and ends there what ended here. What is cut off on one side ends
// the other.
func pour(to, from Conn) error {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		return nil // the other end has said all it had to say
	}
	if err != nil {
		to.Close()
		from.Close()
	}
	return err
}

// reset closes c so that its other end sees that it was cut off.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // what fails is closed all the same
	}
	c.Close()
}

func closing(c io.Closer, err error) error { return errors.Join(err, c.Close()) }

// Close closes sockets that are not served.
func (s Sockets) Close() error {
	var all []error
	for _, l := range slices.Concat(s.Proxy, s.Resolver, s.Direct) {
		all = append(all, l.Close())
	}
	for _, p := range s.Packets {
		all = append(all, p.Close())
	}
	return errors.Join(all...)
}
