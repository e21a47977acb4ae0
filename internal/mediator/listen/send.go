package listen

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"
)

// flat returns a line without its end, fit for the field of an event: a carriage
// return in JSON stands between tokens, where a space says the same.
func flat(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	if bytes.IndexByte(line, '\r') < 0 {
		return line
	}
	return bytes.ReplaceAll(line, []byte{'\r'}, []byte{' '})
}

// writeJSON answers with one message.
func (h *Handler) writeJSON(w http.ResponseWriter, status int, line []byte) {
	line = flat(line)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(line)))
	w.WriteHeader(status)
	_ = h.write(w, line) // it has gone, or does not read
}

// piece is how much of a body must be taken in within writeTime.
const piece = 64 << 10

// write writes to a client that keeps taking in.
func (h *Handler) write(w http.ResponseWriter, b []byte) error {
	control := http.NewResponseController(w)
	for len(b) > 0 {
		n := min(len(b), piece)
		if err := control.SetWriteDeadline(time.Now().Add(h.patience)); err != nil {
			return err
		}
		if _, err := w.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// send writes a stream to a client: as one JSON message, if single and the answer is
// the first line, else as server-sent events. It returns when the stream was sent, the
// client has gone, or it is to come back for the rest, and reports whether it can.
func (h *Handler) send(ctx context.Context, w http.ResponseWriter, s *stream, c cursor, single bool) (opened bool) {
	out := &events{h: h, w: w, s: s}
	defer func() { opened = out.opened }()
	quiet := time.NewTicker(h.o.Quiet)
	defer quiet.Stop()
	var poll <-chan time.Time
	if s.s != nil && s.s.polls {
		t := time.NewTimer(h.o.Poll)
		defer t.Stop()
		poll = t.C
	}
	if !single && out.open() != nil {
		return out.opened
	}
	for {
		e, over := s.next(&c)
		switch {
		case e != nil && e.last && !out.opened:
			h.writeJSON(w, e.status, e.line)
			s.wrote(e)
			return out.opened
		case e != nil:
			if out.event(c.seen, e.line) != nil {
				return out.opened
			}
			s.wrote(e)
			continue
		case over:
			return out.opened
		}
		select {
		case <-s.news:
		case <-quiet.C:
			if out.alive() != nil {
				return out.opened
			}
		case <-poll:
			if out.opened {
				return out.opened
			}
		case <-ctx.Done():
			return out.opened
		}
	}
}

// events writes server-sent events (WHATWG HTML, "Server-sent events").
type events struct {
	h      *Handler
	w      http.ResponseWriter
	s      *stream
	opened bool
}

// open begins the body. To a client that can come back for the rest of the stream, it
// says from where, and after how long.
func (o *events) open() error {
	if o.opened {
		return nil
	}
	o.opened = true
	o.w.Header().Set("Content-Type", "text/event-stream")
	o.w.Header().Set("X-Accel-Buffering", "no")
	o.w.WriteHeader(http.StatusOK)
	if o.s.s == nil || !o.s.s.polls {
		return o.flush(nil)
	}
	return o.flush([]byte("id: " + o.s.eventID(0) + "\nretry: " + strconv.Itoa(retryMillis) + "\ndata: \n\n"))
}

// retryMillis is after how long a client comes back for the rest of a stream.
const retryMillis = 1000

func (o *events) event(n int, line []byte) error {
	if err := o.open(); err != nil {
		return err
	}
	var head []byte
	if o.s.s != nil {
		head = append(append(append(head, "id: "...), o.s.eventID(n)...), '\n')
	}
	head = append(head, "event: message\ndata: "...)
	if err := o.h.write(o.w, head); err != nil {
		return err
	}
	if err := o.h.write(o.w, line); err != nil {
		return err
	}
	return o.flush([]byte("\n\n"))
}

// alive shows that the connection is there; a client that is not loses it.
func (o *events) alive() error {
	if err := o.open(); err != nil {
		return err
	}
	return o.flush([]byte(": \n\n"))
}

func (o *events) flush(b []byte) error {
	if err := o.h.write(o.w, b); err != nil {
		return err
	}
	return http.NewResponseController(o.w).Flush()
}
