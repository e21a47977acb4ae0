package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"ringfence/internal/act/weburl"
)

// NewTransport returns what carries requests of a process of ours: each is decided like
// one of a box, and goes to addresses that were checked. What is denied is a
// *[DeniedError]. It follows no redirects, and unpacks nothing. Of o, Intercept, Local
// and the limits of connections are not used.
//
// CloseIdleConnections lets its connections go.
func NewTransport(o Options) http.RoundTripper {
	w := newWay(context.Background(), o)
	w.floods.all = nil // nobody would settle them
	return &transport{w}
}

type transport struct{ way *way }

// CloseIdleConnections ends the connections that nobody uses.
func (t *transport) CloseIdleConnections() { t.way.carrier.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	fail := func(err error) (*http.Response, error) {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	if t.way.o.Decider == nil {
		return fail(errNoDecider)
	}
	u, err := ownTarget(r)
	if err != nil {
		return fail(err)
	}
	x := &exchange{way: t.way, via: viaOwn}
	q, found := x.question(r, u)
	ticket, no := x.ask(r.Context(), q)
	if no != nil {
		return fail(no)
	}
	e := &ending{}
	if q.facts.Misplaced != "" {
		no = misplaced(ticket.Ticket, q.facts.Misplaced)
		ticket.finish(ending{err: no})
		return fail(no)
	}
	out, err := x.outgoing(r, ticket.Ticket, found, e)
	if err != nil {
		ticket.finish(ending{err: err})
		return fail(err)
	}
	return t.send(out, ticket, e)
}

// ownTarget is the URL of r, which must name the host that it is sent to.
func ownTarget(r *http.Request) (weburl.URL, error) {
	u, err := weburl.Parse(r.URL.String())
	if err != nil {
		return u, fmt.Errorf("%w: it %w", errTarget, err)
	}
	if r.Host != "" {
		if named, port, err := weburl.ParseHostPort(r.Host); err != nil || named != u.Host || port != u.Port && port != 0 {
			return u, errTwo
		}
	}
	return u.Request(), nil
}

// send sends r, and finishes its ticket when the body of the reply is closed or over.
func (t *transport) send(r *http.Request, ticket *ticket, e *ending) (*http.Response, error) {
	var sent *counted
	if r.Body != nil && r.Body != http.NoBody {
		sent = &counted{body: r.Body}
		r.Body = sent
	}
	total := func() int64 {
		if sent == nil {
			return 0
		}
		return sent.n.Load()
	}
	res, err := t.way.carrier.RoundTrip(r)
	if err != nil {
		ticket.finish(ending{Sent: total(), Address: e.Address, err: err})
		return nil, err
	}
	got := &received{from: res.Body, end: func(n int64, err error) {
		ticket.finish(ending{Status: res.StatusCode, Sent: total(), Received: n, Address: e.Address, err: err})
	}}
	res.Body = got
	if both, ok := got.from.(io.ReadWriteCloser); ok { // after an upgrade
		res.Body = &upgraded{received: got, Writer: both}
	}
	return res, nil
}

// counted is the body of a request.
type counted struct {
	body io.ReadCloser
	n    atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counted) Close() error { return c.body.Close() }

// received is the body of a reply. end is called at least once.
type received struct {
	from io.ReadCloser
	n    atomic.Int64
	end  func(n int64, err error)
}

func (b *received) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	total := b.n.Add(int64(n))
	if errors.Is(err, io.EOF) {
		b.end(total, nil)
	} else if err != nil {
		b.end(total, err)
	}
	return n, err
}

// Close lets go of what was not read; that is no failure.
func (b *received) Close() error {
	err := b.from.Close()
	b.end(b.n.Load(), nil)
	return err
}

type upgraded struct {
	*received
	io.Writer
}
