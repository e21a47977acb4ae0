package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/mediator"
)

// An intake sends what the mediator writes to it, line by line, until that closes it or the
// connection ends.
type intake struct {
	c    *conn
	once sync.Once
	left chan struct{} // closed by Close

	mu   sync.Mutex
	rest []byte // of a line without its end
	over bool
}

// Write implements [io.Writer].
func (i *intake) Write(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for rest := p; ; {
		switch {
		case i.c.ctx.Err() != nil:
			return 0, context.Cause(i.c.ctx)
		case i.over || i.isLeft():
			return 0, io.ErrClosedPipe
		}
		line, more, ended := bytes.Cut(rest, []byte{'\n'})
		i.rest = append(i.rest, line...)
		if !ended {
			return len(p), nil
		}
		i.take()
		rest = more
	}
}

func (i *intake) isLeft() bool {
	select {
	case <-i.left:
		return true
	default:
		return false
	}
}

// take sends the line that is there. i.mu is held.
func (i *intake) take() {
	line := bytes.TrimSpace(i.rest)
	i.rest = nil
	if len(line) > 0 {
		i.c.take(line)
	}
}

// Close implements [io.Closer]. It waits for nothing.
func (i *intake) Close() error {
	i.once.Do(func() { close(i.left) })
	return nil
}

// wait returns when nothing more comes.
func (i *intake) wait() {
	select {
	case <-i.left:
	case <-i.c.ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.c.ctx.Err() == nil {
		i.take()
	}
	i.over = true
}

func (c *conn) take(line []byte) {
	m, err := readMessage(line, len(line))
	switch {
	case err != nil:
		c.note("a message was not sent: %v", err)
	case m.request():
		c.begin(m)
	case m.method == "notifications/cancelled":
		c.cancelled(m)
	case m.method == "notifications/initialized":
		// What follows must not arrive before it, nor be answered before we listen.
		c.notify(m)
		if c.transport() != mediator.TransportSSE {
			c.beginListening()
		}
	case m.method == "": // an answer
		c.mu.Lock()
		delete(c.about, idKey(m.id))
		c.mu.Unlock()
		c.work.Go(func() { c.notify(m) })
	default:
		c.work.Go(func() { c.notify(m) })
	}
}

func (c *conn) transport() mediator.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mode
}

// begin sends a request in a goroutine of its own.
func (c *conn) begin(m message) {
	id := m.number()
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	full := len(c.flights) >= maxFlights || c.flights[id] != nil
	if !full {
		c.flights[id] = cancel
	}
	c.mu.Unlock()
	if full {
		cancel()
		c.say(fault(id, "not sent: too many requests to it at once"))
		return
	}
	c.work.Go(func() {
		defer cancel()
		err := c.call(ctx, m)
		c.mu.Lock()
		delete(c.flights, id)
		c.mu.Unlock()
		if err == nil || ctx.Err() != nil {
			return
		}
		c.note("%s: %v", m.method, err)
		c.say(fault(id, err.Error()))
	})
}

// cancelled ends the request that m names. Before revision 2026-07-28 the server is
// told; since then, the end of the connection says it.
func (c *conn) cancelled(m message) {
	v, ok, err := strictjson.Find(m.raw, "/params/requestId")
	if err != nil || !ok {
		return
	}
	id, err := strconv.ParseInt(string(v.Raw), 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	cancel, session := c.flights[id], c.version != ""
	c.mu.Unlock()
	if !session {
		if cancel != nil {
			cancel()
		}
		return
	}
	c.work.Go(func() {
		c.notify(m)
		if cancel != nil {
			cancel()
		}
	})
}

// notify sends what has no answer. That it was not accepted is for people only.
func (c *conn) notify(m message) {
	ctx, cancel := context.WithTimeout(c.ctx, notifyTime)
	defer cancel()
	resp, err := c.post(ctx, m)
	if err != nil {
		c.note("%s: %v", m.method, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		c.note("%s was answered with HTTP %d", m.method, resp.StatusCode)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody) // so that the connection can be used again
}

// post sends m and returns what came back, whatever its status is.
func (c *conn) post(ctx context.Context, m message) (*http.Response, error) {
	to := c.url
	c.mu.Lock()
	if c.mode == mediator.TransportSSE {
		to = c.endpoint
	}
	c.mu.Unlock()
	r, err := c.newRequest(ctx, http.MethodPost, to, bytes.NewReader(m.raw))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if m.version != "" {
		r.Header.Del(headerSession)
		c.mirror(r.Header, m)
	}
	return c.do(r)
}

// send is http.Client.Do with errors that do not hold the URL.
func (c *conn) send(r *http.Request) (*http.Response, error) {
	resp, err := c.client.Do(r)
	if err != nil {
		c.note("%s: %v", r.Method, trimmed(err))
		if no, ok := errors.AsType[*NotAllowedError](err); ok {
			return nil, no
		}
		if r.Context().Err() != nil {
			return nil, errors.New("the connection was ended by us")
		}
		return nil, errors.New("it could not be reached, or closed the connection")
	}
	return resp, nil
}

// call sends a request and passes on what answers it. An error is answered in place
// of the server.
func (c *conn) call(ctx context.Context, m message) error {
	if c.transport() == mediator.TransportSSE {
		return c.callOld(ctx, m)
	}
	resp, err := c.post(ctx, m)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return c.refused(ctx, m, resp)
	}
	if m.method == "initialize" {
		session := resp.Header.Get(headerSession)
		if !isSession(session) {
			return errors.New("it gave the session an id that cannot be one")
		}
		c.mu.Lock()
		c.session = session
		c.mu.Unlock()
	}
	kind, err := mediaType(resp)
	if err != nil {
		return err
	}
	switch kind {
	case "application/json":
		body, err := c.body(resp.Body)
		if err != nil {
			return err
		}
		defer c.release(len(body))
		return c.answered(m, body)
	case "text/event-stream":
		return c.stream(ctx, m, resp)
	}
	return fmt.Errorf("it answered with %.100q, which is neither JSON nor an event stream", kind)
}

// mediaType is the type of a body that is as it was written.
func mediaType(resp *http.Response) (string, error) {
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return "", errors.New("it compressed its answer, though it was asked not to")
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return "", errors.New("it answered without saying what with: the content type is missing or broken")
	}
	return kind, nil
}

// errSessionOver ends the connection; the next call starts another.
var errSessionOver = errors.New("it does not know the session any more, so what was under way may be lost; call again")

// refused deals with an answer that is an error of HTTP.
func (c *conn) refused(ctx context.Context, m message, resp *http.Response) error {
	c.mu.Lock()
	session, mode := c.session, c.mode
	c.mu.Unlock()
	status := resp.StatusCode
	switch {
	case status == http.StatusUnauthorized:
		err := c.unauthorized()
		c.fail(err)
		return err
	case status == http.StatusNotFound && session != "" && m.version == "":
		c.mu.Lock()
		c.session = "" // nothing to say farewell to
		c.mu.Unlock()
		c.fail(errSessionOver)
		return errSessionOver
	case status/100 == 3:
		return fmt.Errorf("it redirects to another place (HTTP %d), which is not followed; its entry must name the place itself", status)
	case status/100 == 2:
		return fmt.Errorf("it accepted the request and did not answer it (HTTP %d)", status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil && resp.Header.Get("Content-Encoding") == "" {
		if a, err := readMessage(body, maxErrorBody); err == nil && !c.echoes(body) && a.fault != nil && (string(a.id) == "null" || bytes.Equal(a.id, m.id)) {
			c.sayAs(m, a)
			return nil
		}
	}
	if m.method == "initialize" && mode == "" && (status == 400 || status == 404 || status == 405) {
		return c.older(ctx, m)
	}
	return fmt.Errorf("it answered with HTTP %d", status)
}

// sayAs passes on the error a as the answer to m.
func (c *conn) sayAs(m, a message) {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), m.id...)
	b = append(append(append(b, `,"error":`...), a.fault...), '}')
	c.say(oneLine(b))
}

var (
	errLongBody = errors.New("its answer is too long")
	errFlood    = errors.New("too many bytes of its answers wait at once")
	errBroken   = errors.New("the connection broke before it had answered")
	errOther    = errors.New("it answered another request than the one it was sent")
)

// body reads an answer of at most c.max bytes, which count as held afterwards.
func (c *conn) body(r io.Reader) ([]byte, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			body = append(body, make([]byte, min(max(len(body), 4<<10), c.max+1-len(body)))...)[:len(body)]
		}
		n, err := r.Read(body[len(body):cap(body)])
		if !c.hold(n) {
			c.release(len(body))
			return nil, errFlood
		}
		body = body[:len(body)+n]
		switch {
		case len(body) > c.max:
			c.release(len(body))
			return nil, errLongBody
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			c.release(len(body))
			return nil, errBroken
		}
	}
}

// answered passes on the answer to m.
func (c *conn) answered(m message, raw []byte) error {
	a, err := readMessage(raw, c.max)
	if err != nil {
		return err
	}
	if a.method != "" || !bytes.Equal(a.id, m.id) {
		return errOther
	}
	if c.echoes(raw) {
		return errEchoed
	}
	raw = oneLine(raw)
	switch {
	case a.fault != nil:
	case m.method == "initialize":
		v, ok, err := strictjson.Find(a.result, "/protocolVersion")
		if err == nil && ok {
			version, err := v.Text()
			if err == nil && isSession(version) {
				c.mu.Lock()
				c.version = version
				c.mu.Unlock()
			}
		}
	case m.method == "tools/list" && m.version != "":
		raw = c.learn(raw)
	}
	c.say(raw)
	return nil
}
