package mediator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/act/strictjson"
)

// A front is the side of the client.
type front struct {
	m      *Mediator
	out    *outbox
	opened atomic.Bool // the client has sent initialize
	calls  sync.WaitGroup
	lists  chan struct{} // has an element for each list that is not yet written

	mu      sync.Mutex
	closed  bool
	pending map[string]context.CancelCauseFunc // by idKey
}

func newFront(m *Mediator, out io.Writer) *front {
	return &front{m: m, out: newOutbox(out, 64), pending: map[string]context.CancelCauseFunc{}, lists: make(chan struct{}, maxLists)}
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
			f.refuse(ctx, nil, codeParse, "the message is longer than 16 MiB")
			continue
		case len(bytes.TrimSpace(line)) > 0:
			f.take(ctx, line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (f *front) take(ctx context.Context, line []byte) {
	if bytes.TrimLeft(line, " \t\r")[0] == '[' {
		f.batch(ctx, line)
		return
	}
	m, err := readClient(line)
	if err != nil {
		f.malformed(ctx, line, err)
		return
	}
	if m.response() {
		return // nothing was asked of the client
	}
	era, version := eraOf(m)
	if era == nil {
		data := append([]byte(`{"supported":["`), bytes.Join(toBytes(sessionVersions), []byte(`","`))...)
		data = append(append(append(data, `"],"requested":`...), quote(version)...), '}')
		body := faultBody(codeUnsupported, "this protocol version is not supported", data)
		_ = f.out.send(ctx, response(m.id(), "error", body))
		return
	}
	if m.request() && !f.opened.Load() && m.method != "initialize" && m.method != "ping" && m.method != "server/discover" {
		f.refuse(ctx, m.id(), codeRequest, "the session has not been initialized")
		return
	}
	era.serve(ctx, f, m)
}

func toBytes(words []string) [][]byte {
	out := make([][]byte, len(words))
	for i, w := range words {
		out[i] = []byte(w)
	}
	return out
}

// malformed refuses a line that has no one reading. Where the id can be read,
// the answer bears it, so that nobody waits for it.
func (f *front) malformed(ctx context.Context, line []byte, err error) {
	code := codeParse
	var id []byte
	if errors.Is(err, errEnvelope) || errors.Is(err, errLookLike) {
		code = codeRequest
	}
	members, eerr := strictjson.Envelope(line, strictjson.Limits{Depth: resultDepth})
	for _, v := range members {
		if raw := line[v.Start:v.End]; eerr == nil && v.Name == "id" && isID(raw) && strictjson.Check(raw) == nil {
			id, code = raw, codeRequest
		}
	}
	f.refuse(ctx, id, code, "refused: "+err.Error())
}

// maxBatch bounds a batch whose ids are answered.
const maxBatch = 1 << 20

// batch refuses every request in a batch, a form that only revision 2025-03-26
// had. None is carried out, so that none can hide behind another.
func (f *front) batch(ctx context.Context, line []byte) {
	if len(line) > maxBatch {
		f.refuse(ctx, nil, codeRequest, "batches are not supported")
		return
	}
	ids, err := strictjson.Values(line, "/*/id")
	if err != nil {
		f.refuse(ctx, nil, codeParse, "refused: "+err.Error())
		return
	}
	answered := false
	for _, v := range ids {
		if isID(v.Raw) {
			answered = true
			f.refuse(ctx, v.Raw, codeRequest, "batches are not supported")
		}
	}
	if !answered {
		f.refuse(ctx, nil, codeRequest, "batches are not supported")
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
		cancel := f.pending[idKey(v.Raw)]
		f.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
	case "tools/call", "tools/list":
		f.m.o.Log.Warn("denied a request without an id", slog.String("method", m.method))
	}
}

// begin runs a request in a goroutine of its own, which can be cancelled by id,
// and sends the line that run returns unless it was.
func (f *front) begin(parent context.Context, m message, run func(context.Context, message) parcel) {
	key := idKey(m.id())
	ctx, cancel := context.WithCancelCause(parent)
	if code, text := f.admit(key, cancel); text != "" {
		cancel(nil)
		f.refuse(parent, m.id(), code, text)
		return
	}
	go func() {
		defer f.calls.Done()
		defer cancel(nil)
		p := run(ctx, m)
		f.forget(key) // first, so that the client may use the id again
		if f.out.post(ctx, p) != nil && p.written != nil {
			p.written()
		}
	}()
}

// admit registers a request and counts it in calls, or says why not.
func (f *front) admit(key string, cancel context.CancelCauseFunc) (int, string) {
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
	f.pending[key] = cancel
	f.calls.Add(1)
	return 0, ""
}

// drain waits until what is in flight is answered, for a client that has sent its
// last line. It returns why it stopped waiting, nil also when the time was up.
func (f *front) drain(ctx context.Context) error {
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
	case <-f.out.done:
		return errGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (f *front) forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pending, key)
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

// answer and refuse drop the line if ctx has ended: whoever cancelled a request
// waits for nothing.
func (f *front) answer(ctx context.Context, m message, body []byte) {
	_ = f.out.send(ctx, response(m.id(), "result", oneLine(body)))
}

func (f *front) refuse(ctx context.Context, id []byte, code int, text string) {
	_ = f.out.send(ctx, fault(id, code, text))
}

// changed tells the client that the list of tools is another one now.
func (f *front) changed(ctx context.Context) {
	if f.opened.Load() {
		_ = f.out.send(ctx, notification("notifications/tools/list_changed", nil))
	}
}

// progress tells the client how far a request is. Nobody waits for it.
func (f *front) progress(token, done, total []byte) {
	params := append(append([]byte(`{"progressToken":`), token...), `,"progress":`...)
	params = append(params, done...)
	if total != nil {
		params = append(append(params, `,"total":`...), total...)
	}
	f.out.offer(notification("notifications/progress", append(params, '}')))
}

// waiting tells the client that a person is being asked, until stop is called.
func (f *front) waiting(token []byte) (stop func()) {
	if token == nil {
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
		params := append(append([]byte(`{"progressToken":`), token...), `,"progress":`...)
		params = strconv.AppendFloat(params, float64(n)/1000, 'f', -1, 64) // below what the server will report
		params = append(params, `,"message":"waiting for approval"}`...)
		f.out.offer(notification("notifications/progress", params))
		timer.Reset(f.m.o.AskEvery)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
		timer = nil
	}
}
