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

// A link is the connection to one incarnation of a server.
type link struct {
	name string
	proc *Process
	out  *outbox
	log  *slog.Logger
	max  int
	err  ring // the end of its standard error

	scrubbed func([]byte) []byte // takes secrets of entries out of what it wrote

	changed func()                   // the server says that its tools changed
	lone    func() *flight           // whom it may ask while no request is under way; nil is nobody
	said    func(l *link, m message) // any other notification but progress; nil drops them
	orders  *orders                  // of the server "exec"; nil with all others

	declares []byte   // what a server with sessions may ask of clients, as their capabilities; nil is nothing
	mayAsk   []string // what any server may ask, by method
	first    known    // the era that a server is asked for first; unknown is the newer one

	meter *meter       // counts what the server sends; may be nil
	held  atomic.Int64 // bytes of results not yet released
	down  chan struct{}
	gone  chan struct{} // the process has ended and every goroutine of the link

	mu      sync.Mutex
	cause   error
	next    int64
	pending map[int64]*flight
	asking  map[string]*asking // requests of the server that wait for a client, by idKey
	replies sync.WaitGroup     // those, until what became of them is on record
	doubted bool               // whether it still answers is being found out

	// Of a server of the era of requests only.
	alone    *alone
	ttl      time.Time // until then its list of tools is fresh; zero if it tells of changes
	tells    bool      // it tells of changes of its tools
	wants    []byte    // the lists whose changes it should tell, the beginning of an object
	watched  []string  // resources that clients have subscribed to
	unlisten func()    // ends the subscription for both
}

// A flight is a request that the server has not answered yet.
type flight struct {
	reply chan answer
	ctx   context.Context //nolint:containedctx // as long as it is under way
	errand
}

// An errand is what a request is sent for. The zero errand is one of our own.
type errand struct {
	progress func(done, total, text []byte) // gets its progress, text as a JSON string or nil; may be nil
	asker    asker                          // whom the server may ask meanwhile; nil is nobody
}

// An asker reaches the client whose request is under way, if that may be.
type asker interface {
	// connection is the same for two requests exactly if one connection made them.
	connection() any
	// offers is what the client of this request may be asked, as the JSON object
	// of its capabilities; nil is nothing.
	offers() []byte
	// passes reports whether an answer that asks for input goes to the client as it
	// is, which then asks again with what it is asked for.
	passes() bool
	// asked decides whether the server may ask, asks the client, and returns its
	// result, a JSON object. method and params are those of the era of sessions:
	// roots/list, sampling/createMessage, elicitation/create. The server reads the
	// text of an error.
	asked(ctx context.Context, method string, params []byte) (result []byte, err error)
}

// An answer is what a server answered: its result, or its error object.
type answer struct {
	body  []byte
	fault bool
	held  func() // releases the memory that body counts as; may be nil
}

func (a answer) free() {
	if a.held != nil {
		a.held()
	}
}

// read returns a if its result can be read. What it says that it is, no reader can take for
// anything else.
func (a answer) read() (answer, error) {
	if a.fault {
		return a, nil
	}
	if _, _, err := readResult(a.body); err != nil {
		a.free()
		return answer{}, err
	}
	return a, nil
}

func newLink(s Server, run Commander, p *Process, limit int, log *slog.Logger, changed func(), said func(*link, message), lone func() *flight) *link {
	l := &link{
		lone: lone, scrubbed: s.scrubbed,
		name: s.Name, proc: p, out: newOutbox(p.Stdin, 64), log: log, max: limit, changed: changed, said: said,
		err: ring{max: maxStderr}, down: make(chan struct{}), gone: make(chan struct{}), pending: map[int64]*flight{},
		asking: map[string]*asking{},
	}
	if p.Channel != nil {
		l.orders = newOrders(s, run, p.Channel, log, l.breach)
		go l.orders.serve()
	}
	var streams sync.WaitGroup
	streams.Go(l.read)
	streams.Go(func() { _, _ = io.Copy(&l.err, p.Stderr) }) // its end is no error
	go l.reap(&streams)
	return l
}

// drainTime is how long the streams of a process that has ended may stay open;
// another process that has them would keep them open for ever.
const drainTime = time.Second

func (l *link) reap(streams *sync.WaitGroup) {
	err := l.proc.Wait()
	text := "it ended"
	if err != nil {
		text += ": " + err.Error()
	}
	late := time.AfterFunc(drainTime, func() {
		_ = l.proc.Stdout.Close()
		_ = l.proc.Stderr.Close()
	})
	streams.Wait()
	late.Stop()
	l.fail(errors.New(text))
	l.log.Info("server ended", slog.String("server", l.name), slog.Any("err", err), slog.String("stderr", l.told()))
	_ = l.proc.Stdout.Close()
	_ = l.proc.Stderr.Close()
	_ = l.proc.Stdin.Close()
	<-l.out.done
	if l.orders != nil {
		l.orders.close()
	}
	l.settle()
	close(l.gone)
}

// fail takes the link down for the first reason it is given. Whoever waits for
// an answer gets that reason, and the agent may read it: it holds no word of the
// server.
func (l *link) fail(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = reason
	close(l.down)
	l.out.close()
}

// breach takes the link down because the server broke the protocol.
func (l *link) breach(reason error) {
	l.fail(reason)
	l.log.Warn("server stopped", slog.String("server", l.name), slog.Any("err", reason))
	l.proc.Kill()
}

func (l *link) up() bool {
	select {
	case <-l.down:
		return false
	default:
		return true
	}
}

func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// stop ends the process: standard input closed, then asked, then killed, each
// after grace. It returns when nothing of it is left.
func (l *link) stop(grace time.Duration) {
	l.fail(errStopped)
	select {
	case <-l.out.done:
	case <-time.After(grace):
	}
	_ = l.proc.Stdin.Close()
	for _, next := range []func(){l.proc.Terminate, l.proc.Kill} {
		select {
		case <-l.gone:
			return
		case <-time.After(grace):
			next()
		}
	}
	<-l.gone
}

// errAnswer is in the error of what a server answered with one.
var errAnswer = errors.New("error")

// ask sends a request of our own.
func (l *link) ask(ctx context.Context, method string, params []byte) (answer, error) {
	a, err := l.request(ctx, errand{}, func(id int64) ([]byte, error) {
		return plain(id, method, params), nil
	})
	if err != nil {
		return a, err
	}
	a.free()
	if a.fault {
		return a, l.failed(method, a.body)
	}
	if method == "tools/list" {
		l.date(a.body, time.Now())
	}
	return a, nil
}

// plain is the line of a request of our own.
func plain(id int64, method string, params []byte) []byte {
	b := strconv.AppendInt([]byte(`{"jsonrpc":"2.0","id":`), id, 10)
	b = append(append(append(b, `,"method":"`...), method...), `","params":`...)
	return append(append(b, params...), "}\n"...)
}

// request sends the line that build makes for an id, as the era of the server has it,
// and waits for the answer. If ctx ends first, the server is told so and its answer
// will be dropped. build is called again if the server wants something before it
// answers (see [asker]).
func (l *link) request(ctx context.Context, e errand, build func(id int64) ([]byte, error)) (answer, error) {
	l.mu.Lock()
	me := l.alone
	l.mu.Unlock()
	if me != nil {
		return l.rounds(ctx, me, e, build)
	}
	return l.send(ctx, e, func(id int64) ([]byte, error) {
		line, err := build(id)
		if err != nil {
			return nil, err
		}
		return undress(line)
	})
}

// send sends one line and waits for its answer.
func (l *link) send(parent context.Context, e errand, build func(id int64) ([]byte, error)) (answer, error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	fl := &flight{reply: make(chan answer, 1), ctx: ctx, errand: e}
	l.mu.Lock()
	if l.cause != nil {
		defer l.mu.Unlock()
		return answer{}, unsentError{l.cause}
	}
	l.next++
	id := l.next
	l.pending[id] = fl
	l.mu.Unlock()
	defer l.forget(id, fl)

	line, err := build(id)
	if err == nil {
		err = l.tell(ctx, line)
	}
	if err != nil {
		return answer{}, unsentError{err}
	}
	select {
	case a := <-fl.reply:
		return a.read()
	case <-l.down:
	case <-l.out.done:
		l.deaf()
	case <-ctx.Done():
		l.out.offer(notification("notifications/cancelled", append(strconv.AppendInt([]byte(`{"requestId":`), id, 10), '}')))
		if errors.Is(context.Cause(ctx), errTimeout) {
			l.doubt()
		}
		return answer{}, lostError{context.Cause(ctx)}
	}
	select {
	case a := <-fl.reply: // it was the last thing the server said
		return a.read()
	default:
		return answer{}, lostError{l.reason()}
	}
}

// forget makes the request unknown. An answer that arrived and that nobody took
// is released.
func (l *link) forget(id int64, fl *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, id)
	select {
	case a := <-fl.reply:
		a.free()
	default:
	}
}

// read takes in what the server writes, until it ends or breaks the protocol.
func (l *link) read() {
	in := newLines(l.proc.Stdout, l.max, false)
	for noise, n := 0, uint64(1); noise <= maxNoise; n++ {
		line, err := in.next()
		if errors.Is(err, errLong) {
			l.breach(fmt.Errorf("it wrote a line of more than %d bytes", l.max))
			return
		}
		if err != nil {
			l.hungUp()
			if len(bytes.TrimSpace(line)) > 0 {
				l.log.Warn("server closed its output within a message", slog.String("server", l.name))
			}
			return
		}
		ok, err := l.take(line, n)
		if err != nil {
			l.breach(err)
			return
		}
		if !ok {
			noise++
		}
		in.yield()
	}
	l.breach(fmt.Errorf("it wrote more than %d lines that are not MCP", maxNoise))
}

// hungUp deals with the end of standard output. Mostly the process is ending, and
// reap will say how; one that goes on without output is killed.
func (l *link) hungUp() {
	time.AfterFunc(drainTime/4, func() { l.fail(errors.New("it closed its output")) })
	time.AfterFunc(drainTime, func() {
		select {
		case <-l.gone:
		default:
			l.proc.Kill()
		}
	})
}

// told is the end of what it wrote to standard error, for people.
func (l *link) told() string { return string(l.scrubbed([]byte(l.err.String()))) }

// take handles the nth line. Lines that are no JSON objects, and objects that do not
// claim to be JSON-RPC, are noise that a program prints by mistake; what starts
// like a message and is none is an error.
func (l *link) take(line []byte, n uint64) (ok bool, err error) {
	line = l.scrubbed(line)
	text := bytes.TrimLeft(line, " \t\r")
	if len(text) == 0 {
		return true, nil
	}
	if text[0] != '{' {
		l.log.Debug("noise from server", slog.String("server", l.name), slog.String("line", clip(string(line))))
		return false, nil
	}
	m, err := readServer(line, l.max)
	if errors.Is(err, errEnvelope) {
		return false, nil
	}
	if err != nil {
		l.log.Warn("unreadable message from server", slog.String("server", l.name), slog.Any("err", err))
		return false, errors.New("it wrote a message that cannot be read")
	}
	switch {
	case m.response():
		return l.answered(m), nil
	case m.request():
		l.asked(m)
	default:
		if l.proc.Within != nil {
			m.in = l.proc.Within(n)
		}
		l.notified(m)
	}
	return true, nil
}

// answered hands an answer to whoever waits for it. An answer to an id that was
// never used is noise.
func (l *link) answered(m message) bool {
	id, err := strconv.ParseInt(string(m.id()), 10, 64)
	if err != nil || strconv.FormatInt(id, 10) != string(m.id()) {
		return false
	}
	a := answer{body: m.result.of(m.raw)}
	if m.fault.ok() {
		a = answer{body: m.fault.of(m.raw), fault: true}
	}
	size := int64(len(m.raw))
	l.meter.came(time.Now(), len(m.raw))
	var once sync.Once
	a.held = func() { once.Do(func() { l.held.Add(-size) }) }
	if l.held.Add(size) > maxHeld {
		a.free()
		a = answer{body: faultBody(codeInternal, "too many results at once", nil), fault: true}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	fl := l.pending[id]
	delete(l.pending, id)
	if fl == nil {
		a.free()
		return id > 0 && id <= l.next // late after a cancellation is no noise
	}
	fl.reply <- a // it has room: only who takes the flight out of pending sends
	return true
}

func (l *link) notified(m message) {
	switch m.method {
	case "notifications/tools/list_changed":
		l.changed()
	case "notifications/progress":
		l.progressed(m)
	case "notifications/cancelled":
		l.withdrawn(m)
	default:
		if l.said != nil {
			l.said(l, m)
		}
	}
}

// progressed passes on a progress notification.
func (l *link) progressed(m message) {
	var id int64
	var done, total, text []byte
	members, err := strictjson.Envelope(m.params.of(m.raw), strictjson.Limits{Depth: resultDepth})
	if err != nil {
		return
	}
	for _, v := range members {
		raw := m.raw[m.params.start+v.Start : m.params.start+v.End]
		switch v.Name {
		case "progressToken":
			if id, err = strconv.ParseInt(string(raw), 10, 64); err != nil {
				return
			}
		case "progress":
			done = raw
		case "total":
			total = raw
		case "message":
			if text = nil; raw[0] == '"' {
				text = raw
			}
		}
	}
	if !isNumber(done) || total != nil && !isNumber(total) {
		return
	}
	l.mu.Lock()
	fl := l.pending[id]
	l.mu.Unlock()
	if fl != nil && fl.progress != nil {
		fl.progress(done, total, text)
	}
}

// isNumber reports whether raw, which is some JSON value, is a number of
// ordinary length.
func isNumber(raw []byte) bool {
	return len(raw) > 0 && len(raw) <= 32 && isID(raw) && raw[0] != '"'
}
