package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"ringfence/internal/sys/ipc"
)

// ServerOptions configure a [Server]. The zero value is valid.
type ServerOptions struct {
	Home    string // told to clients
	Program string // version of the program, told to clients
	// MaxConns bounds connections, and a quarter of it those of one process. Default 256.
	MaxConns int
	// MaxInFlight bounds the requests of one connection that have no reply yet.
	// Default 256.
	MaxInFlight int
	// MaxBytes bounds the bodies of those requests together. Default 128 MiB.
	MaxBytes int
	// MaxTotal bounds the bodies of the requests of all connections together:
	// what is scanned takes memory several times. Default 256 MiB.
	MaxTotal int
	// Guests says which other users may connect, as guests ([Caller.Guest]), and then
	// nobody else may: what this user runs in a box could reach a socket that is made for
	// others. Nil: this user, and no other.
	Guests func(uid uint32) bool
	// Refusal, if set, answers every hello: this engine serves nobody.
	Refusal *Error
	// Log is told of connections that broke the protocol. Default: nobody is.
	Log func(error)
}

// A Server serves one [Handler] on any number of connections.
type Server struct {
	opts    ServerOptions
	handler Handler

	last  atomic.Uint64 // number of the newest connection
	seats seats
	bytes atomic.Int64 // of the bodies of all requests in flight
	busy  atomic.Int64 // requests that will be answered soon

	handover sync.Mutex // so that a session is never given away and reported gone at once; before mu

	mu     sync.Mutex
	owners map[string]*serverConn // the connection that owns a session
}

// NewServer returns a server for h.
func NewServer(h Handler, o ServerOptions) *Server {
	if o.MaxConns <= 0 {
		o.MaxConns = 256
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 256
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 128 << 20
	}
	if o.MaxTotal <= 0 {
		o.MaxTotal = 256 << 20
	}
	if o.Log == nil {
		o.Log = func(error) {}
	}
	return &Server{
		opts: o, handler: h, owners: map[string]*serverConn{},
		seats: seats{most: o.MaxConns, byPID: map[int]int{}, silent: map[*seat]struct{}{}},
	}
}

// Connections returns how many connections are open.
func (s *Server) Connections() int { return s.seats.count() }

// Serve accepts connections of this user until ctx ends or l fails, and returns
// when every connection has ended. It closes l. The error is nil if ctx ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if transient(err) {
				s.opts.Log(fmt.Errorf("accepting: %w", err))
				if pause(ctx) {
					continue
				}
				return nil
			}
			return errors.Join(fmt.Errorf("accepting: %w", err), l.Close())
		}
		var place *seat
		peer, err := s.admit(nc)
		if err == nil {
			place, err = s.seats.take(nc, peer.PID)
		}
		if err != nil {
			s.opts.Log(fmt.Errorf("refusing a connection: %w", err))
			_ = nc.Close()
			continue
		}
		running.Go(func() {
			defer place.leave()
			s.serveConn(ctx, nc, peer, place)
		})
	}
}

// Drain waits until every request has its reply, but for those that last as long as
// their connection, and for no longer than most.
func (s *Server) Drain(most time.Duration) {
	over := time.NewTimer(most)
	defer over.Stop()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for s.busy.Load() > 0 {
		select {
		case <-look.C:
		case <-over.C:
			return
		}
	}
}

// greetTime is how long a connection may be open without a hello: only what
// speaks our protocol takes a place for longer.
const greetTime = 10 * time.Second

// transient reports whether an error of accepting says something about one
// connection, or about what the process has left at the moment, and not about the
// listener (accept(2)).
func transient(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS,
		syscall.ECONNABORTED, syscall.EINTR, syscall.EAGAIN, syscall.EPROTO,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// acceptPause is how long no connection is accepted after a transient error.
const acceptPause = 50 * time.Millisecond

// pause reports whether ctx goes on after acceptPause.
func pause(ctx context.Context) bool {
	t := time.NewTimer(acceptPause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// admit asks the kernel who connects, and refuses other users, or all but guests. Where
// the kernel does not tell, the mode of the socket and of its directory decide alone, and
// nobody is a guest.
func (s *Server) admit(nc net.Conn) (ipc.Peer, error) {
	peer, err := ipc.PeerOf(nc)
	if err != nil {
		return ipc.Peer{}, err
	}
	if s.opts.Guests != nil && !peer.HasUID {
		return ipc.Peer{}, errors.New("this system does not say which user a guest is")
	}
	other := peer.HasUID && peer.UID != uint32(os.Geteuid())
	if guests := s.opts.Guests; other != (guests != nil) || other && !guests(peer.UID) {
		return ipc.Peer{}, fmt.Errorf("the peer is user %d", peer.UID)
	}
	return peer, nil
}

// ServeConn serves one connection until it ends or ctx does, and closes it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn, peer ipc.Peer) {
	s.serveConn(ctx, nc, peer, &seat{})
}

func (s *Server) serveConn(ctx context.Context, nc net.Conn, peer ipc.Peer, place *seat) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &serverConn{
		server: s,
		seat:   place,
		caller: Caller{Conn: s.last.Add(1), Peer: peer, Guest: s.opts.Guests != nil},
		out:    writer{nc: nc, to: nc},
		ctx:    ctx,
		cancel: cancel,
		ended:  make(chan error, 1),
		in:     bufio.NewReaderSize(nc, 16<<10),
		flight: map[uint64]*inFlight{},
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	// As with deadlines of writing: what fails here fails the reader.
	_ = nc.SetReadDeadline(time.Now().Add(greetTime))
	c.read()
	err := <-c.ended
	stop()
	c.running.Wait()
	s.gone(c)
	if err != nil {
		s.opts.Log(fmt.Errorf("connection %d of process %d: %w", c.caller.Conn, peer.PID, err))
	}
}

var errConnectionEnded = errors.New("the connection ended")

// gone ends the ownerships of c and tells the handler.
func (s *Server) gone(c *serverConn) {
	s.handover.Lock()
	defer s.handover.Unlock()
	if owned := s.disown(c); c.greeted {
		s.handler.Gone(c.caller, owned)
	}
}

// own makes c the owner of session.
func (s *Server) own(session string, c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[session] = c
}

// owns reports whether c owns session.
func (s *Server) owns(session string, c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owners[session] == c
}

// disown ends every ownership of c and returns the sessions.
func (s *Server) disown(c *serverConn) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var owned []string
	for session, o := range s.owners {
		if o == c {
			owned = append(owned, session)
			delete(s.owners, session)
		}
	}
	return owned
}

// release ends c's ownership of one session.
func (s *Server) release(session string, c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners[session] == c {
		delete(s.owners, session)
	}
}
