package mediator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
)

// suspendFor is how long a client has to gather what it was asked for.
const suspendFor = 10 * time.Minute

// Bounds of exchanges that wait for their client.
const (
	maxSuspended     = 256 // of all clients
	maxSuspendedEach = 32  // of those that a transport knows by one name
	maxState         = 64 << 10
)

// A question is what a server asks a client of the stateless era.
type question struct {
	method string
	params []byte
	reply  chan []byte // has room
}

// questionKey names the one question of an answer that asks for input.
const questionKey = "question"

// A suspension is an exchange whose client was asked something.
type suspension struct {
	x     *exchange
	q     *question
	who   string
	since time.Time
	timer *time.Timer
}

// A guest is a client at a server.
type guest struct {
	who string // what its transport knows it by
	s   *server
}

// waits counts in a question of c's server that c's client has not answered yet, until
// done. A call that waits for its client keeps its place at the server: half of the places
// of a server, or one, is what one client may keep in this way.
func (m *Mediator) waits(c *call) (done func(), err error) {
	at := guest{c.f.who, c.s}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[at] >= max(1, cap(c.s.slots)/2) {
		return nil, errSuspended
	}
	m.waiting[at]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.waiting[at]--; m.waiting[at] == 0 {
			delete(m.waiting, at)
		}
	}, nil
}

var (
	errSuspended = errors.New("too many calls wait for their client")
	errExpired   = errors.New("the client did not come back with what it was asked for")
	errState     = errors.New("the request state is none that was given for this request, or its time is over")
)

// ask puts a question to the client of the exchange and waits for the answer.
func (x *exchange) ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	q := &question{method, params, make(chan []byte, 1)}
	select {
	case x.asks <- q:
	case <-ctx.Done():
		return nil, fmt.Errorf("asking the client: %w", context.Cause(ctx))
	}
	select {
	case r := <-q.reply:
		return r, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("asking the client: %w", context.Cause(ctx))
	}
}

// resumable runs a request of the stateless era. It goes on, suspended, when its
// answer is a question.
func (f *front) resumable(parent context.Context, m message, s Stream) {
	ctx, cancel := context.WithCancelCause(f.m.ctx)
	x := &exchange{f: f, stateless: true, id: m.id(), cancel: cancel, over: ctx.Done(), asks: make(chan *question), done: make(chan parcel, 1)}
	m.x = x
	start := func() {
		f.m.owned.Go(func() {
			defer cancel(nil)
			x.finished(f.answer(ctx, m))
		})
	}
	f.attend(parent, x, m, s, start)
}

// answer answers a request of the stateless era. To a server that asks what the client
// has answered in advance, it goes on at once: the question is granted by then, and the
// client was not asked.
func (f *front) answer(ctx context.Context, m message) parcel {
	p := f.forward(ctx, m)
	again, ok := m.withAnswers(p.line)
	if !ok {
		return p
	}
	p.drop()
	return f.forward(ctx, again)
}

// withAnswers returns m with the state of the result in line, if that asks for nothing
// but what m answers in advance.
func (m message) withAnswers(line []byte) (message, bool) {
	params := m.params.of(m.raw)
	given, ok, err := strictjson.Find(params, "/inputResponses")
	if err != nil || !ok || given.Kind != strictjson.Object {
		return m, false
	}
	if _, comes, err := strictjson.Find(params, "/requestState"); err != nil || comes {
		return m, false
	}
	body, failed := bodyOf(m.id(), line)
	if failed || !wantsInput(body) {
		return m, false
	}
	state, ok, err := strictjson.Find(body, "/requestState")
	wanted, werr := strictjson.Values(body, "/inputRequests/*")
	if err != nil || werr != nil || !ok || len(wanted) == 0 {
		return m, false
	}
	for _, v := range wanted {
		if _, there, err := strictjson.Find(params, strings.Replace(v.Pointer, "/inputRequests", "/inputResponses", 1)); err != nil || !there {
			return m, false
		}
	}
	at := m.params.start + 1
	again, err := m.edited(strictjson.Edit{Start: at, End: at, New: append(append([]byte(`"requestState":`), state.Raw...), ',')})
	return again, err == nil
}

// finished hands the answer to whoever waits for it, or drops it.
func (x *exchange) finished(p parcel) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.dead {
		x.done <- p
		return
	}
	p.drop()
}

// abandon ends an exchange that nobody waits for.
func (x *exchange) abandon(cause error) {
	x.cancel(cause)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.dead, x.stream = true, nil
	select {
	case p := <-x.done:
		p.drop()
	default:
	}
}

func (p parcel) drop() {
	if p.written != nil {
		p.written()
	}
}

// attend waits for the answer of x as the answer to m, in a goroutine of its own that
// begins with start and can be cancelled by the id of m.
func (f *front) attend(parent context.Context, x *exchange, m message, s Stream, start func()) {
	key := idKey(m.id())
	ctx, cancel := context.WithCancelCause(parent)
	waits := &exchange{f: f, stateless: true, id: m.id(), cancel: cancel, stream: s}
	if code, text := f.admit(key, waits); text != "" {
		cancel(nil)
		x.abandon(errGone)
		f.refuse(parent, s, m.id(), code, text)
		return
	}
	x.mu.Lock()
	x.stream, x.token = s, tokenOf(m)
	x.mu.Unlock()
	go func() {
		defer f.calls.Done()
		defer cancel(nil)
		start()
		var a Answer
		select {
		case p := <-x.done:
			a = f.m.complete(f.who, x.id, m, p)
		case q := <-x.asks:
			a = f.suspend(x, m, q)
		case <-ctx.Done():
			x.abandon(context.Cause(ctx))
			f.forget(key)
			return
		}
		if (!f.forget(key) || s.Answer(ctx, a) != nil) && a.Written != nil {
			a.Written()
		}
	}()
}

// suspend returns the answer that asks q, and keeps x until the client comes back.
func (f *front) suspend(x *exchange, m message, q *question) Answer {
	x.mu.Lock()
	x.stream, x.token = nil, nil
	x.mu.Unlock()
	ticket := rand.Text()
	state, err := f.m.seals.seal(stateTicket, f.who, digestOf(m), []byte(ticket), time.Now().Add(suspendFor))
	if err == nil {
		err = f.m.keep(ticket, &suspension{x: x, q: q, who: f.who})
	}
	if err != nil {
		x.abandon(err)
		return Answer{Line: fault(m.id(), codeBusy, err.Error()), Code: codeBusy}
	}
	b := append([]byte(`{"resultType":"input_required","inputRequests":{"`+questionKey+`":{"method":"`), q.method...)
	b = append(b, '"')
	if q.params != nil {
		b = append(append(b, `,"params":`...), oneLine(q.params)...)
	}
	b = append(append(append(b, `}},"requestState":"`...), state...), `"}`...)
	return Answer{Line: response(m.id(), "result", b)}
}

// keep keeps a suspension until it is taken or its time is over. The oldest of the same
// client gives way where there is no room.
func (m *Mediator) keep(ticket string, s *suspension) error {
	m.mu.Lock()
	each, oldest := 0, ""
	for other, o := range m.suspended {
		if o.who != s.who {
			continue
		}
		if each++; oldest == "" || o.since.Before(m.suspended[oldest].since) {
			oldest = other
		}
	}
	full := len(m.suspended) >= maxSuspended
	if full && each == 0 {
		m.mu.Unlock()
		return errSuspended
	}
	var gone *suspension
	if full || each >= maxSuspendedEach {
		gone = m.suspended[oldest]
		delete(m.suspended, oldest)
		gone.timer.Stop()
	}
	s.since = time.Now()
	m.suspended[ticket] = s
	s.timer = time.AfterFunc(suspendFor, func() {
		if m.takeUp(ticket) != nil {
			s.x.abandon(errExpired)
		}
	})
	m.mu.Unlock()
	if gone != nil {
		gone.x.abandon(errGaveWay)
	}
	return nil
}

// takeUp returns the suspension of a ticket, once; nil if there is none.
func (m *Mediator) takeUp(ticket string) *suspension {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.suspended[ticket]
	if s != nil {
		delete(m.suspended, ticket)
		s.timer.Stop()
	}
	return s
}

// resume goes on with a suspended exchange, with what m brings. If m does not bring
// what was asked for, the client is asked again.
func (f *front) resume(ctx context.Context, m message, s Stream, ticket string) {
	held := f.m.takeUp(ticket)
	if held == nil {
		f.refuse(ctx, s, m.id(), codeParams, "refused: "+errState.Error())
		return
	}
	v, ok, err := strictjson.Find(m.params.of(m.raw), "/inputResponses/"+questionKey)
	f.attend(ctx, held.x, m, s, func() {
		if err == nil && ok && v.Kind == strictjson.Object {
			held.q.reply <- v.Raw
			return
		}
		go func() { // ends with the exchange at the latest
			select {
			case held.x.asks <- held.q:
			case <-held.x.over:
			}
		}()
	})
}

// digestOf identifies a request by what it asks for: all of its parameters but what
// differs when it is made again.
func digestOf(m message) [sha256.Size]byte {
	h := sha256.New()
	h.Write(fmt.Appendf(nil, "%q", m.method))
	if m.params.ok() {
		members, err := strictjson.Members(m.params.of(m.raw), strictjson.Limits{})
		slices.SortFunc(members, func(a, b strictjson.Member) int { return strings.Compare(a.Name, b.Name) })
		for _, v := range members {
			if err != nil || v.Name == "_meta" || v.Name == "inputResponses" || v.Name == "requestState" {
				continue
			}
			raw := m.params.of(m.raw)[v.Start:v.End]
			if c, err := strictjson.Canonical(raw); err == nil {
				raw = c // the client may write it differently
			}
			h.Write(fmt.Appendf(nil, ",%q:%q", v.Name, raw))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// encodeState is how sealed states are written.
var encodeState = base64.RawURLEncoding
