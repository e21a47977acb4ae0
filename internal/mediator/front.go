package mediator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/act/strictjson"
)

// A front is the side of one connection of a client.
type front struct {
	m      *Mediator
	who    string // what the transport knows the client by
	out    Stream // for what belongs to no request
	opened atomic.Bool
	calls  sync.WaitGroup
	lists  chan struct{}   // has an element for each list that is not yet written
	hung   chan struct{}   // closed when the client sends nothing any more
	ctx    context.Context //nolint:containedctx // the life of the connection, within which calls are made
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	hello   hello
	level   atomic.Pointer[string]  // of log messages, as the client set it; nil if it did not
	pending map[string]*exchange    // by idKey
	asks    map[string]chan message // by the ids that we gave
	asked   int64                   // how many there were
	listens map[*listening]struct{}
	watched map[string]bool // resources that the session subscribed to
	stale   map[string]bool // lists whose change the client is yet to be told of
}

func newFront(m *Mediator, who string, out Stream) *front {
	ctx, cancel := context.WithCancelCause(m.ctx)
	return &front{
		m: m, who: who, out: out, ctx: ctx, cancel: cancel, hung: make(chan struct{}), pending: map[string]*exchange{}, asks: map[string]chan message{},
		listens: map[*listening]struct{}{}, stale: map[string]bool{}, lists: make(chan struct{}, maxLists),
	}
}

// run serves a client on a pair of streams, until in ends and what was asked is
// answered, gone is closed, or ctx ends.
func (f *front) run(ctx context.Context, in io.Reader, gone <-chan struct{}) error {
	read := make(chan error, 1)
	go func() { read <- f.read(ctx, in) }()
	var err error
	select {
	case err = <-read:
		if err == nil {
			err = f.drain(ctx, gone)
		}
	case <-gone: // nobody reads the answers
		err = errGone
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	f.close()
	return err
}

// read takes in the lines of the client until they end. It blocks only while
// the client does not read its answers.
func (f *front) read(ctx context.Context, in io.Reader) error {
	l := newLines(in, strictjson.MaxSize, true)
	for {
		line, err := l.next()
		if f.isClosed() {
			return nil
		}
		switch {
		case errors.Is(err, errLong):
			f.refuse(ctx, f.out, nil, codeParse, "the message is longer than 16 MiB")
			continue
		case !blank(line):
			m := Read(line)
			f.take(ctx, m, m.Stateless(), f.out)
			l.yield()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take takes in one message, which is not blank. What belongs to its answer goes to s.
func (f *front) take(ctx context.Context, msg Message, stateless bool, s Stream) {
	m := msg.m
	switch {
	case bytes.TrimLeft(msg.line, " \t\r\n")[0] == '[':
		f.batch(ctx, s, msg.line)
	case msg.err != nil:
		f.malformed(ctx, s, msg)
	case m.response():
		f.answered(m)
	case m.odd != nil && m.request():
		f.refuse(ctx, s, m.id(), codeParams, "refused: "+m.odd.Error())
	case m.odd != nil:
		f.m.o.Log.WarnContext(ctx, "dropped a notification", slog.Any("err", m.odd))
	case stateless:
		requests{}.serve(ctx, f, m, s)
	default:
		sessions{}.serve(ctx, f, m, s)
	}
}

// malformed refuses a line that has no one reading. Where the id can be read,
// the answer bears it, so that nobody waits for it.
func (f *front) malformed(ctx context.Context, s Stream, msg Message) {
	code := codeParse
	id := idOf(msg.line)
	if id != nil || errors.Is(msg.err, errEnvelope) || errors.Is(msg.err, errLookLike) {
		code = codeRequest
	}
	f.refuse(ctx, s, id, code, "refused: "+msg.err.Error())
}

// maxBatch bounds a batch whose ids are answered.
const maxBatch = 1 << 20

// batch refuses every request in a batch, a form that only revision 2025-03-26
// had. None is carried out, so that none can hide behind another.
func (f *front) batch(ctx context.Context, s Stream, line []byte) {
	if len(line) > maxBatch {
		f.refuse(ctx, s, nil, codeRequest, "batches are not supported")
		return
	}
	ids, err := strictjson.Values(line, "/*/id")
	if err != nil {
		f.refuse(ctx, s, nil, codeParse, "refused: "+err.Error())
		return
	}
	answered := false
	for _, v := range ids {
		if isID(v.Raw) {
			answered = true
			f.refuse(ctx, s, v.Raw, codeRequest, "batches are not supported")
		}
	}
	if !answered {
		f.refuse(ctx, s, nil, codeRequest, "batches are not supported")
	}
}

var errCancelled = errors.New("cancelled by the client")

// notified takes in a notification. A tools/call without an id is one: nobody
// could hear that it was denied, so it is dropped.
func (f *front) notified(m message) {
	switch m.method {
	case "notifications/cancelled":
		v, ok, err := strictjson.Find(m.params.of(m.raw), "/requestId")
		if err != nil || !ok {
			return
		}
		f.mu.Lock()
		x := f.pending[idKey(v.Raw)]
		f.mu.Unlock()
		if x != nil {
			x.cancel(errCancelled)
		}
	case "notifications/roots/list_changed":
		f.m.rootsChanged()
	default:
		if _, ok := methodOf(m.method, inBoth); ok {
			f.m.o.Log.Warn("denied a request without an id", slog.String("method", m.method))
		}
	}
}

// drain waits until what is in flight is answered, for a client that has sent its
// last line. What is not when the time is up is answered with an error. It returns why
// it stopped waiting, nil also when the time was up.
func (f *front) drain(ctx context.Context, gone <-chan struct{}) error {
	close(f.hung)
	answered := make(chan struct{})
	go func() { // ends with the calls, which end when they are cancelled
		f.calls.Wait()
		close(answered)
	}()
	t := time.NewTimer(f.m.o.Drain)
	defer t.Stop()
	select {
	case <-answered:
	case <-t.C:
		// A client that does not read either gets no more than a moment.
		ctx, cancel := context.WithTimeout(ctx, f.m.o.StopGrace)
		defer cancel()
		f.giveUp(ctx, fmt.Sprintf("given up after %s without another message: what it did is not known", f.m.o.Drain))
	case <-gone:
		return errGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (f *front) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

func (f *front) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// reply and refuse drop the line if ctx has ended: whoever cancelled a request
// waits for nothing.
func (f *front) reply(ctx context.Context, s Stream, m message, body []byte) {
	_ = s.Answer(ctx, Answer{Line: response(m.id(), "result", oneLine(body))})
}

func (f *front) refuse(ctx context.Context, s Stream, id []byte, code int, text string) {
	_ = s.Answer(ctx, Answer{Line: fault(id, code, text), Code: code})
}

// changed tells every client that a list is another one now: tools, prompts or
// resources.
func (m *Mediator) changed(list string) {
	for _, f := range m.connected() {
		f.changed(list)
	}
}

// changed tells the client of a session, and whoever listens for it. It waits for
// nobody: what is not yet told when a list changes again is told once.
func (f *front) changed(list string) {
	method := "notifications/" + list + "/list_changed"
	for _, l := range f.listeners(list) {
		l.tell(method, []byte{'{'})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.opened.Load() || f.closed || f.stale[list] {
		return
	}
	f.stale[list] = true
	f.calls.Go(func() {
		_ = f.out.Ask(f.ctx, notification(method, nil))
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.stale, list)
	})
}

// waiting tells the client that a person is being asked, until stop is called.
func (f *front) waiting(m message) (stop func()) {
	if _, token := m.x.at(); token == nil {
		return func() {}
	}
	var mu sync.Mutex
	var timer *time.Timer
	n := 0
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(f.m.o.AskAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if timer == nil {
			return
		}
		n++
		if s, token := m.x.at(); token != nil {
			params := append(append([]byte(`{"progressToken":`), token...), `,"progress":`...)
			params = strconv.AppendFloat(params, float64(n)/1000, 'f', -1, 64) // below what the server will report
			params = append(params, `,"message":"waiting for approval"}`...)
			s.Tell(notification("notifications/progress", params))
		}
		timer.Reset(f.m.o.AskEvery)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
		timer = nil
	}
}
