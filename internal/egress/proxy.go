package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/mitm"
)

// A spoken is a stream that speaks HTTP/1.1: to the proxy, or to one server in plain text.
type spoken struct {
	*mitm.Strictly
	stream *stream
	via    via
	host   weburl.Host // the server that it is for; the zero Host for the proxy
	port   uint16
	taken  atomic.Bool // by a handler
	over   chan struct{}
	once   sync.Once
}

func (s *spoken) end() { s.once.Do(func() { close(s.over) }) }

type spokenKey struct{}

// speaker is the spoken that c is: the feed has no other connections.
func speaker(c net.Conn) *spoken {
	s, ok := c.(*spoken)
	if !ok {
		return &spoken{over: make(chan struct{})}
	}
	return s
}

// speak serves what is said in HTTP on conn until it is over. Its deadlines are then
// net/http's. c says for whom it is.
func (w *way) speak(conn net.Conn, c *spoken) {
	c.over = make(chan struct{})
	c.Strictly = mitm.Strict(conn, mitm.Limits{Head: w.limits.HeadWait, Idle: w.limits.Idle, HeadBytes: w.limits.Header}, nil)
	if conn.SetReadDeadline(time.Time{}) != nil || !w.feed.give(c) {
		return
	}
	<-c.over
}

// ServeHTTP takes every request in plain text: of the proxy, and of streams to one server.
func (w *way) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(spokenKey{}).(*spoken)
	if !ok || w.ctx.Err() != nil {
		http.Error(rw, "the way out is closed", http.StatusServiceUnavailable)
		return
	}
	w.work.Add(1) // the goroutine of its connection has not ended, so the count is not zero
	defer w.work.Done()
	defer func() {
		if c.taken.Load() {
			c.end()
		}
	}()
	x := &exchange{way: w, stream: c.stream, via: c.via, scheme: "http", host: c.host, port: c.port}
	switch {
	case !c.host.IsZero():
		x.ServeHTTP(rw, r)
	case r.Method == http.MethodConnect:
		w.connect(rw, r, c)
	case strings.HasPrefix(r.RequestURI, "/") || r.RequestURI == "*":
		rw.Header().Set("Connection", "close")
		http.Error(rw, "this is a proxy: requests to it name a URL", http.StatusBadRequest)
	default:
		x.ServeHTTP(rw, r)
	}
}

// connect answers CONNECT (RFC 9110 §9.3.6). Its target counts; the field Host goes nowhere.
func (w *way) connect(rw http.ResponseWriter, r *http.Request, c *spoken) {
	host, port, err := weburl.ParseHostPort(r.RequestURI)
	if err != nil || port == 0 {
		rw.Header().Set("Connection", "close")
		http.Error(rw, "CONNECT takes host:port", http.StatusBadRequest)
		return
	}
	d := &destination{host: host, port: port, via: viaConnect, stream: c.stream}
	t, no := w.askConnect(r.Context(), d)
	if no != nil {
		rw.Header().Set("Connection", "close") // what follows may be meant for the tunnel
		no.answer(rw)
		return
	}
	conn, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		t.finish(ending{err: err})
		return
	}
	defer conn.Close()
	c.Raw()
	d.conn = conn
	if n := buffered.Reader.Buffered(); n > 0 { // one byte that net/http had read ahead
		first, _ := buffered.Peek(n)
		d.conn = prefixed(conn, first)
	}
	d.granted = func(err error) error { return answerConnect(conn, host.WithPort(port), err) }
	w.carry(w.ctx, d, t)
}

// answerConnect says that the tunnel is there, or why it is not.
func answerConnect(conn net.Conn, to string, err error) error {
	text := "HTTP/1.1 200 Connection established\r\n\r\n"
	if no := addressDenial(to, act.Connect, err); no != nil {
		body := no.Body()
		text = fmt.Sprintf("HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s: %s\r\nConnection: close\r\n\r\n%s", len(body), deniedHeader, no.Code, body)
	} else if err != nil {
		text = "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" + plain(err.Error()) + "\n"
	}
	_, werr := conn.Write([]byte(text))
	return werr
}

// plain is text on one line, without control characters, of at most 300 bytes.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	return strings.ToValidUTF8(text[:min(len(text), 300)], "")
}

// askConnect has a connection decided.
func (w *way) askConnect(ctx context.Context, d *destination) (*ticket, *DeniedError) {
	if w.reads(d.host) {
		return &ticket{way: w, inside: true}, nil
	}
	d.stream.waiting.Add(1)
	defer d.stream.touch()
	defer d.stream.waiting.Add(-1)
	return w.decide(ctx, question{
		effects: []act.Effect{hostEffect(act.Connect, d.host, d.port)},
		facts:   facts{Via: d.via, PID: d.stream.from.PID, Inside: w.o.Intercept != nil},
	})
}
