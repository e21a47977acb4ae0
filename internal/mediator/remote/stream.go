package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// How streams are taken up again.
const (
	maxTries     = 5                      // in a row, without an event between
	firstPause   = 500 * time.Millisecond // if the server names none; doubles
	longestPause = 30 * time.Second
)

// stream passes on what comes in the answer to m, until m is answered. A stream that
// ends before is taken up again where the server numbered its events.
func (c *conn) stream(ctx context.Context, m message, resp *http.Response) error {
	last, retry := "", time.Duration(0)
	for tries := 0; ; tries++ {
		done, id, pause, err := c.follow(resp, &m)
		if done && err == nil {
			finish(resp)
		}
		resp.Body.Close()
		if done || err != nil {
			return err
		}
		if id != "" && id != last {
			last, tries = id, 0
		}
		if pause > 0 {
			retry = pause
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case last == "" || m.version != "":
			return errBroken
		case tries >= maxTries:
			return fmt.Errorf("%w, and taking it up again %d times did not help", errBroken, maxTries)
		}
		if resp, err = c.resume(ctx, last, retry, tries); err != nil {
			return err
		}
	}
}

// finishTime is how long a server may take to end a stream that it has answered on.
const finishTime = time.Second

// finish reads the end of a body of which nothing is wanted any more, so that its
// connection can be used again.
func finish(resp *http.Response) {
	late := time.AfterFunc(finishTime, func() { resp.Body.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody) // however it ended: the answer is here
}

// resume opens a stream again behind the event last.
func (c *conn) resume(ctx context.Context, last string, retry time.Duration, tries int) (*http.Response, error) {
	if retry == 0 {
		retry = min(firstPause<<min(tries, 10), longestPause)
	}
	if !wait(ctx, retry) {
		return nil, ctx.Err()
	}
	resp, err := c.get(ctx, last)
	if err != nil {
		return nil, err
	}
	if kind, err := mediaType(resp); resp.StatusCode != http.StatusOK || err != nil || kind != "text/event-stream" {
		resp.Body.Close()
		return nil, fmt.Errorf("%w, and it could not be taken up again (HTTP %d)", errBroken, resp.StatusCode)
	}
	return resp, nil
}

// get asks for an event stream.
func (c *conn) get(ctx context.Context, last string) (*http.Response, error) {
	r, err := c.newRequest(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if last != "" {
		if !isSession(last) {
			return nil, errors.New("it numbers events in a way that cannot be said to it")
		}
		r.Header.Set(headerLast, last)
	}
	return c.do(r)
}

// follow passes on the events of a stream. m is the request it answers, nil if none.
// It is done when m was answered; an error is the end of m, or of the stream.
func (c *conn) follow(resp *http.Response, m *message) (done bool, id string, retry time.Duration, err error) {
	e := newEvents(resp.Body, c.max)
	e.hold = c.hold
	defer func() { c.release(e.forget()) }()
	for {
		ev, err := e.next()
		switch {
		case errors.Is(err, errLongEvent), errors.Is(err, errLongField), errors.Is(err, errFlood):
			return false, "", 0, err
		case err != nil: // however it ended
			return false, e.id, e.retry, nil
		case len(ev.data) == 0 || ev.name != "" && ev.name != "message":
			c.release(e.forget())
			continue
		}
		done, err := c.came(ev.data, m)
		c.release(e.forget())
		if done || err != nil {
			return done, "", 0, err
		}
	}
}

// came takes in one message of a stream, and reports whether it answers m.
func (c *conn) came(raw []byte, m *message) (done bool, err error) {
	a, err := readMessage(raw, c.max)
	switch {
	case err != nil:
		return false, err
	case a.method == "" && m == nil:
		c.note("an answer came where none belongs, and is dropped")
		return false, nil
	case a.method == "" && !bytes.Equal(a.id, m.id):
		return false, errOther
	case a.method == "":
		return true, c.answered(*m, raw)
	case c.echoes(raw):
		c.note("a message of it is dropped: %v", errEchoed)
		return false, nil
	}
	if a.request() && m != nil && !c.madeBy(a, m.number()) {
		c.note("a request of it is dropped: its id is in use, or there are too many")
		return false, nil
	}
	ours := int64(0)
	if m != nil && !a.request() {
		ours = m.number()
	}
	c.sayIn(oneLine(raw), ours)
	return false, nil
}

// madeBy notes that the request a came in the answer to the request of ours. That is
// kept when the answer is over, so that a late look finds no other one.
func (c *conn) madeBy(a message, ours int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.about) >= maxFlights {
		for key, in := range c.about {
			if c.flights[in] == nil {
				delete(c.about, key)
			}
		}
	}
	key := idKey(a.id)
	if in, twice := c.about[key]; twice && c.flights[in] != nil || len(c.about) >= maxFlights {
		return false
	}
	c.about[key] = ours
	return true
}

// listenTime is how long what follows the opening of a session waits for the stream of
// what a server sends outside of answers. Some servers do not answer before there is
// something to send.
const listenTime = 300 * time.Millisecond

// beginListening opens that stream, once, if the server has one.
func (c *conn) beginListening() {
	c.mu.Lock()
	listens := c.listens
	c.listens = true
	c.mu.Unlock()
	if listens {
		return
	}
	opened := make(chan struct{})
	var once sync.Once
	c.work.Go(func() {
		open := func() { once.Do(func() { close(opened) }) }
		defer open()
		c.listen(open)
	})
	late := time.NewTimer(listenTime)
	defer late.Stop()
	select {
	case <-opened:
	case <-late.C:
	}
}

// listen passes on what the server sends outside of answers, if it does. It calls
// opened when it listens.
func (c *conn) listen(opened func()) {
	last := ""
	for tries := 0; tries <= maxTries; tries++ {
		resp, err := c.get(c.ctx, last)
		if c.ctx.Err() != nil {
			return
		}
		pause := min(firstPause<<tries, longestPause)
		if err == nil {
			kind, terr := mediaType(resp)
			if resp.StatusCode != http.StatusOK || terr != nil || kind != "text/event-stream" {
				resp.Body.Close()
				if resp.StatusCode/100 == 5 {
					opened()
					wait(c.ctx, pause)
					continue
				}
				return // it has no such stream
			}
			opened()
			_, id, retry, err := c.follow(resp, nil)
			resp.Body.Close()
			if err != nil {
				c.note("what it sends outside of answers is not read any more: %v", err)
				return
			}
			if id != "" && id != last {
				last, tries = id, 0
			}
			if retry > 0 {
				pause = retry
			}
		}
		wait(c.ctx, pause)
	}
	c.note("what it sends outside of answers is not read any more: %d tries in a row came to nothing", maxTries)
}

// wait waits for d and reports whether ctx was still going on then.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
