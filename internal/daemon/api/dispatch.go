package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"ringfence/internal/act"
)

// A request is one request under way in the engine.
type request struct {
	conn   *serverConn
	header header
	body   []byte
	ctx    context.Context
}

// A result is the final reply of a method: JSON, and a raw body.
type result struct {
	value any    // to be encoded; nil for {}
	json  []byte // or encoded already
	body  []byte
}

// A method carries out one request with the parameters in its header.
type method func(*request, Handler) (result, error)

// methods is every method but hello and cancel.
var methods = map[string]method{
	methodOpen:           with(open),
	methodResume:         with(resume),
	methodClose:          with(closeSession),
	methodBox:            with(recordBox),
	methodDecide:         decide,
	methodFinish:         finish,
	methodQuestions:      with(questions),
	methodQuestion:       with(question),
	methodAnswer:         with(answerQuestion),
	methodWatch:          with(watch),
	methodToolsList:      with(toolsList),
	methodToolsReview:    with(toolsReview),
	methodToolsPin:       with(toolsPin),
	methodAdmit:          with(admitServer),
	methodReview:         with(recordReview),
	methodLedgerEntries:  with(ledgerEntries),
	methodLedgerExport:   with(ledgerExport),
	methodLedgerVerify:   with(ledgerVerify),
	methodLedgerSessions: with(ledgerSessions),
	methodSecretSet:      with(secretSet),
	methodSecretList:     with(secretList),
	methodSecretRemove:   with(secretRemove),
	methodSentinels:      with(sentinels),
	methodTokenLoad:      with(tokenLoad),
	methodTokenSave:      with(tokenSave),
	methodTokenDelete:    with(tokenDelete),
	methodMint:           with(mint),
	methodAuthority:      with(authority),
	methodGrants:         with(grants),
	methodGrantRevoke:    with(grantRevoke),
	methodClause:         with(acceptClause),
	methodGrips:          with(grips),
	methodStatus:         with(status),
	methodStop:           with(stop),
}

// guestMethods are the methods of guests.
var guestMethods = map[string]bool{methodQuestions: true, methodQuestion: true, methodAnswer: true, methodWatch: true}

// with makes a method of a function that takes decoded parameters.
func with[P any](f func(*request, Handler, P) (result, error)) method {
	return func(r *request, h Handler) (result, error) {
		var p P
		if err := decode(r.header.Params, &p); err != nil {
			return result{}, Errorf(CodeBadRequest, "reading the parameters of %s: %v", r.header.Method, err)
		}
		return f(r, h, p)
	}
}

// answer carries out r and writes its final reply.
func (r *request) answer(run method) error {
	res, err := run(r, r.conn.server.handler)
	if err != nil && errors.Is(context.Cause(r.ctx), errCancelled) {
		err = errCancelled
	}
	r.conn.end(r.header.ID)
	if err != nil {
		return r.conn.fail(r.header.ID, err)
	}
	if res.value == nil {
		res.value = nothing{}
	}
	return r.conn.send(header{ID: r.header.ID, Result: res.json}, res.value, res.body)
}

// part writes one part of a stream.
func (r *request) part(value any, body []byte) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	return r.conn.send(header{ID: r.header.ID, More: true}, value, body)
}

// owned refuses sessions that the connection does not own.
func (r *request) owned(session string) error {
	if r.conn.server.owns(session, r.conn) {
		return nil
	}
	return Errorf(CodeNoSession, "session %q is not open on this connection", session)
}

func open(r *request, h Handler, p OpenRequest) (result, error) {
	o, err := h.OpenSession(r.ctx, r.conn.caller, p)
	if err != nil {
		return result{}, err
	}
	r.conn.server.own(o.Session, r.conn)
	return result{value: o}, nil
}

func resume(r *request, h Handler, p sessionParams) (result, error) {
	s := r.conn.server
	s.handover.Lock()
	defer s.handover.Unlock()
	o, err := h.ResumeSession(r.ctx, r.conn.caller, p.Session, p.Token)
	if err != nil {
		return result{}, err
	}
	s.own(o.Session, r.conn)
	return result{value: o}, nil
}

func closeSession(r *request, h Handler, p sessionParams) (result, error) {
	if err := r.owned(p.Session); err != nil {
		return result{}, err
	}
	if err := h.CloseSession(r.ctx, r.conn.caller, p.Session); err != nil {
		return result{}, err
	}
	r.conn.server.release(p.Session, r.conn)
	return result{}, nil
}

func recordBox(r *request, h Handler, p boxParams) (result, error) {
	if err := r.owned(p.Session); err != nil {
		return result{}, err
	}
	return result{}, h.RecordBox(r.ctx, r.conn.caller, p.Session, p.BoxRecord)
}

// ticketRoom is what a reply has around its ticket, in bytes, and more.
const ticketRoom = 1 << 10

func decide(r *request, h Handler) (result, error) {
	p, err := decodeDecide(r.header.Params)
	if err != nil {
		return result{}, Errorf(CodeBadRequest, "reading the parameters of decide: %v", err)
	}
	if err := r.owned(p.Session); err != nil {
		return result{}, err
	}
	t, err := h.Decide(r.ctx, r.conn.caller, act.Request{Session: p.Session, Verb: p.Verb, Tool: p.Tool, Args: r.body, Direct: p.Direct})
	if err != nil {
		return result{}, err
	}
	raw, err := encodeTicket(t)
	if err == nil && len(raw) > maxReply-ticketRoom {
		err = Errorf(CodeTooLarge, "the ticket has %d bytes; at most %d fit", len(raw), maxReply-ticketRoom)
	}
	if err == nil {
		return result{json: raw, body: t.Bytes}, nil
	}
	err = fmt.Errorf("encoding the ticket: %w", err)
	if t.Verdict == act.Allow { // nobody will carry it out
		_, ferr := h.Finish(r.ctx, r.conn.caller, t.Session, t.ID, act.Outcome{Error: err.Error()})
		err = errors.Join(err, ferr)
	}
	return result{}, err
}

func finish(r *request, h Handler) (result, error) {
	p, err := decodeFinish(r.header.Params)
	if err != nil {
		return result{}, Errorf(CodeBadRequest, "reading the parameters of finish: %v", err)
	}
	if err := r.owned(p.Session); err != nil {
		return result{}, err
	}
	reply, err := h.Finish(r.ctx, r.conn.caller, p.Session, p.Ticket, act.Outcome{Body: r.body, Error: p.Error, Labels: p.Labels, Spent: p.Spent})
	if err != nil {
		return result{}, err
	}
	return result{json: encodeReplyTo(reply), body: reply.Body}, nil
}

func questions(r *request, h Handler, _ nothing) (result, error) {
	qs, err := h.Questions(r.ctx, r.conn.caller)
	for _, q := range qs {
		if err == nil {
			err = r.part(q, nil)
		}
	}
	return result{}, err
}

func question(r *request, h Handler, p questionParams) (result, error) {
	return valued(h.Question(r.ctx, r.conn.caller, p.ID))
}

func answerQuestion(r *request, h Handler, p questionParams) (result, error) {
	return result{}, h.AnswerQuestion(r.ctx, r.conn.caller, p.ID, p.Choice)
}

func watch(r *request, h Handler, _ nothing) (result, error) {
	return result{}, h.WatchQuestions(r.ctx, r.conn.caller, func(e QuestionEvent) error { return r.part(e, nil) })
}

func toolsList(r *request, h Handler, p ToolQuery) (result, error) {
	return valued(h.ToolsList(r.ctx, r.conn.caller, p))
}

func toolsReview(r *request, h Handler, p ToolQuery) (result, error) {
	return valued(h.ToolsReview(r.ctx, r.conn.caller, p))
}

func toolsPin(r *request, h Handler, p PinRequest) (result, error) {
	return valued(h.ToolsPin(r.ctx, r.conn.caller, p))
}

func recordReview(r *request, h Handler, p ReviewRecord) (result, error) {
	return result{}, h.RecordReview(r.ctx, r.conn.caller, p)
}

func ledgerEntries(r *request, h Handler, p LedgerQuery) (result, error) {
	return result{}, h.LedgerEntries(r.ctx, r.conn.caller, p, func(entry json.RawMessage) error { return r.part(nil, entry) })
}

func ledgerExport(r *request, h Handler, p sessionParams) (result, error) {
	w := &chunks{send: func(b []byte) error { return r.part(nil, b) }}
	if err := h.LedgerExport(r.ctx, r.conn.caller, p.Session, w); err != nil {
		return result{}, err
	}
	if err := w.flush(); err != nil {
		return result{}, fmt.Errorf("sending the export: %w", err)
	}
	return result{}, nil
}

func ledgerVerify(r *request, h Handler, _ nothing) (result, error) {
	return valued(h.LedgerVerify(r.ctx, r.conn.caller))
}

func ledgerSessions(r *request, h Handler, _ nothing) (result, error) {
	return valued(h.LedgerSessions(r.ctx, r.conn.caller))
}

func status(r *request, h Handler, _ nothing) (result, error) {
	return valued(h.Status(r.ctx, r.conn.caller))
}

func stop(r *request, h Handler, p stopParams) (result, error) {
	return result{}, h.Stop(r.ctx, r.conn.caller, p.Force)
}

func valued[T any](v T, err error) (result, error) {
	if err != nil {
		return result{}, err
	}
	return result{value: v}, nil
}

// chunks gathers small writes into parts of a stream.
type chunks struct {
	send func([]byte) error
	buf  []byte
}

func (c *chunks) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), chunkSize-len(c.buf))
		c.buf = append(c.buf, p[:k]...)
		p = p[k:]
		if len(c.buf) == chunkSize {
			if err := c.flush(); err != nil {
				return n - len(p) - k, err
			}
		}
	}
	return n, nil
}

func (c *chunks) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	err := c.send(c.buf)
	c.buf = c.buf[:0]
	return err
}
