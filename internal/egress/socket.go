package egress

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"ringfence/internal/act"
	"ringfence/internal/egress/mitm"
	"ringfence/internal/inspect"
)

// A socket is a WebSocket whose handshake was allowed. The first message of each kind in each
// direction is decided by itself, by the address of the handshake, with what the message is
// among the facts; so is, for the record and the labels, that something was found in what the
// server said. The other messages are as the first of their kind. Nobody is asked: that was
// for the handshake.
type socket struct {
	x   *exchange
	ctx context.Context //nolint:containedctx // of the request, within one call of ServeHTTP
	q   question
	e   *ending

	mu      sync.Mutex
	allowed []string
}

// The kinds of messages, as facts have them.
const (
	messageText   = "text"
	messageBinary = "binary"
	messageFound  = "found" // something was found in one
	directionOut  = "out"   // from the box
	directionIn   = "in"
)

func newSocket(ctx context.Context, x *exchange, q question, e *ending) *socket {
	q.effects = q.effects[:1] // what is lent is lent to the handshake
	return &socket{x: x, ctx: ctx, q: q, e: e}
}

// message is asked about each message.
func (s *socket) message(m mitm.Message) error {
	kind, direction := messageText, directionIn
	if m.Binary {
		kind = messageBinary
	}
	if m.Out {
		direction = directionOut
	}
	key := direction + " " + kind
	s.mu.Lock()
	known := slices.Contains(s.allowed, key)
	s.mu.Unlock()
	if known {
		return nil
	}
	if err := s.decide(kind, direction, nil); err != nil {
		return err
	}
	s.mu.Lock()
	s.allowed = append(s.allowed, key)
	s.mu.Unlock()
	return nil
}

// decide has a message decided, and finishes what allows it with labels.
func (s *socket) decide(kind, direction string, labels []act.Label) error {
	q := s.q
	q.facts.Message, q.facts.Direction = kind, direction
	t, no := s.x.ask(s.ctx, q)
	if no != nil {
		return &mitm.RefusedError{Code: "message", Detail: plain(no.Reason)}
	}
	t.finish(ending{Status: http.StatusSwitchingProtocols, labels: labels})
	return nil
}

// looks returns what looks at a message of the server, with in.
func (s *socket) looks(in *inspect.Inspector, how inspect.Redaction) mitm.Filter {
	return &heard{in.Stream(inspect.Result, how), s}
}

// A heard is a filter that has labels of what it saw in force before the message is whole.
type heard struct {
	*inspect.Stream
	s *socket
}

// End implements mitm.Filter.
func (h *heard) End() ([]byte, error) {
	rest, err := h.Stream.End()
	if err != nil {
		return rest, err
	}
	return rest, h.s.found(h.Findings().Labels)
}

// found has labels that the session has not got by this socket in force.
func (s *socket) found(labels []act.Label) error {
	s.mu.Lock()
	labels = slices.DeleteFunc(slices.Clone(labels), func(l act.Label) bool { return slices.Contains(s.e.labels, l) })
	s.mu.Unlock()
	if len(labels) == 0 {
		return nil
	}
	if err := s.decide(messageFound, directionIn, labels); err != nil {
		return err
	}
	s.mu.Lock()
	s.e.label(labels)
	s.mu.Unlock()
	return nil
}

// overSocket has f, which carries the handshake, decide and look at what is said after it.
func (x *exchange) overSocket(f *mitm.Forwarder, s *socket, in *inspect.Inspector) {
	how, reply := inspect.Known, f.Reply
	if in == nil {
		in, how = &x.way.shapes, inspect.Nothing
	}
	f.Message = s.message
	f.Reply = func(h http.Header) mitm.Filter {
		switch {
		case isSocket(h):
			return s.looks(in, how)
		case reply != nil:
			return reply(h)
		}
		return nil
	}
}

// isSocket reports whether h is the header of a WebSocket that a server granted.
func isSocket(h http.Header) bool { return h.Get("Sec-Websocket-Accept") != "" }
