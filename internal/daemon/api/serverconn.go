package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// A serverConn is the engine's side of one connection. One goroutine at a time reads;
// every request has another, or is carried out by the reader (inline.go).
type serverConn struct {
	server  *Server
	seat    *seat
	caller  Caller
	out     writer
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	ended   chan error // gets why nothing more is read, once; nil if that was between frames

	// The reader's alone.
	in      *bufio.Reader
	greeted bool

	mu      sync.Mutex
	flight  map[uint64]*inFlight // requests without a final reply
	bytes   int                  // of their bodies
	inHand  *request             // what the reader carries out itself
	seen    *request             // what was in its hand when the clock struck
	clock   *time.Timer          // nil until it is first needed
	watched bool                 // the clock runs
}

type inFlight struct {
	cancel context.CancelFunc
	bytes  int
}

var errCancelled = Errorf(CodeCancelled, "cancelled by the client")

// read takes in requests until the connection ends, or another goroutine does so in
// its place.
func (c *serverConn) read() {
	for {
		handed, err := c.next()
		if handed {
			return
		}
		if err != nil {
			c.cancel(errConnectionEnded)
			_ = c.out.nc.Close()
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				err = nil
			}
			c.ended <- err
			return
		}
	}
}

// next takes in one request, and reports whether another goroutine reads by now. An
// error ends the connection.
func (c *serverConn) next() (handed bool, err error) {
	h, body, err := readHeader(c.in, maxHeader)
	if err != nil {
		return false, err
	}
	if run := c.inlined(h, body); run != nil {
		return c.inline(h, body, run)
	}
	return false, c.take(h, body)
}

// take starts one request. An error ends the connection.
func (c *serverConn) take(h header, body []byte) error {
	if !c.greeted {
		return c.greet(h)
	}
	if h.Method == methodCancel {
		c.mu.Lock()
		defer c.mu.Unlock()
		if f := c.flight[h.ID]; f != nil {
			f.cancel()
		}
		return nil
	}
	run, ok := methods[h.Method]
	if c.caller.Guest && !guestMethods[h.Method] {
		return c.fail(h.ID, Errorf(CodeRefused, "here questions are shown and answered, and nothing else"))
	}
	if !ok {
		return c.fail(h.ID, Errorf(CodeMethod, "no method %q in this engine (%s)", h.Method, c.server.opts.Program))
	}
	ctx, err := c.begin(h.ID, len(body), nil)
	if err != nil {
		return c.fail(h.ID, err)
	}
	lasts := h.Method == methodWatch
	if !lasts {
		c.server.busy.Add(1)
	}
	c.running.Go(func() {
		if !lasts {
			defer c.server.busy.Add(-1)
		}
		rq := &request{conn: c, header: h, body: body, ctx: ctx}
		// Any error of writing has closed the connection, which ends the reader.
		_ = rq.answer(run)
	})
	return nil
}

// greet answers the first request, which must be a hello of our version.
func (c *serverConn) greet(h header) error {
	var p helloParams
	// Members that another version adds must not hide that it is another.
	if h.Method != methodHello || json.Unmarshal(h.Params, &p) != nil {
		return errors.Join(errors.New("no hello"), c.fail(h.ID, Errorf(CodeBadRequest, "a connection begins with hello")))
	}
	if r := c.server.opts.Refusal; r != nil {
		return errors.Join(r, c.fail(h.ID, r))
	}
	if p.Version != Version {
		err := Errorf(CodeVersion, "the engine that runs (process %d, %s) speaks protocol %d and this program %d: stop it with `ringfence engine stop`, then try again",
			os.Getpid(), c.server.opts.Program, Version, p.Version)
		return errors.Join(err, c.fail(h.ID, err))
	}
	if !c.seat.greeted() {
		return errors.New("its place was given to another before it said hello")
	}
	c.greeted = true
	_ = c.out.nc.SetReadDeadline(time.Time{}) // a connection on which this fails is closed
	hello := Hello{Version: Version, Program: c.server.opts.Program, PID: os.Getpid(), Home: c.server.opts.Home}
	if c.caller.Guest {
		hello.PID, hello.Home = 0, "" // nothing of these is for another user
	}
	return c.send(header{ID: h.ID}, hello, nil)
}

// begin enters a request that is now in flight, within the bounds. inHand is set if
// the reader carries it out itself.
func (c *serverConn) begin(id uint64, bytes int, inHand *request) (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.flight[id] != nil:
		return nil, Errorf(CodeBadRequest, "request %d is in flight already", id)
	case len(c.flight) >= c.server.opts.MaxInFlight:
		return nil, Errorf(CodeBusy, "%d requests are in flight on this connection", len(c.flight))
	case c.bytes+bytes > c.server.opts.MaxBytes && c.bytes > 0:
		return nil, Errorf(CodeBusy, "%d bytes are in flight on this connection", c.bytes)
	}
	if total := c.server.bytes.Add(int64(bytes)); total > int64(c.server.opts.MaxTotal) && total > int64(bytes) {
		c.server.bytes.Add(-int64(bytes))
		return nil, Errorf(CodeBusy, "%d bytes are in flight on all connections", total-int64(bytes))
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	c.flight[id] = &inFlight{cancel: func() { cancel(errCancelled) }, bytes: bytes}
	c.bytes += bytes
	if inHand != nil {
		c.watch(inHand)
	}
	return ctx, nil
}

// end removes a request from the flight. It comes before the final reply is
// written, so that the id is free when the client sees it.
func (c *serverConn) end(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flight[id]; f != nil {
		f.cancel() // releases the context
		c.bytes -= f.bytes
		c.server.bytes.Add(-int64(f.bytes))
		delete(c.flight, id)
	}
}

// fail writes an error reply, which ends the request id.
func (c *serverConn) fail(id uint64, err error) error {
	return c.send(header{ID: id, Error: onWire(err)}, nil, nil)
}

// send writes one reply frame: h, with result unless that is nil or h has one,
// and body. A final reply that does not fit a frame becomes an error reply.
func (c *serverConn) send(h header, result any, body []byte) error {
	var err error
	if result != nil && h.Result == nil {
		h.Result, err = json.Marshal(result)
	}
	var head []byte
	if err == nil {
		head, err = encodeReply(h)
	}
	if err == nil && (len(head) > maxReply || len(body) > maxBody) {
		err = Errorf(CodeTooLarge, "the reply has %d and %d bytes; at most %d and %d fit", len(head), len(body), maxReply, maxBody)
	}
	switch {
	case err == nil && h.More:
		return c.out.frame(head, body, streamStall)
	case err == nil:
		return c.out.frame(head, body, writeStall)
	case h.More || h.Error != nil:
		return fmt.Errorf("encoding a reply: %w", err)
	}
	return c.fail(h.ID, err)
}

// encodeReply writes the header of a reply, whose Result is JSON already.
func encodeReply(h header) ([]byte, error) {
	if h.Error != nil || h.More {
		return json.Marshal(h)
	}
	b := appendID(make([]byte, 0, len(h.Result)+40), h.ID)
	b = append(append(b, `,"result":`...), h.Result...)
	return append(b, '}'), nil
}
