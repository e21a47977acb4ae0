package mediator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"ringfence/internal/act/strictjson"
)

// An exchange is one request of a client until it is answered. In the stateless era
// several requests of the client can follow each other in one exchange: it is
// suspended while the client gathers what a server asks for, and a later request goes
// on with it.
type exchange struct {
	f         *front
	stateless bool
	id        []byte // of its first request
	cancel    context.CancelCauseFunc
	over      <-chan struct{} // closed when nothing is done for it any more; stateless only

	mu     sync.Mutex
	stream Stream // of the request that waits for the answer; nil while there is none
	token  []byte // its progress token; nil if it has none
	dead   bool   // nobody waits any more, nor will

	asks chan *question // stateless only: what a server asks for
	done chan parcel    // stateless only: has room for the answer
}

// at returns where what belongs to the answer goes, and the progress token there, nil
// if nobody wants to hear of it.
func (x *exchange) at() (Stream, []byte) {
	if x == nil {
		return nowhere{}, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stream == nil {
		return nowhere{}, nil
	}
	return x.stream, x.token
}

// begin runs a request of a session in a goroutine of its own, which can be cancelled
// by id, and sends the line that run returns unless it was.
func (f *front) begin(parent context.Context, m message, s Stream, run func(context.Context, message) parcel) {
	key := idKey(m.id())
	ctx, cancel := context.WithCancelCause(parent)
	m.x = &exchange{f: f, id: m.id(), cancel: cancel, stream: s, token: tokenOf(m)}
	if code, text := f.admit(key, m.x); text != "" {
		cancel(nil)
		f.refuse(parent, s, m.id(), code, text)
		return
	}
	go func() {
		defer f.calls.Done()
		defer cancel(nil)
		p := run(ctx, m)
		if !f.forget(key) { // first, so that the client may use the id again
			p.drop()
			return
		}
		if s.Answer(ctx, Answer{Line: p.line, Code: codeOf(m.id(), p.line), Written: p.written}) != nil && p.written != nil {
			p.written()
		}
	}()
}

// tokenOf is the progress token of a request, nil if it has none that can be used.
func tokenOf(m message) []byte {
	v, ok := m.meta("progressToken")
	if !ok || !isID(v.Raw) {
		return nil
	}
	return v.Raw
}

// admit registers a request and counts it in calls, or says why not.
func (f *front) admit(key string, x *exchange) (int, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return codeInternal, errGone.Error()
	case f.pending[key] != nil:
		return codeRequest, "this id is in use"
	case len(f.pending) >= maxCalls:
		return codeBusy, "too many requests at once"
	}
	f.pending[key] = x
	f.calls.Add(1)
	return 0, ""
}

// forget makes a request unknown before it is answered. It reports false if it was
// answered already: see [front.giveUp].
func (f *front) forget(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.pending[key]
	delete(f.pending, key)
	return ok
}

// giveUp answers whatever has no answer yet with an error that says text.
func (f *front) giveUp(ctx context.Context, text string) {
	f.mu.Lock()
	left := f.pending
	f.pending, f.closed = map[string]*exchange{}, true
	f.mu.Unlock()
	for _, x := range left {
		s, _ := x.at()
		f.refuse(ctx, s, x.id, codeInternal, text)
	}
}

// errIncapable marks a question that the client did not say it can answer. Nothing
// was sent.
var errIncapable = errors.New("the client does not offer that")

// connection is the same for two requests exactly if one connection made them.
func (f *front) connection() any { return f }

// offers returns what the client of m said it can be asked, a JSON object; nil if it
// said nothing.
func (f *front) offers(m message) []byte {
	if m.x == nil || !m.x.stateless {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.hello.capabilities
	}
	if v, ok := m.meta(metaCapabilities); ok {
		return v.Raw
	}
	return nil
}

// passes reports whether the client of m asks again with what it is asked for, so
// that an answer which asks for input can go to it as it is.
func (f *front) passes(m message) bool { return m.x != nil && m.x.stateless }

// capabilityFor is what a client must have declared to be asked.
var capabilityFor = map[string]string{askSampling: "sampling", askElicitation: "elicitation", askRoots: "roots"}

// ask puts a question to the client on the way to the answer to m, and returns its
// result, a JSON object. method and params are those of the era of sessions. The error
// is errIncapable if the client cannot be asked that. Nobody has decided here that a
// server may ask: that comes before.
func (f *front) ask(ctx context.Context, m message, method string, params []byte) ([]byte, error) {
	name := capabilityFor[method]
	if name == "" {
		return nil, errIncapable
	}
	if _, ok, err := strictjson.Find(f.offers(m), "/"+name); err != nil || !ok {
		return nil, errIncapable
	}
	var result []byte
	var err error
	if m.x.stateless {
		result, err = m.x.ask(ctx, method, params)
	} else {
		result, err = f.request(ctx, m.x, method, params)
	}
	if err != nil {
		return nil, err
	}
	if len(result) == 0 || result[0] != '{' {
		return nil, errors.New("the client answered with something that is no object")
	}
	return result, nil
}

// maxAsks is how many questions of one connection may be open at once.
const maxAsks = 64

// request asks the client of a session with a JSON-RPC request.
func (f *front) request(ctx context.Context, x *exchange, method string, params []byte) ([]byte, error) {
	reply := make(chan message, 1)
	f.mu.Lock()
	if len(f.asks) >= maxAsks || f.closed {
		f.mu.Unlock()
		return nil, errors.New("the client has too many open questions")
	}
	f.asked++
	id := "ringfence-" + strconv.FormatInt(f.asked, 10)
	f.asks[id] = reply
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.asks, id)
	}()
	line := append([]byte(`{"jsonrpc":"2.0","id":"`), id...)
	line = append(append(append(line, `","method":"`...), method...), '"')
	if params != nil {
		line = append(append(line, `,"params":`...), oneLine(params)...)
	}
	s, _ := x.at()
	if err := s.Ask(ctx, append(line, "}\n"...)); err != nil {
		return nil, fmt.Errorf("asking the client: %w", err)
	}
	select {
	case m := <-reply:
		if m.fault.ok() {
			return nil, errors.New("the client answered with an error")
		}
		return m.result.of(m.raw), nil
	case <-f.hung:
		return nil, errGone
	case <-ctx.Done():
		s.Tell(notification("notifications/cancelled", append(append([]byte(`{"requestId":"`), id...), `"}`...)))
		return nil, fmt.Errorf("asking the client: %w", context.Cause(ctx))
	}
}

// answered takes in the client's answer to a question. One to no question is dropped.
func (f *front) answered(m message) {
	id, err := strictjson.Text(m.id())
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if reply := f.asks[id]; reply != nil {
		delete(f.asks, id)
		reply <- m // it has room: only who takes it out of asks sends
	}
}
