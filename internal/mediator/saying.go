package mediator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// Bounds of what a server says unasked.
const (
	maxSaid   = 64  // texts of one request that wait to be decided; more are dropped
	saidBurst = 100 // texts of one server at once
	saidRate  = 20  // and then a second
	maxText   = 64 << 10
	sayWithin = 10 * time.Second // until a text is decided, or dropped
)

// A saying passes on, in order, what a server says while it works on one request: the
// numbers of its progress as they are, texts through the Decider only.
type saying struct {
	s *server
	f *front
	m message

	mu    sync.Mutex
	queue []notice
	idle  chan struct{} // closed when nothing is being passed on; nil at first
}

// A notice is one thing that a server says.
type notice struct {
	method      string // tellMessage or tellProgress
	params      []byte // of a text
	done, total []byte // of progress
}

func newSaying(s *server, f *front, m message) *saying { return &saying{s: s, f: f, m: m} }

// progress takes in the numbers of one notification of progress, and its message, nil
// or a JSON string.
func (y *saying) progress(done, total, text []byte) {
	n := notice{method: tellProgress, done: done, total: total}
	if text != nil && len(text) <= maxText && y.s.mayTell() {
		n.params = append(append([]byte(`{"message":`), text...), '}')
	}
	y.say(n)
}

// say queues n, and does not wait.
func (y *saying) say(n notice) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.queue) >= maxSaid {
		return
	}
	y.queue = append(y.queue, n)
	if y.idle == nil || isClosed(y.idle) {
		y.idle = make(chan struct{})
		go y.run(y.idle) // ends with the queue, each element of which is bounded
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (y *saying) run(idle chan struct{}) {
	for {
		y.mu.Lock()
		if len(y.queue) == 0 {
			close(idle)
			y.mu.Unlock()
			return
		}
		n := y.queue[0]
		y.queue = y.queue[1:]
		y.mu.Unlock()
		y.tell(n)
	}
}

// wait returns when all that was said has been passed on, or ctx ends.
func (y *saying) wait(ctx context.Context) {
	y.mu.Lock()
	idle := y.idle
	y.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (y *saying) tell(n notice) {
	var text []byte
	if n.params != nil {
		ctx, cancel := context.WithTimeout(y.f.ctx, sayWithin)
		defer cancel()
		text = y.f.inspected(ctx, y.s.cfg.Name+"."+n.method, n.params)
	}
	s, token := y.m.x.at()
	switch {
	case n.method == tellMessage && text != nil:
		s.Tell(notification(tellMessage, oneLine(text)))
	case n.method == tellProgress && token != nil:
		b := append(append([]byte(`{"progressToken":`), token...), `,"progress":`...)
		b = append(b, n.done...)
		if n.total != nil {
			b = append(append(b, `,"total":`...), n.total...)
		}
		if v, ok, err := strictjson.Find(text, "/message"); text != nil && err == nil && ok {
			b = append(append(b, `,"message":`...), v.Raw...)
		}
		s.Tell(notification(tellProgress, append(b, '}')))
	}
}

// inspected returns what the client may see of a text, nil if nothing.
func (f *front) inspected(ctx context.Context, name string, params []byte) []byte {
	t, err := f.m.decide(ctx, name, params)
	if err != nil || t.Verdict != act.Allow {
		return nil
	}
	r, err := f.m.finish(ctx, t, act.Outcome{Body: params})
	if err != nil || len(r.Body) == 0 || r.Body[0] != '{' {
		return nil
	}
	return r.Body
}

// A tap lets texts of one server through, as many as its bounds say.
type tap struct {
	mu      sync.Mutex
	left    float64
	at      time.Time
	dropped int
}

// mayTell reports whether one more text of the server is looked at.
func (s *server) mayTell() bool {
	s.texts.mu.Lock()
	defer s.texts.mu.Unlock()
	now := time.Now()
	if s.texts.at.IsZero() {
		s.texts.left = saidBurst
	}
	s.texts.left = min(saidBurst, s.texts.left+now.Sub(s.texts.at).Seconds()*saidRate)
	s.texts.at = now
	if s.texts.left < 1 {
		if s.texts.dropped++; s.texts.dropped == 1 {
			s.o.Log.Warn("texts of a server are dropped: it says too much", slog.String("server", s.cfg.Name))
		}
		return false
	}
	s.texts.left--
	s.texts.dropped = 0
	return true
}

// levels of log messages, least severe first (RFC 5424).
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// logs reports whether the client wants messages of that level. A session that set none
// gets all, as it would of the server; a request that stands alone gets none.
func (f *front) logs(m message, level string) bool {
	least := "debug"
	if m.x != nil && m.x.stateless {
		text, ok := m.metaText(metaLevel)
		if !ok {
			return false
		}
		least = text
	} else if set := f.level.Load(); set != nil {
		least = *set
	}
	at := slices.Index(levels, level)
	return at >= 0 && at >= slices.Index(levels, least)
}

// logged takes in a log message of the server. Whose it is shows where it came in the
// answer to a request, and otherwise only where one connection has requests under way on l,
// or is alone.
func (s *server) logged(l *link, m message) {
	params := m.params.of(m.raw)
	level, ok, err := strictjson.Find(params, "/level")
	text, terr := level.Text()
	if err != nil || !ok || terr != nil || len(params) > maxText {
		return
	}
	y := s.hearer(l, m.in)
	if y == nil || !y.f.logs(y.m, text) || !s.mayTell() {
		return
	}
	y.say(notice{method: tellMessage, params: params})
}

// hearer returns who hears what the server says in the answer to the request in, or, with
// 0, to none in particular: nil if that could be about more than one connection.
func (s *server) hearer(l *link, in int64) *saying {
	if in > 0 {
		return l.saysOf(in)
	}
	calls, alone := l.callers()
	if len(calls) > 0 {
		says := calls[len(calls)-1].says
		if !alone || s.spoken.unsure(says.f.connection(), time.Now()) {
			return nil
		}
		return says
	}
	f := s.m.only()
	if f == nil || s.spoken.unsure(f.connection(), time.Now()) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle == nil || s.idle.f != f {
		s.idle = newSaying(s, f, message{x: &exchange{f: f, stream: f.out}})
	}
	return s.idle
}

// saysOf returns who hears what is said in the answer to the request in; nil if it is none of
// a client, or over.
func (l *link) saysOf(in int64) *saying {
	l.mu.Lock()
	defer l.mu.Unlock()
	fl := l.pending[in]
	if fl == nil {
		return nil
	}
	c, ok := fl.asker.(*call)
	if !ok {
		return nil
	}
	return c.says
}

// only returns the one session that there is, nil if there is none or more than one
// connection.
func (m *Mediator) only() *front {
	fronts := m.connected()
	if len(fronts) != 1 || !fronts[0].opened.Load() {
		return nil
	}
	return fronts[0]
}

// lone is a request, never sent, of the one session that there is: what the server asks
// while none is under way is asked for it.
func (s *server) lone() *flight {
	f := s.m.only()
	if f == nil {
		return nil
	}
	m := message{x: &exchange{f: f, stream: f.out}}
	return &flight{ctx: f.ctx, errand: errand{asker: &call{f: f, m: m, s: s}}}
}

// callers returns the calls that are under way on l, oldest first, and whether one
// connection made them all.
func (l *link) callers() (calls []*call, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]int64, 0, len(l.pending))
	for id := range l.pending {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	alone = true
	for _, id := range ids {
		c, ok := l.pending[id].asker.(*call)
		if !ok {
			continue
		}
		alone = alone && (len(calls) == 0 || calls[0].f == c.f)
		calls = append(calls, c)
	}
	return calls, alone
}

var errLevel = errors.New("level is none of the eight: " + strings.Join(levels, ", "))

// setLevel answers logging/setLevel: each server that logs gets the least severe level
// that a connection wants.
func (f *front) setLevel(ctx context.Context, m message, row method) parcel {
	p, err := readParams(m, row)
	var level string
	if err == nil {
		level, err = p.text(m, "level")
	}
	if err == nil && !slices.Contains(levels, level) {
		err = errLevel
	}
	if err != nil {
		return parcel{line: fault(m.id(), codeParams, "refused: "+err.Error())}
	}
	f.level.Store(&level)
	least := slices.Index(levels, level)
	for _, other := range f.m.connected() {
		if set := other.level.Load(); set != nil {
			least = min(least, slices.Index(levels, *set))
		}
	}
	line := response(m.id(), "result", []byte(`{}`))
	wait, cancel := context.WithTimeout(ctx, f.m.o.ListWait)
	defer cancel()
	for _, s := range f.m.servers {
		if _, err := s.ready(wait); err != nil || !s.has("/logging") {
			continue
		}
		c := &call{f: f, m: m, s: s, name: s.cfg.Name + "." + row.name, args: append(append([]byte(`{"level":`), quote(levels[least])...), '}')}
		c.build = func(id int64, args []byte, _ bool) ([]byte, error) { return ownRequest(id, row.name, args), nil }
		answer := c.answer(ctx)
		if c.free != nil {
			c.free()
		}
		if codeOf(m.id(), answer) != 0 {
			line = answer
		}
	}
	return parcel{line: line}
}

// ownRequest is a line of our own making.
func ownRequest(id int64, method string, params []byte) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), strconv.FormatInt(id, 10)...)
	b = append(append(append(b, `,"method":"`...), method...), `","params":`...)
	return append(append(b, params...), "}\n"...)
}
