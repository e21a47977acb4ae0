package api

import (
	"time"

	"ringfence/internal/act/waits"
)

// A request that is alone on its connection, and is not expected to take longer than
// it takes to wake another thread, is carried out by the reader itself. Who carries
// it out says so if it is going to wait after all (package waits), and a clock looks
// for what has said nothing: then another goroutine reads on, and this one has
// become the request's.

const (
	// maxInline is how large the body of such a request may be, in bytes.
	maxInline = 16 << 10
	// lookEvery is how long, and up to twice as long, nothing is read while a request
	// says nothing.
	lookEvery = 10 * time.Millisecond
)

// inlined returns the method that the reader carries out itself, nil if it is to
// start a goroutine.
func (c *serverConn) inlined(h header, body []byte) method {
	if !c.greeted || c.caller.Guest || len(body) > maxInline || c.in.Buffered() > 0 {
		return nil
	}
	var run method
	switch h.Method {
	case methodDecide:
		run = decide
	case methodFinish:
		run = finish
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flight) > 0 {
		return nil
	}
	return run
}

// inline carries out a request, and reports whether another goroutine reads by now.
// An error ends the connection.
func (c *serverConn) inline(h header, body []byte, run method) (handed bool, err error) {
	rq := &request{conn: c, header: h, body: body}
	ctx, err := c.begin(h.ID, len(body), rq)
	if err != nil {
		return false, c.fail(h.ID, err)
	}
	rq.ctx = waits.Told(ctx, func() { c.handOver(rq) })
	c.server.busy.Add(1)
	err = rq.answer(run)
	c.server.busy.Add(-1)
	c.mu.Lock()
	reading := c.inHand == rq
	if reading {
		c.inHand = nil
	}
	c.mu.Unlock()
	if reading {
		return false, err
	}
	c.running.Done()
	return true, nil // an error of writing has closed the connection
}

// handOver has another goroutine read on, unless rq is over or another reads already.
func (c *serverConn) handOver(rq *request) {
	c.mu.Lock()
	reading := c.inHand == rq
	if reading {
		c.inHand = nil
		c.running.Add(1) // before the reader can end, so that its end is waited for
	}
	c.mu.Unlock()
	if reading {
		go c.read()
	}
}

// watch has the reader looked after while rq is in its hand. It is called under mu.
// The clock runs on from one request to the next, because to set it wakes a thread.
func (c *serverConn) watch(rq *request) {
	c.inHand = rq
	switch {
	case c.watched:
	case c.clock == nil:
		c.clock = time.AfterFunc(lookEvery, c.look)
	default:
		c.clock.Reset(lookEvery)
	}
	c.watched = true
}

// look has another goroutine read on if the request in hand is still that of the last
// time.
func (c *serverConn) look() {
	c.mu.Lock()
	rq := c.inHand
	late := rq != nil && rq == c.seen
	c.seen, c.watched = rq, rq != nil
	if c.watched {
		c.clock.Reset(lookEvery)
	}
	c.mu.Unlock()
	if late {
		c.handOver(rq)
	}
}
