package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// Options say where the engine is and how it is started.
type Options struct {
	// Home is the home whose engine is meant. It must exist.
	Home string
	// Start starts the engine of Home and returns when it listens, or when
	// another process is about to be the engine. Nil: one must be running.
	Start func(ctx context.Context) error
	// Ready bounds how long an engine may take to listen. Default 10 s.
	Ready time.Duration
	// Dial connects to the engine's socket. Default: ipc.Dial.
	Dial func(ctx context.Context) (net.Conn, error)

	version int // of the protocol, if not Version
}

// A Client talks to one engine. Its methods may be called from any goroutine.
//
// When its connection is lost, every call in flight fails with ErrUnreachable;
// each later call first tries once to connect anew, starting an engine if none
// runs.
type Client struct {
	opts Options

	mu     sync.Mutex // held while connecting, so that one caller connects for all
	link   *link      // nil or failed: connect before the next call
	hello  Hello
	closed bool
}

// Connect connects to the engine, after starting it if none listens.
//
// Errors: ErrVersion, ErrNotRunning, what Start returned, ipc.ErrStranger, and why
// an engine could not start: CodeNotStarted or CodeUnavailable.
func Connect(ctx context.Context, o Options) (*Client, error) {
	if o.Ready <= 0 {
		o.Ready = 10 * time.Second
	}
	if o.Dial == nil {
		path, err := paths.EngineSocket(o.Home)
		if err != nil {
			return nil, err
		}
		o.Dial = func(ctx context.Context) (net.Conn, error) { return ipc.Dial(ctx, path) }
	}
	c := &Client{opts: o}
	if _, err := c.connected(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Hello returns what the engine said of itself when the present connection
// began.
func (c *Client) Hello() Hello {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello
}

// Close ends the connection. Sessions that were not closed stay resumable for
// as long as the engine keeps them.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.link != nil {
		c.link.close()
	}
	return nil
}

// connected returns the link, which it first replaces if it has failed.
func (c *Client) connected(ctx context.Context) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, Errorf(CodeUnreachable, "the client is closed")
	}
	if c.link != nil && c.link.failed() == nil {
		return c.link, nil
	}
	l, hello, err := c.opts.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to the engine: %w", err)
	}
	c.link, c.hello = l, hello
	return l, nil
}

// connect dials until an engine greets us. An engine that is on its way out can
// still accept a connection, or hold the lock that keeps the next one from
// starting, so the engine is started again after a while.
func (o Options) connect(ctx context.Context) (*link, Hello, error) {
	const again = 40 // attempts between two starts: about two seconds
	ctx, cancel := context.WithTimeoutCause(ctx, o.Ready, Errorf(CodeNotRunning, "no engine answered in %s", o.Ready))
	defer cancel()
	pause := time.Millisecond
	for attempt := 0; ; attempt++ {
		l, hello, err := o.attempt(ctx)
		if err == nil || !absent(err) {
			return l, hello, err
		}
		if o.Start == nil {
			return nil, Hello{}, fmt.Errorf("%w: %w", ErrNotRunning, err)
		}
		if attempt%again == 0 {
			if err := o.Start(ctx); err != nil {
				return nil, Hello{}, fmt.Errorf("starting it: %w", err)
			}
			pause = time.Millisecond
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, 50*time.Millisecond)
		case <-ctx.Done():
			timer.Stop()
			return nil, Hello{}, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func (o Options) attempt(ctx context.Context) (*link, Hello, error) {
	nc, err := o.Dial(ctx)
	if err != nil {
		return nil, Hello{}, err
	}
	return newLink(ctx, nc, cmp.Or(o.version, Version))
}

// absent reports whether err means that nobody listens, or that who did has
// gone before greeting.
func absent(err error) bool {
	for _, e := range []error{fs.ErrNotExist, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// do sends one request on l and decodes its result into result, unless nil.
func do(ctx context.Context, l *link, method string, params, result any) error {
	r, err := l.call(ctx, func(id uint64) ([]byte, error) { return encodeRequest(id, method, params) }, nil, nil)
	if err != nil {
		return err // a person reads it, who knows verbs and no methods
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(r.header.Result, result); err != nil {
		return fmt.Errorf("reading the reply to %s: %w", method, err)
	}
	return nil
}

// do is do on the client's link.
func (c *Client) do(ctx context.Context, method string, params, result any) error {
	l, err := c.connected(ctx)
	if err != nil {
		return err
	}
	return do(ctx, l, method, params, result)
}

// stream sends one request on a connection of its own and passes on every part
// of the reply. The connection ends with it, so a slow receiver holds up
// nothing but itself.
func (c *Client) stream(ctx context.Context, method string, params any, part func(reply) error) error {
	if _, err := c.connected(ctx); err != nil { // starts the engine if need be
		return err
	}
	nc, err := c.opts.Dial(ctx)
	if err != nil {
		return unreachable(err)
	}
	defer func() { _ = nc.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	if err := c.readStream(nc, method, params, part); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}
