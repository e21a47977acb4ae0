package mediator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"ringfence/internal/act/strictjson"
)

// A Stream carries lines to a client. Each line is one JSON-RPC message with a
// newline at its end, and does not change any more. Its methods may be called at
// the same time.
type Stream interface {
	// Answer takes the answer to a request, the last line of that request's stream. It
	// waits for room until ctx ends. On error the line was not taken, and a.Written is
	// not called.
	Answer(ctx context.Context, a Answer) error
	// Ask takes a request to the client, or a notification that must not be lost. It
	// waits for room until ctx ends.
	Ask(ctx context.Context, line []byte) error
	// Tell takes a notification if there is room.
	Tell(line []byte)
}

// An Answer is the answer to one request of a client.
type Answer struct {
	Line []byte
	Code int // of the JSON-RPC error, 0 for a result
	// Malformed says that the request is none of its era, so that nothing was done.
	Malformed bool
	// Written is called once, when Line is no longer kept; it may be nil.
	Written func()
}

// A Message is one message of a client, read once and strictly.
type Message struct {
	m    message
	line []byte
	err  error
}

// Read reads one message of a client. Whatever is wrong with line shows when the
// message is taken: it is refused there.
func Read(line []byte) Message {
	m, err := readClient(line)
	if err == nil {
		m.raw = flat(m.raw)
	}
	return Message{m, line, err}
}

// flat returns JSON of several lines, that was read, as one: what breaks lines stands
// between tokens there, where a space says the same.
func flat(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 {
		return raw
	}
	raw = bytes.Clone(raw)
	for i, c := range raw {
		if c == '\n' || c == '\r' {
			raw[i] = ' '
		}
	}
	return raw
}

// NotJSON reports whether err says that a message is no JSON, and not that it is no
// message.
func NotJSON(err error) bool {
	return err != nil && !errors.Is(err, errEnvelope) && !errors.Is(err, errLookLike)
}

// SessionVersions are the revisions of the protocol that open sessions, newest first.
func SessionVersions() []string { return slices.Clone(sessionVersions) }

// Err is nil if the message has one reading.
func (m Message) Err() error { return m.err }

// Method is that of a request or a notification, "" of a response and of what cannot
// be read.
func (m Message) Method() string {
	if m.err != nil {
		return ""
	}
	return m.m.method
}

// Request reports whether the message wants an answer. What cannot be read gets one.
func (m Message) Request() bool { return m.err != nil || m.m.request() }

// Response reports whether the message answers a request of ours.
func (m Message) Response() bool { return m.err == nil && m.m.response() }

// Stateless reports whether the message itself says that it is of the era in which
// every request stands alone (2026-07-28).
func (m Message) Stateless() bool { return m.err == nil && m.m.stateless() }

// Version is the revision of the protocol that the message names in its _meta, ""
// if it names none.
func (m Message) Version() string {
	if m.err != nil {
		return ""
	}
	v, _ := m.m.metaText(metaVersion)
	return v
}

// Param returns the string params.NAME, and whether there is one.
func (m Message) Param(name string) (string, bool) {
	if m.err != nil || !m.m.params.ok() {
		return "", false
	}
	v, ok, err := strictjson.Find(m.m.params.of(m.m.raw), "/"+strictjson.Escape(name))
	if err != nil || !ok {
		return "", false
	}
	text, err := v.Text()
	return text, err == nil
}

// Argument returns the value at a pointer (RFC 6901) into the arguments of a call.
func (m Message) Argument(pointer string) (strictjson.Value, bool) {
	if m.err != nil || !m.m.params.ok() {
		return strictjson.Value{}, false
	}
	v, ok, err := strictjson.Find(m.m.params.of(m.m.raw), "/arguments"+pointer)
	return v, ok && err == nil
}

// Refusal is the line that refuses m, with its id where that can be read.
func (m Message) Refusal(code int, text string) []byte {
	id := m.m.id()
	if m.err != nil {
		id = idOf(m.line)
	}
	return fault(id, code, text)
}

// A Client is one connection of a client: a session, or a single request of the
// stateless era. Its ids, progress tokens, questions and subscriptions are its own.
type Client struct {
	f    *front
	once sync.Once
}

// ErrFull says that there are as many connections as there may be.
var ErrFull = errors.New("too many connections at once")

// Connect takes in a connection while [Mediator.Serve] runs. who is what the
// transport knows the client by: whoever has another who cannot go on with a request
// of this one. What belongs to no request goes to out, nowhere if out is nil.
func (m *Mediator) Connect(who string, out Stream) (*Client, error) {
	if out == nil {
		out = nowhere{}
	}
	f, err := m.admit(who, out)
	if err != nil {
		return nil, fmt.Errorf("connecting a client: %w", err)
	}
	return &Client{f: f}, nil
}

// Take takes in one message; stateless says which era it is of. What belongs to its
// answer goes to s. Take does not wait for the answer.
func (c *Client) Take(m Message, stateless bool, s Stream) {
	c.f.take(c.f.ctx, m, stateless, s)
}

// Cancel ends the connection without waiting for what is in flight.
func (c *Client) Cancel() {
	c.f.close()
	c.f.cancel(errGone)
}

// Close cancels what is in flight and waits until that is on record.
func (c *Client) Close() {
	c.Cancel()
	c.once.Do(func() {
		c.f.calls.Wait()
		c.f.m.release(c.f)
	})
}

// nowhere takes what nobody reads.
type nowhere struct{}

func (nowhere) Answer(_ context.Context, a Answer) error {
	if a.Written != nil {
		a.Written()
	}
	return nil
}
func (nowhere) Ask(context.Context, []byte) error { return errNobody }
func (nowhere) Tell([]byte)                       {}

var errNobody = errors.New("there is no stream on which the client could be asked")

// A pipe is the stream of a client whose messages all go one way out.
type pipe struct{ *outbox }

func (p pipe) Answer(ctx context.Context, a Answer) error {
	return p.post(ctx, parcel{a.Line, a.Written})
}
func (p pipe) Ask(ctx context.Context, line []byte) error { return p.send(ctx, line) }
func (p pipe) Tell(line []byte)                           { p.offer(line) }

// idOf returns the id of a line that has no one reading, nil if that is not plain.
func idOf(line []byte) []byte {
	var id []byte
	members, err := strictjson.Envelope(line, strictjson.Limits{Depth: resultDepth})
	for _, v := range members {
		if raw := line[v.Start:v.End]; err == nil && v.Name == "id" && isID(raw) && strictjson.Check(raw) == nil {
			id = raw
		}
	}
	return id
}

// blank reports whether a line holds nothing but white space.
func blank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }
