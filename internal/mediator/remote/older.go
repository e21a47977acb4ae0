package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"ringfence/internal/mediator"
)

// The transport of revision 2024-11-05: one event stream, whose first event names the
// place that messages are posted to; all answers come on that stream.

// older opens that transport for m, which is the first request on it.
func (c *conn) older(ctx context.Context, m message) error {
	if err := c.openOld(); err != nil {
		return err
	}
	return c.callOld(ctx, m)
}

// openOld opens the stream, once, and returns when it is known where to post.
func (c *conn) openOld() error {
	resp, err := c.get(c.ctx, "")
	if err != nil {
		return err
	}
	if kind, err := mediaType(resp); resp.StatusCode != http.StatusOK || err != nil || kind != "text/event-stream" {
		resp.Body.Close()
		if resp.StatusCode == http.StatusUnauthorized {
			return c.refused(c.ctx, message{}, resp)
		}
		return fmt.Errorf("it speaks neither streamable HTTP nor HTTP with an event stream (HTTP %d)", resp.StatusCode)
	}
	e := newEvents(resp.Body, c.max)
	e.hold = c.hold
	to, err := c.whereToPost(e)
	if err != nil {
		resp.Body.Close()
		c.fail(err)
		return err
	}
	c.mu.Lock()
	c.mode, c.endpoint = mediator.TransportSSE, to
	c.mu.Unlock()
	c.work.Go(func() {
		defer resp.Body.Close()
		c.followOld(e)
	})
	return nil
}

// whereToPost reads the first event. A place on another host is none: what it is sent
// has our headers.
func (c *conn) whereToPost(e *events) (string, error) {
	first, err := e.next()
	if err != nil || first.name != "endpoint" || len(first.data) > maxField {
		return "", errors.New("it does not say where messages are posted to")
	}
	base, err := url.Parse(c.url)
	if err != nil {
		return "", errors.New("its URL is not one")
	}
	to, err := base.Parse(string(first.data))
	if err != nil || to.Scheme != base.Scheme || to.Host != base.Host || to.User != nil {
		return "", errors.New("it wants messages posted to another host than its own")
	}
	return to.String(), nil
}

func (c *conn) followOld(e *events) {
	for {
		c.release(e.forget())
		ev, err := e.next()
		switch {
		case errors.Is(err, errLongEvent), errors.Is(err, errLongField), errors.Is(err, errFlood):
			c.fail(err)
			return
		case err != nil:
			c.fail(errors.New("it ended the stream of its answers"))
			return
		}
		if len(ev.data) == 0 || ev.name != "" && ev.name != "message" {
			continue
		}
		a, err := readMessage(ev.data, c.max)
		if err == nil && c.echoes(ev.data) {
			err = errEchoed
		}
		if err != nil {
			c.fail(err)
			return
		}
		if a.method == "" {
			c.mu.Lock()
			done := c.waiting[a.number()]
			delete(c.waiting, a.number())
			c.mu.Unlock()
			if done == nil {
				continue // late, after a cancellation
			}
			close(done)
		}
		c.say(oneLine(ev.data))
	}
}

// callOld posts a request and waits until its answer was passed on.
func (c *conn) callOld(ctx context.Context, m message) error {
	c.mu.Lock()
	opened := c.endpoint != ""
	done := make(chan struct{})
	c.waiting[m.number()] = done
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, m.number())
		c.mu.Unlock()
	}()
	if !opened { // the first request comes alone
		if err := c.openOld(); err != nil {
			return err
		}
	}
	resp, err := c.post(ctx, m)
	if err != nil {
		return err
	}
	resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode/100 == 3:
		return c.refused(ctx, message{}, resp)
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("it answered with HTTP %d", resp.StatusCode)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
