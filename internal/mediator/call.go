package mediator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// finishTimeout bounds how long an outcome may take to be recorded; it runs on
// when the call itself is cancelled.
const finishTimeout = 30 * time.Second

// Codes of calls that were allowed and came to nothing; those of denials are
// act.Codes.
const (
	codeUnavailable = "unavailable" // the server is down, died, or sent what cannot be read
	codeTimeout     = "timeout"     // it did not answer in time
)

var (
	errTimeout   = errors.New("the server did not answer in time")
	errReplaced  = errors.New("the server or its tools changed while this call was decided; call again")
	errLeaveOut  = errors.New("part of what this call reaches is forbidden, and results of a server cannot be filtered; name something smaller")
	errNoServer  = errors.New("no such server")
	errWithheld  = errors.New("the result could not be recorded, so it is withheld")
	errUndecided = errors.New("no decision could be obtained, so nothing was done")

	errUnrecorded = errors.New("the decision could not be recorded, so nothing was done")
	errNoSession  = errors.New("this session has ended, so nothing was done: start a new one")
)

// route finds the server and the name of the tool behind a name on the wire. With
// one server names are its own; with more they are "server__tool", and as no name
// of a server has two underscores or ends with one, the first two end it.
func (m *Mediator) route(wire string) (*server, string) {
	if len(m.servers) == 1 {
		return m.servers[0], wire
	}
	name, tool, ok := strings.Cut(wire, "__")
	if !ok {
		return nil, wire
	}
	return m.byName[name], tool
}

// called says how tools are called, for who called one that no server has.
func (m *Mediator) called(name string) string {
	server, tool, ok := strings.Cut(name, ".")
	if s := m.byName[server]; ok && s != nil {
		return "call it " + strconv.Quote(m.wireName(s, tool))
	}
	return "a call names server__tool, as the list of tools does"
}

// wireName is the inverse of route.
func (m *Mediator) wireName(s *server, tool string) string {
	if len(m.servers) == 1 {
		return tool
	}
	return s.cfg.Name + "__" + tool
}

// A call is one request of a client on its way to the server that is to answer it.
type call struct {
	f    *front
	m    message
	tool bool   // it is a tools/call, so that what goes wrong is a result for the model
	name string // what it is decided as: "server.tool", or "server." and a method
	args []byte // what is decided
	s    *server
	at   footing
	free func() // releases the memory that the result counts as; nil before it came
	says *saying

	task  bool   // it asks for a task, in the era of sessions
	needs string // a pointer to what the server must have declared; "" is nothing

	// build makes the line for the server. With token the server gets a progress token
	// also where the client gave none.
	build func(id int64, args []byte, token bool) ([]byte, error)
	// instead is a result that makes asking the server needless; nil asks it.
	instead []byte
	// seen makes of the reply to a result what the client reads; nil changes nothing.
	seen func(ctx context.Context, t act.Ticket, body []byte) ([]byte, error)
}

// call decides and carries out a tools/call and returns the line that answers
// it. A result counts as held until that line is written: a client that does not
// read gets no more of them.
func (f *front) call(ctx context.Context, m message) parcel {
	parts, err := readCall(m)
	var s *server
	var tool string
	if err == nil {
		s, tool = f.m.route(parts.name)
		if went, gerr := f.goOn(ctx, m, s); gerr != nil {
			err = gerr
		} else if &went.raw[0] != &m.raw[0] {
			m = went
			parts, err = readCall(m)
		}
	}
	if err != nil {
		return parcel{line: fault(m.id(), codeParams, "refused: "+err.Error())}
	}
	c := &call{f: f, m: m, s: s, tool: true, name: parts.name, args: parts.arguments.of(m.raw)}
	c.task = parts.task.ok() && !f.passes(m)
	if c.args == nil {
		c.args = []byte("{}")
	}
	if c.s != nil {
		c.name = c.s.cfg.Name + "." + tool
	}
	if strings.Contains(tool, "/") { // it would be decided as a method
		return parcel{line: fault(m.id(), codeParams, "refused: no tool has a slash in its name")}
	}
	c.build = func(id int64, args []byte, token bool) ([]byte, error) {
		if token {
			return parts.withToken().toServer(m, id, tool, args)
		}
		return parts.toServer(m, id, tool, args)
	}
	line := c.answer(ctx)
	return parcel{line, c.free}
}

func (c *call) answer(ctx context.Context) []byte {
	var err error
	if c.s != nil {
		// The definitions are decided before the calls that rely on them.
		if c.at, err = c.s.ready(ctx); err != nil {
			return c.failed(act.Ticket{}, err, "")
		}
		if c.needs != "" && !c.s.has(c.needs) {
			return fault(c.m.id(), codeMethod, "server "+c.s.cfg.Name+" does not offer "+c.m.method)
		}
		if c.task && !c.s.tasks(inSessions) {
			return fault(c.m.id(), codeMethod, "server "+c.s.cfg.Name+" does not offer calls as tasks")
		}
	}
	stop := c.f.waiting(c.m)
	t, err := c.f.m.decide(ctx, c.name, c.args)
	stop()
	if err != nil {
		return c.undecided(t.Code)
	}
	if t.Verdict != act.Allow {
		return c.denied(t)
	}
	return c.carryOut(ctx, t)
}

// decide has something decided as a call of name. On error the ticket has its code.
func (m *Mediator) decide(ctx context.Context, name string, args []byte) (act.Ticket, error) {
	t, err := m.o.Decider.Decide(ctx, act.Request{
		Session: m.o.Session, Principal: m.o.Principal, Verb: act.VerbCall, Tool: name, Args: args,
	})
	if err != nil && ctx.Err() == nil {
		m.o.Log.ErrorContext(ctx, "deciding call", slog.String("tool", name), slog.Any("err", err))
	}
	return t, err
}

// finish records an outcome, also of what was cancelled.
func (m *Mediator) finish(ctx context.Context, t act.Ticket, o act.Outcome) (act.Reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	r, err := m.o.Decider.Finish(ctx, t, o)
	if err != nil {
		m.o.Log.ErrorContext(ctx, "recording outcome", slog.String("tool", t.Tool), slog.Any("err", err))
	}
	return r, err
}

// carryOut dispatches an allowed call and finishes its ticket, whatever happens.
func (c *call) carryOut(ctx context.Context, t act.Ticket) []byte {
	a, err := c.dispatch(ctx, t)
	o := act.Outcome{Body: a.body}
	switch {
	case err != nil:
		o = act.Outcome{Error: err.Error()}
	case a.fault:
		o.Error = "the server answered with an error"
	}
	c.free = a.free
	if err == nil && !a.fault && c.isTask(a.body) {
		return c.created(ctx, t, a.body)
	}
	r, ferr := c.f.m.finish(ctx, t, o)
	switch {
	case ferr != nil:
		return c.nothing(string(act.CodeEvidence), t, errWithheld.Error())
	case err != nil:
		return c.failed(t, err, r.Note)
	case a.fault:
		return c.faulted(ctx, t, r, o.Error)
	case len(r.Body) == 0:
		return c.nothing(string(act.CodeInternal), t, orElse(r.Note, "the result is withheld"))
	}
	body := withNote(r.Body, r.Note)
	if body, err = c.shown(ctx, t, body); err != nil {
		return c.nothing(string(act.CodePolicy), t, err.Error())
	}
	return response(c.m.id(), "result", oneLine(body))
}

// shown makes of a reply what the client reads.
func (c *call) shown(ctx context.Context, t act.Ticket, body []byte) ([]byte, error) {
	if c.seen != nil {
		return c.seen(ctx, t, body)
	}
	body, err := c.pass(ctx, body)
	if err != nil {
		return nil, err
	}
	return c.paged(body)
}

// dispatch sends the call if it may still be sent, and waits for its answer.
func (c *call) dispatch(ctx context.Context, t act.Ticket) (answer, error) {
	switch {
	case c.s == nil:
		return answer{}, errNoServer
	case len(t.Filter.LeaveOut) > 0 && c.at.link.orders == nil:
		return answer{}, errLeaveOut
	}
	limit := c.s.cfg.Ringfence.Timeout
	if limit <= 0 {
		limit = c.f.m.o.CallTimeout
	}
	orders := c.at.link.orders
	if orders != nil {
		limit += commandGrace
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	if err := c.s.enter(ctx); err != nil {
		return answer{}, fmt.Errorf("not sent: %w", err)
	}
	defer c.s.leave()
	if !c.s.stands(c.at) {
		return answer{}, errReplaced
	}
	if c.instead != nil {
		return answer{body: c.instead}, nil
	}
	args := t.Bytes
	if len(args) == 0 { // nothing to dispatch in place of what was received
		args = c.args
	}
	c.says = newSaying(c.s, c.f, c.m)
	c.s.serves(c)
	defer c.s.serves(c)
	var placed int64
	a, err := c.at.link.request(ctx, errand{progress: c.says.progress, asker: c}, func(id int64) ([]byte, error) {
		if orders != nil {
			args = oneLine(args)
			orders.place(ctx, id, t, args)
			placed = id
		}
		return c.build(id, args, orders != nil)
	})
	if placed != 0 {
		orders.withdraw(placed)
	}
	c.says.wait(ctx)
	return a, err
}

// commandGrace is how much longer a call may take than the command that it runs, so
// that the result of one whose time was over still comes.
const commandGrace = 10 * time.Second

// undecided answers a call about which there was no decision, for what the code of
// the denying ticket says, if anything.
func (c *call) undecided(code act.Code) []byte {
	switch code {
	case act.CodeEvidence:
		return c.nothing(string(code), act.Ticket{}, errUnrecorded.Error())
	case act.CodeSession:
		return c.nothing(string(code), act.Ticket{}, errNoSession.Error())
	default:
		return c.nothing(string(act.CodeInternal), act.Ticket{}, errUndecided.Error())
	}
}

func (c *call) denied(t act.Ticket) []byte {
	text := orElse(t.Reason, "denied")
	if c.s == nil && c.tool && t.Code == act.CodeUnknown {
		text += "; " + c.f.m.called(c.name)
	}
	return c.nothing(string(t.Code), t, text)
}

// failed answers a call that came to nothing.
func (c *call) failed(t act.Ticket, err error, note string) []byte {
	code := codeUnavailable
	if errors.Is(err, errTimeout) {
		code = codeTimeout
	}
	text := err.Error()
	if c.s != nil {
		text = c.s.cfg.Name + ": " + text
	}
	if note != "" {
		text += "\n" + note
	}
	return c.nothing(code, t, text)
}

// nothing says, to the model and to programs, why there is no result: as the result of
// a tool, or as an error of any other request.
func (c *call) nothing(code string, t act.Ticket, text string) []byte {
	if c.s != nil { // a transport may quote what the server said
		text = string(c.s.cfg.scrubbed([]byte(text)))
	}
	rules := t.Rules
	if rules == nil {
		rules = []string{}
	}
	meta, err := json.Marshal(struct {
		Code   string   `json:"code"`
		Rules  []string `json:"rules"`
		Ticket string   `json:"ticket"`
	}{code, rules, t.ID})
	if err != nil {
		return fault(c.m.id(), codeInternal, text)
	}
	if !c.tool {
		data := append(append([]byte(`{"ringfence":`), meta...), '}')
		kind := codeDenied
		if code == string(act.CodeUnknown) || code == string(act.CodeInvalid) {
			kind = codeParams
		}
		return response(c.m.id(), "error", faultBody(kind, text, data))
	}
	b := append([]byte(`{"content":[{"type":"text","text":`), quote(text)...)
	b = append(append(b, `}],"isError":true,"_meta":{"ringfence":`...), meta...)
	return response(c.m.id(), "result", append(b, "}}"...))
}

// withNote adds a text for the agent to the content of a result. A result
// without content stays as it is.
func withNote(body []byte, note string) []byte {
	if note == "" {
		return body
	}
	members, err := strictjson.Envelope(body, strictjson.Limits{Size: len(body), Depth: resultDepth})
	if err != nil {
		return body
	}
	for _, v := range members {
		if v.Name != "content" || body[v.Start] != '[' {
			continue
		}
		block := append([]byte(`{"type":"text","text":`), quote(note)...)
		block = append(block, '}')
		if len(bytes.TrimSpace(body[v.Start+1:v.End-1])) > 0 {
			block = append([]byte{','}, block...)
		}
		out, err := strictjson.Splice(body, []strictjson.Edit{{Start: v.End - 1, End: v.End - 1, New: block}})
		if err != nil {
			return body
		}
		return out
	}
	return body
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
