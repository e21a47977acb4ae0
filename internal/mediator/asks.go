package mediator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// Text for a server whose request was not granted. It says nothing of policies.
var errNotGranted = errors.New("the client does not grant it")

// A call is the asker of its server.
var _ asker = (*call)(nil)

func (c *call) connection() any { return c.f.connection() }
func (c *call) offers() []byte  { return c.f.offers(c.m) }
func (c *call) passes() bool    { return c.f.passes(c.m) }

// asked has a request of the server decided, puts it to the client as the ticket says, and
// returns what the Decider leaves of the client's result.
func (c *call) asked(ctx context.Context, method string, params []byte) ([]byte, error) {
	done, err := c.f.m.waits(c)
	if err != nil {
		return nil, err
	}
	defer done()
	t, err := c.grant(ctx, method, params)
	if err != nil {
		return nil, err
	}
	shown := t.Bytes
	if method == askRoots && string(shown) == "{}" {
		shown = nil // most servers write none
	}
	result, err := c.f.ask(ctx, c.m, method, shown)
	o := act.Outcome{Body: result}
	if err != nil {
		o = act.Outcome{Error: err.Error()}
	}
	r, ferr := c.f.m.finish(ctx, t, o)
	switch {
	case errors.Is(err, errIncapable) && ferr == nil && nobody[method] != "":
		return []byte(nobody[method]), nil
	case err != nil:
		return nil, err
	case ferr != nil || len(r.Body) == 0 || r.Body[0] != '{':
		return nil, errNotGranted
	}
	return r.Body, nil
}

// nobody is what a server hears of a client that cannot be asked: no person answered, and
// there are no roots. It was told what some client offers, not what this one does, and may
// ask for several things at once: an error for one would end its call.
var nobody = map[string]string{askElicitation: `{"action":"cancel"}`, askRoots: `{"roots":[]}`}

// grant decides a request of the server.
func (c *call) grant(ctx context.Context, method string, params []byte) (act.Ticket, error) {
	if err := checkAsk(method, params); err != nil {
		return act.Ticket{}, err
	}
	t, err := c.f.m.decide(ctx, c.s.cfg.Name+"."+method, params)
	if err != nil || t.Verdict != act.Allow {
		return act.Ticket{}, errNotGranted
	}
	if len(t.Bytes) == 0 {
		t.Bytes = params
	}
	return t, nil
}

// mayAsk returns what servers may ask of clients, as far as the Decider might ever allow it.
func (m *Mediator) mayAsk(ctx context.Context) []string {
	list := []byte(`{"asks":["` + strings.Join(asks, `","`) + `"]}`)
	var mu sync.Mutex
	var all sync.WaitGroup
	var may []string
	for _, s := range m.servers {
		all.Go(func() {
			body, err := s.decideList(ctx, s.cfg.Name+".asks/list", list, []byte(`{}`))
			granted, verr := strictjson.Values(body, "/asks/*")
			if err != nil || verr != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, v := range granted {
				if text, err := v.Text(); err == nil && slices.Contains(asks, text) && !slices.Contains(may, text) {
					may = append(may, text)
				}
			}
		})
	}
	all.Wait()
	return may
}

// Where both sides have the era of requests, a result that asks for input goes through to
// the client, which asks again with the responses. Between the two, what was granted is
// kept here. Its handle stands before the state of the server in the requestState that the
// client gets, which is sealed on its way out and opened on its way in.

// A passed is what a server asked in one result, granted.
type passed struct {
	who     string
	tickets map[string]act.Ticket // by the key of the question
	state   []byte                // of the server, a JSON string; nil if it gave none
	since   time.Time
	timer   *time.Timer
}

// pass has decided what a result asks for, if it does, and returns what the client reads.
func (c *call) pass(ctx context.Context, body []byte) ([]byte, error) {
	kind, _, err := readResult(body)
	switch {
	case err != nil:
		return nil, err
	case kind != resultInput:
		return body, checkComplete(body)
	case !c.passes():
		return nil, errors.New("the server wants input that it cannot get here")
	}
	kept := &passed{who: c.f.who, tickets: map[string]act.Ticket{}}
	edits, err := c.grantAll(ctx, body, kept, nil)
	if err == nil {
		var handle string
		if handle, err = c.f.m.keepPassed(kept); err == nil {
			edits = append(edits, kept.mark(body, handle))
			body, err = strictjson.Splice(body, edits)
		}
	}
	if err != nil {
		c.f.m.drop(kept, err)
		return nil, err
	}
	return body, nil
}

// mark is the edit that puts the handle into the state that the client gets.
func (p *passed) mark(body []byte, handle string) strictjson.Edit {
	if v, ok, err := strictjson.Find(body, "/requestState"); err == nil && ok {
		p.state = v.Raw
		return strictjson.Edit{Start: v.Start, End: v.End, New: quote(handle)}
	}
	return strictjson.Edit{Start: 1, End: 1, New: append(append([]byte(`"requestState":`), quote(handle)...), ',')}
}

// grantAll decides each thing that a result asks for. The edits put in its place what the
// client may be shown of it. What is in known was decided before, and is
// shown as it was then.
func (c *call) grantAll(ctx context.Context, body []byte, kept *passed, known map[string][]byte) ([]strictjson.Edit, error) {
	v, ok, err := strictjson.Find(body, "/inputRequests")
	if err != nil || !ok {
		return nil, err
	}
	wanted, err := strictjson.Members(v.Raw, strictjson.Limits{Depth: resultDepth})
	if err == nil && len(wanted) > maxInputs {
		err = fmt.Errorf("it wants %d things at once, at most %d", len(wanted), maxInputs)
	}
	if err != nil {
		return nil, err
	}
	var edits []strictjson.Edit
	for _, w := range wanted {
		at, entry := v.Start+w.Start, v.Raw[w.Start:w.End]
		if before := known[w.Name]; before != nil {
			edits = append(edits, strictjson.Edit{Start: at, End: at + len(entry), New: before})
			continue
		}
		name, params, err := readWish(entry)
		if err != nil {
			return nil, fmt.Errorf("the server wants input %w", err)
		}
		if _, can, err := strictjson.Find(c.offers(), "/"+capabilityFor[name]); err != nil || !can {
			return nil, fmt.Errorf("the server wants %s: %w", name, errIncapable)
		}
		t, err := c.grant(ctx, name, params.Raw)
		if err != nil {
			return nil, fmt.Errorf("the server wants %s, which is denied", name)
		}
		kept.tickets[w.Name] = t
		if params.End > 0 {
			edits = append(edits, strictjson.Edit{Start: at + params.Start, End: at + params.End, New: t.Bytes})
		}
	}
	return edits, nil
}

// goOn returns m as it is to reach the server s: with what the Decider leaves of the
// responses to what the server asked, or of those that come unasked.
func (f *front) goOn(ctx context.Context, m message, s *server) (message, error) {
	if !f.passes(m) || !m.params.ok() || s == nil {
		return m, nil
	}
	state, marked, err := strictjson.Find(m.params.of(m.raw), "/requestState")
	if err != nil {
		return m, err
	}
	given, responds, err := strictjson.Find(m.params.of(m.raw), "/inputResponses")
	if err != nil || !marked && !responds {
		return m, err
	}
	handle, _ := state.Text()
	kept := f.m.takePassed(handle, f.who)
	if kept == nil {
		if m, err = m.without("inputResponses"); err == nil {
			m, err = m.without("requestState")
		}
		if err != nil || !responds || given.Kind != strictjson.Object {
			return m, err
		}
		return f.unasked(ctx, m, s, given.Raw)
	}
	var replies []byte
	if responds {
		replies, err = f.m.replies(ctx, kept, given.Raw)
	}
	f.m.drop(kept, errors.New("the client came back without it"))
	if err != nil {
		return m, err
	}
	if responds {
		at := m.params.start
		if m, err = m.edited(strictjson.Edit{Start: at + given.Start, End: at + given.End, New: replies}); err != nil {
			return m, err
		}
	}
	if kept.state == nil {
		return m.without("requestState")
	}
	if state, _, err = strictjson.Find(m.params.of(m.raw), "/requestState"); err != nil {
		return m, err
	}
	at := m.params.start
	return m.edited(strictjson.Edit{Start: at + state.Start, End: at + state.End, New: kept.state})
}

// kindOf is the request that a response answers, by its shape; "" is none.
func kindOf(response []byte) string {
	for _, k := range []struct{ pointer, method string }{
		{"/action", askElicitation}, {"/role", askSampling}, {"/roots", askRoots},
	} {
		if _, ok, err := strictjson.Find(response, k.pointer); err == nil && ok {
			return k.method
		}
	}
	return ""
}

// unasked returns m with responses that the server did not ask for here, as the Decider
// leaves them: each is decided as if it had.
func (f *front) unasked(ctx context.Context, m message, s *server, responses []byte) (message, error) {
	members, err := strictjson.Members(responses, strictjson.Limits{})
	if err != nil || len(members) > maxInputs {
		return m, errors.Join(errors.New("inputResponses cannot be read, or are too many"), err)
	}
	kept := &passed{tickets: map[string]act.Ticket{}}
	c := &call{f: f, m: m, s: s}
	for _, v := range members {
		method := kindOf(responses[v.Start:v.End])
		if method == "" {
			continue
		}
		t, err := c.grant(ctx, method, []byte(`{"message":"(the client answers what was not asked here)"}`))
		if err == nil {
			kept.tickets[v.Name] = t
		}
	}
	replies, err := f.m.replies(ctx, kept, responses)
	f.m.drop(kept, errWithheld)
	if err != nil {
		return m, err
	}
	at := m.params.start + 1
	member := append([]byte(`"inputResponses":`), replies...)
	if len(bytes.TrimSpace(m.params.of(m.raw))) > 2 {
		member = append(member, ',')
	}
	return m.edited(strictjson.Edit{Start: at, End: at, New: member})
}

// replies finishes what was granted with the responses of the client, and returns what is
// left of them.
func (m *Mediator) replies(ctx context.Context, kept *passed, responses []byte) ([]byte, error) {
	members, err := strictjson.Members(responses, strictjson.Limits{})
	if err != nil {
		return nil, fmt.Errorf("inputResponses: %w", err)
	}
	out := []byte{'{'}
	for _, v := range members {
		t, ok := kept.tickets[v.Name]
		if !ok {
			continue
		}
		delete(kept.tickets, v.Name)
		r, err := m.finish(ctx, t, act.Outcome{Body: responses[v.Start:v.End]})
		if err != nil || len(r.Body) == 0 {
			return nil, errWithheld
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quote(v.Name)...), ':'), r.Body...)
	}
	return append(out, '}'), nil
}
