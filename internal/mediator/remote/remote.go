// Package remote makes of an MCP server that is reached over HTTP a
// [mediator.Process]: lines go in, lines come out, and nobody behind it knows that
// there is no process. It speaks streamable HTTP (revisions 2025-03-26 and later,
// with what 2026-07-28 adds) and HTTP with server-sent events (2024-11-05).
//
// It decides nothing and changes no message: what a line says is for the mediator.
// It does not dial: an [Options.Reach] gives it what carries requests. It holds no
// tokens and obtains none: an [Authorizer] does.
//
// Invariants:
//
//	H1  A request is sent once, and again only if the server refused to look at it (401,
//	    403) and the [Authorizer] has another token, a few times at most. Only the stream
//	    of an answer is taken up again, and only where the server numbered it.
//	H2  Redirects are not followed, compressed bodies and other types than JSON and
//	    event streams are refused.
//	H3  Everything is bounded: lines, bodies, waiting bytes, requests at once, header
//	    fields, the time of the farewell. What takes long is ended by who waits for it.
//	H4  In the answer to one request, no other request is answered.
//	H5  Values of configured headers are in the requests to this server and nowhere
//	    else; what the server sends back of them, package mediator takes out. A message that
//	    holds the token of an [Authorizer] is not passed on. The end of a Process says
//	    nothing in words of the server.
package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/mediator"
	"ringfence/internal/sandbox"
	"ringfence/internal/sys/ipc"
)

// Bounds that no option changes.
const (
	maxFlights   = 512       // requests at once; the mediator's own bound is lower
	maxHeld      = 256 << 20 // bytes of messages on their way, of one server
	maxErrorBody = 64 << 10  // of an answer that is an error of HTTP
	maxSession   = 1 << 10   // bytes of a session id
	farewell     = 1500 * time.Millisecond
	notifyTime   = 10 * time.Second // for a server to accept a notification
)

// Options say how servers are reached.
type Options struct {
	// Local starts the servers that are not reached over HTTP.
	Local mediator.Starter
	// Reach returns what carries requests to s and to whom it has tokens from, or an
	// error that says why nothing does. nil is [Reach] without a way to other machines.
	Reach func(s mediator.Server) (http.RoundTripper, error)
	// Authorize returns what shows s that we may use it. nil is nothing.
	Authorize func(s mediator.Server, carrier http.RoundTripper) (Authorizer, error)
	// Record puts on record that nothing confines a server, before it is reached.
	Record func(ctx context.Context, server, line string, r sandbox.Report) error
	// Max bounds one message of a server, in bytes: 64 MiB.
	Max int
}

// New returns a [mediator.Starter] for servers of both kinds.
func New(o Options) mediator.Starter {
	if o.Reach == nil {
		o.Reach = Reach(nil)
	}
	if o.Max <= 0 {
		o.Max = 64 << 20
	}
	return starter{o, &authorizers{by: map[string]Authorizer{}}}
}

type starter struct {
	o     Options
	known *authorizers
}

// authorizers are those of servers by name.
type authorizers struct {
	mu sync.Mutex
	by map[string]Authorizer
}

// NotHeld is what confines a server that is reached over HTTP, as one line.
const NotHeld = "box: none; network: not held"

// Start implements [mediator.Starter]. Nothing is sent yet.
func (s starter) Start(ctx context.Context, srv mediator.Server) (*mediator.Process, error) {
	if !srv.Remote() {
		return s.o.Local.Start(ctx, srv)
	}
	carrier, err := s.o.Reach(srv)
	if err != nil {
		return nil, fmt.Errorf("reaching server %s: %w", srv.Name, err)
	}
	if s.o.Record != nil {
		r := sandbox.Report{Evidence: map[string]string{"network": "not held: it runs elsewhere and is reached at " + srv.ShownURL()}}
		if err := s.o.Record(ctx, srv.Name, NotHeld, r); err != nil {
			return nil, fmt.Errorf("reaching server %s: %w", srv.Name, err)
		}
	}
	auth, err := s.authorizer(srv, carrier)
	if err != nil {
		return nil, fmt.Errorf("reaching server %s: %w", srv.Name, err)
	}
	return open(srv, carrier, auth, s.o.Max), nil
}

// Reach returns the [Options.Reach] for servers of this machine, and for others if away
// carries requests to them. A server behind a Unix socket is reached there alone,
// whatever host its URL names.
func Reach(away http.RoundTripper) func(mediator.Server) (http.RoundTripper, error) {
	return func(s mediator.Server) (http.RoundTripper, error) {
		if socket := s.Ringfence.Socket; socket != "" {
			return ipc.HTTP(socket), nil
		}
		u, err := url.Parse(s.URL)
		if err != nil {
			return nil, errors.New("its URL is not one")
		}
		if away == nil && !isHere(u) {
			return nil, fmt.Errorf("it is at %q: %w", u.Host, errFar)
		}
		return Carrier(away), nil
	}
}

// A conn is one connection to a server: what an incarnation of a process is to others.
type conn struct {
	url     string
	mode    mediator.Transport // "" until it is found out
	headers map[string]string
	client  http.Client
	auth    Authorizer // nil if it is shown none
	max     int

	ctx    context.Context //nolint:containedctx // the life of the connection, in which requests outlive the call that started it
	cancel context.CancelCauseFunc
	ended  chan struct{}
	work   sync.WaitGroup
	held   atomic.Int64
	notes  *io.PipeWriter // what people read as its standard error

	outMu sync.Mutex
	out   *io.PipeWriter
	lines uint64 // that were written there, or begun

	withinMu sync.Mutex
	within   []place // of notifications that nobody has read yet, which are few: the pipe holds nothing

	mu       sync.Mutex
	session  string // "" if the server has none, or has ended it
	version  string // that the session speaks
	listens  bool   // for what the server sends outside of answers
	flights  map[int64]context.CancelFunc
	about    map[string]int64        // requests of the server → the request of ours in whose answer they came
	bindings map[string][]binding    // by tool: which arguments go into headers
	endpoint string                  // where messages are posted, in the older transport
	waiting  map[int64]chan struct{} // requests whose answer comes on the one stream of the older transport
}

// A place is the request of ours in whose answer a line came.
type place struct {
	line uint64
	ours int64
}

func open(s mediator.Server, carrier http.RoundTripper, auth Authorizer, limit int) *mediator.Process {
	ctx, cancel := context.WithCancelCause(context.Background())
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	c := &conn{
		url: s.URL, mode: s.Type, headers: s.Headers, auth: auth, max: limit, ctx: ctx, cancel: cancel, ended: make(chan struct{}), out: outW, notes: errW,
		client:  http.Client{Transport: carrier, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		flights: map[int64]context.CancelFunc{}, about: map[string]int64{}, bindings: map[string][]binding{}, waiting: map[int64]chan struct{}{},
	}
	in := &intake{c: c, left: make(chan struct{})}
	go c.run(in)
	return &mediator.Process{
		Stdin: in, Stdout: outR, Stderr: errR,
		Terminate: func() { _ = in.Close() },
		Kill: func() {
			cancel(errKilled)
			_, _ = outW.Close(), errW.Close() // whoever writes there waits for nobody
		},
		Wait:     c.wait,
		Report:   NotHeld,
		About:    c.madeIn,
		Within:   c.saidIn,
		Sessions: s.Type == mediator.TransportSSE,
	}
}

var (
	errKilled = errors.New("it was stopped")
	errLeft   = errors.New("left")
)

// run takes in lines until they end, then says farewell and ends the connection.
func (c *conn) run(in *intake) {
	in.wait()
	c.bye()
	c.cancel(errLeft)
	c.work.Wait()
	c.client.CloseIdleConnections()
	close(c.ended)
	_ = c.out.Close()
	_ = c.notes.Close()
}

func (c *conn) wait() error {
	<-c.ended
	if err := context.Cause(c.ctx); !errors.Is(err, errLeft) {
		return err
	}
	return nil
}

// fail ends the connection. reason is read by agents.
func (c *conn) fail(reason error) { c.cancel(reason) }

// bye ends the session at the server, which may not be there any more.
func (c *conn) bye() {
	c.mu.Lock()
	session := c.session
	c.mu.Unlock()
	if session == "" || errors.Is(context.Cause(c.ctx), errKilled) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), farewell)
	defer cancel()
	r, err := c.newRequest(ctx, http.MethodDelete, c.url, nil)
	if err != nil {
		return
	}
	if c.auth != nil && c.auth.Sign(r) != nil {
		return
	}
	if resp, err := c.client.Do(r); err == nil {
		resp.Body.Close()
	}
}

// note tells people something, as a process does on standard error.
func (c *conn) note(format string, args ...any) {
	_, _ = fmt.Fprintf(c.notes, format+"\n", args...) // who reads it keeps the end of it
}

// say passes a message on, as one line.
func (c *conn) say(message []byte) { c.sayIn(message, 0) }

// sayIn is say for a message that came in the answer to the request ours, 0 for none.
func (c *conn) sayIn(message []byte, ours int64) {
	c.outMu.Lock()
	defer c.outMu.Unlock()
	c.lines++
	if ours > 0 {
		c.withinMu.Lock()
		c.within = append(c.within, place{c.lines, ours})
		c.withinMu.Unlock()
	}
	if len(message) <= oneWrite {
		_, _ = c.out.Write(append(slices.Clip(message), '\n')) // who reads it is woken once
		return
	}
	if _, err := c.out.Write(message); err == nil {
		_, _ = c.out.Write([]byte{'\n'})
	}
}

// oneWrite is up to how many bytes a line is copied to be written at once.
const oneWrite = 64 << 10

// madeIn is [mediator.Process.About].
func (c *conn) madeIn(id []byte) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.about[idKey(id)]
}

// saidIn is [mediator.Process.Within].
func (c *conn) saidIn(n uint64) int64 {
	c.withinMu.Lock()
	defer c.withinMu.Unlock()
	for len(c.within) > 0 && c.within[0].line <= n {
		first := c.within[0]
		if c.within = c.within[1:]; first.line == n {
			return first.ours
		}
	}
	return 0
}

// hold counts n more bytes that wait, or says that they are too many.
func (c *conn) hold(n int) bool {
	if c.held.Add(int64(n)) > maxHeld {
		c.held.Add(int64(-n))
		return false
	}
	return true
}

func (c *conn) release(n int) { c.held.Add(int64(-n)) }

// newRequest returns a request to the server with what every request has.
func (c *conn) newRequest(ctx context.Context, method, to string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return nil, errors.New("its URL is not one") // err quotes it, and it may hold a secret
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "ringfence")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != "" {
		r.Header.Set(headerSession, c.session)
	}
	if c.version != "" {
		r.Header.Set(headerVersion, c.version)
	}
	return r, nil
}

// isSession reports whether s can be the id of a session: visible ASCII.
func isSession(s string) bool {
	return len(s) <= maxSession && strings.IndexFunc(s, func(r rune) bool { return r <= 0x20 || r > 0x7e }) < 0
}
