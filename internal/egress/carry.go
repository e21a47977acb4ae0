package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/mitm"
)

// A destination is where a connection of the box is to go.
type destination struct {
	host   weburl.Host
	port   uint16
	via    via
	stream *stream
	conn   net.Conn // of the box, from the first byte that is for the destination
	// granted tells the box that it is connected, or with an error that it is not.
	granted func(err error) error
}

func prefixed(conn net.Conn, first []byte) net.Conn {
	if len(first) == 0 {
		return conn
	}
	return &behind{Conn: conn, first: bytes.NewReader(bytes.Clone(first))}
}

var (
	errName    = errors.New("the name in its TLS is another than that of the connection")
	errNoName  = errors.New("its TLS names no server")
	errECH     = errors.New("its TLS hides the name of the server (ECH)")
	errOpaque  = errors.New("it is neither TLS nor HTTP, and no clause allows the connection itself: a sentence such as `may connect to host:port` does")
	errNoOpen  = errors.New("TLS cannot be opened here, and no clause allows the connection itself")
	errStopped = errors.New("the box is gone")
)

// carry takes a connection whose connect was allowed to its end and finishes t.
func (w *way) carry(ctx context.Context, d *destination, t *ticket) {
	e := ending{err: errStopped}
	defer func() { t.finish(e) }()
	if t.Filter.Tunnel && !w.lends(d) {
		e = w.tunnel(ctx, d)
		return
	}
	began := [2]int64{d.stream.got.Load(), d.stream.put.Load()}
	e.err = w.inside(ctx, d)
	e.Sent, e.Received = d.stream.got.Load()-began[0], d.stream.put.Load()-began[1]
	if t.inside && refused(e.err) {
		w.refused(ctx, d, e)
	}
}

// refused reports whether err says that something was not let through, rather than that a
// side has gone.
func refused(err error) bool {
	if _, ok := errors.AsType[*mitm.RefusedError](err); ok {
		return true
	}
	for _, why := range []error{errOpaque, errName, errNoName, errHello, errNoOpen} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}

// refused records that a connection, about which nothing was decided as all in it is, had
// in it what is no request.
func (w *way) refused(ctx context.Context, d *destination, e ending) {
	t, no := w.decide(ctx, question{
		effects: []act.Effect{hostEffect(act.Connect, d.host, d.port)},
		facts:   facts{Via: d.via, PID: d.stream.from.PID, Inside: true, Refused: plain(e.err.Error())},
	})
	if no == nil {
		t.finish(e)
	}
}

// lends reports whether a secret may go to d: then what is inside is read, so that its
// sentinel is found wherever it is.
func (w *way) lends(d *destination) bool {
	for _, s := range w.o.Sentinels {
		for _, b := range s.Bindings {
			if b.Host == d.host.String() {
				return true
			}
		}
	}
	return false
}

// inside reads what is said to d, and has each request decided. Nothing is connected to
// before one is allowed.
func (w *way) inside(ctx context.Context, d *destination) error {
	if err := d.granted(nil); err != nil {
		return err
	}
	first := &stream{Conn: d.conn, now: w.now}
	if err := d.stream.await(w.limits.HeadWait); err != nil {
		return err
	}
	h, err := peekHello(first)
	switch {
	case err == nil:
		return w.open(ctx, d, h, first)
	case !errors.Is(err, errNotTLS):
		return err
	case !isMethod(first.peeked):
		return errOpaque
	}
	c := &spoken{stream: d.stream, via: d.via, host: d.host, port: d.port}
	w.speak(first, c)
	return c.Refused()
}

// isMethod reports whether b begins as a request of HTTP does.
func isMethod(b []byte) bool { return len(b) > 0 && 'A' <= b[0] && b[0] <= 'Z' }

// open has TLS opened.
func (w *way) open(ctx context.Context, d *destination, h hello, first net.Conn) error {
	if w.o.Intercept == nil {
		return errNoOpen
	}
	if err := checkHello(d.host, h); err != nil {
		return err
	}
	if err := d.stream.await(0); err != nil {
		return err
	}
	x := &exchange{way: w, stream: d.stream, via: d.via, scheme: "https", host: d.host, port: d.port}
	return w.o.Intercept.Serve(ctx, first, d.host.WithPort(d.port), x)
}

// checkHello holds the name in a ClientHello against host (E4). An address is never
// named there (RFC 6066 §3).
func checkHello(host weburl.Host, h hello) error {
	_, isAddr := host.Addr()
	switch {
	case h.name.IsZero() && isAddr:
		return nil
	case h.name.IsZero():
		return errNoName
	case h.name != host:
		return fmt.Errorf("%w: %s in a connection to %s", errName, h.name, host)
	}
	return nil
}

// tunnel connects and passes bytes as they are, but for the ClientHello, which is read.
func (w *way) tunnel(ctx context.Context, d *destination) ending {
	e := ending{Tunnel: true}
	server, addr, err := w.dial.dial(ctx, d.host, d.port)
	if err != nil {
		_ = d.granted(err)
		e.err = err
		return e
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if addr.IsValid() {
		e.Address = server.RemoteAddr().String()
	}
	if e.err = d.granted(nil); e.err != nil {
		return e
	}
	r := &relay{box: &stream{Conn: d.conn, now: d.stream.now}, server: server, host: d.host}
	if e.err = d.stream.await(0); e.err == nil {
		e.err = r.run()
	}
	e.Sent, e.Received = r.sent.Load(), r.received.Load()
	return e
}

// A relay passes the bytes of a tunnel both ways.
type relay struct {
	box            *stream
	server         net.Conn
	host           weburl.Host
	sent, received atomic.Int64
}

// run returns when both directions have ended, or one was cut off.
func (r *relay) run() error {
	var out, in error
	var work sync.WaitGroup
	cut := func() { _ = r.box.Close(); _ = r.server.Close() }
	work.Go(func() {
		if out = r.check(); out == nil {
			out = pass(r.server, r.box, &r.sent)
		}
		if out != nil {
			cut()
		}
	})
	work.Go(func() {
		if in = pass(r.box, r.server, &r.received); in != nil {
			cut()
		}
	})
	work.Wait()
	if out != nil && !errors.Is(out, net.ErrClosed) {
		return out
	}
	return in
}

// check reads the ClientHello, if what the box sends is TLS. A server may speak first.
func (r *relay) check() error {
	h, err := peekHello(r.box)
	switch {
	case errors.Is(err, errNotTLS), errors.Is(err, io.EOF) && len(r.box.peeked) == 0:
		return nil
	case err != nil:
		return err
	case h.ech:
		return errECH
	}
	return checkHello(r.host, h)
}

// passPiece is how much of a tunnel is in memory, in each direction.
const passPiece = 32 << 10

// pieces are buffers between uses.
var pieces = sync.Pool{New: func() any { return new([passPiece]byte) }}

// pass copies until from ends, and then ends to.
func pass(to, from net.Conn, count *atomic.Int64) error {
	buf, _ := pieces.Get().(*[passPiece]byte)
	if buf == nil {
		buf = new([passPiece]byte)
	}
	defer pieces.Put(buf)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return werr
			}
			count.Add(int64(n))
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = closeWrite(to) // where that fails, it has ended too
			return nil
		case err != nil:
			return err
		}
	}
}
