package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
)

// A Session is one open session as its client sees it. It is the act.Decider
// of every transport in this process.
//
// When the connection is lost, calls in flight are denied. The next call
// connects and resumes once with the session's token, and has the newest list of
// each server decided again, because the engine may be another one; while that
// fails, every call is denied.
type Session struct {
	client *Client

	mu     sync.Mutex // held while resuming
	opened Opened
	link   *link             // the link that owns the session in the engine
	lists  map[string][]byte // by server, the newest list that was decided
	boxes  []BoxRecord       // of the servers, the newest of each
	own    []loan.Own        // secrets of this session alone
	lent   map[string]string // what stands for secrets, by their names; nil if nobody asked
}

var _ act.Decider = (*Session)(nil)

// OpenSession opens a session that this process owns.
func (c *Client) OpenSession(ctx context.Context, r OpenRequest) (*Session, error) {
	return c.attach(ctx, methodOpen, r)
}

// ResumeSession takes over the session with the token that it was opened with.
// ErrNoSession if it has ended or the token is not its.
func (c *Client) ResumeSession(ctx context.Context, id, token string) (*Session, error) {
	return c.attach(ctx, methodResume, sessionParams{Session: id, Token: token})
}

func (c *Client) attach(ctx context.Context, method string, params any) (*Session, error) {
	l, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{client: c, link: l}
	if err := do(ctx, l, method, params, &s.opened); err != nil {
		return nil, err
	}
	return s, nil
}

// Opened returns what the engine said when it opened or last resumed s.
func (s *Session) Opened() Opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// Close ends the session for good. It does not resume a lost one: that ends by
// itself when it is not resumed.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return do(ctx, s.link, methodClose, sessionParams{Session: s.opened.Session}, nil)
}

// owner returns a link that owns the session, resuming it if the last one has
// failed.
func (s *Session) owner(ctx context.Context) (*link, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.opened.Session
	if s.link.failed() == nil {
		return s.link, id, nil
	}
	l, err := s.client.connected(ctx)
	if err != nil {
		return nil, "", err
	}
	var o Opened
	if err := do(ctx, l, methodResume, sessionParams{Session: id, Token: s.opened.Token}, &o); err != nil {
		return nil, "", err
	}
	o.Session = id
	if o.Token == "" {
		o.Token = s.opened.Token
	}
	for _, b := range s.boxes {
		if err := do(ctx, l, methodBox, boxParams{id, b}, nil); err != nil {
			return nil, "", fmt.Errorf("recording the box of %s again: %w", b.Server, err)
		}
	}
	if err := s.lend(ctx, l, id); err != nil {
		return nil, "", err
	}
	for _, server := range slices.Sorted(maps.Keys(s.lists)) {
		if err := relist(ctx, l, id, server, s.lists[server]); err != nil {
			return nil, "", fmt.Errorf("deciding the tools of %s again: %w", server, err)
		}
	}
	s.opened, s.link = o, l
	return l, id, nil
}

// relist has a list decided for nobody to see.
func relist(ctx context.Context, l *link, id, server string, list []byte) error {
	p := decideParams{Session: id, Verb: act.VerbList, Tool: server}
	got, err := l.call(ctx, func(n uint64) ([]byte, error) { return encodeDecide(n, p) }, list, nil)
	if err != nil {
		return err
	}
	t, err := decodeTicket(got.header.Result)
	if err != nil || t.Verdict != act.Allow {
		return err // what is denied stays denied, call by call
	}
	f := finishParams{Session: id, Ticket: t.ID}
	_, err = l.call(ctx, func(n uint64) ([]byte, error) { return encodeFinish(n, f), nil }, list, nil)
	return err
}

// keep notes a list that was decided, for the next engine.
func (s *Session) keep(server string, list []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil {
		s.lists = map[string][]byte{}
	}
	s.lists[server] = list
}

// RecordBox puts on record what confines a program that is about to start: the
// server of that name, or what the ticket allowed. box is one line, and report is
// encoded as JSON. On error the program must not start.
func (s *Session) RecordBox(ctx context.Context, server, ticket, box string, report any) error {
	raw, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("recording a box: encoding its report: %w", err)
	}
	b := BoxRecord{Server: server, Ticket: ticket, Box: box, Report: raw}
	l, id, err := s.owner(ctx)
	if err == nil {
		err = do(ctx, l, methodBox, boxParams{id, b}, nil)
	}
	if err != nil {
		return fmt.Errorf("recording a box: %w", err)
	}
	if b.Server != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.boxes = append(slices.DeleteFunc(s.boxes, func(old BoxRecord) bool { return old.Server == b.Server }), b)
	}
	return nil
}

// Decide has the engine decide r, whose Session and Principal are those of s
// whatever it says. On error nothing may happen; the ticket, which denies, then
// has a code if the engine said why.
func (s *Session) Decide(ctx context.Context, r act.Request) (act.Ticket, error) {
	l, id, err := s.owner(ctx)
	if err != nil {
		return undecided(err)
	}
	p := decideParams{Session: id, Verb: r.Verb, Tool: r.Tool, Direct: r.Direct}
	got, err := l.call(ctx, func(n uint64) ([]byte, error) { return encodeDecide(n, p) }, r.Args, func(r reply) { s.disuse(l, id, r) })
	if err != nil {
		return undecided(err)
	}
	t, err := decodeTicket(got.header.Result)
	if err != nil {
		return act.Ticket{}, fmt.Errorf("deciding: reading the ticket: %w", err)
	}
	t.Bytes = got.body
	if r.Verb == act.VerbList {
		s.keep(r.Tool, r.Args)
	}
	return t, nil
}

// undecided is the ticket and the error of a decision that failed with err.
func undecided(err error) (act.Ticket, error) {
	var t act.Ticket
	switch e, _ := errors.AsType[*Error](err); {
	case e == nil:
	case e.Code == CodeUnavailable:
		t.Code = act.CodeEvidence
	case e.Code == CodeNoSession:
		t.Code = act.CodeSession
	case e.Code == CodeUnreachable:
		err = fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	return t, fmt.Errorf("deciding: %w", err)
}

// disuse finishes a ticket that came when nobody waited for it any more.
func (s *Session) disuse(l *link, id string, r reply) {
	t, err := decodeTicket(r.header.Result)
	if err != nil || t.Verdict != act.Allow {
		return // nothing is open; or the engine records it as orphaned
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeStall)
	defer cancel()
	p := finishParams{Session: id, Ticket: t.ID, Error: "not carried out: cancelled before the decision came"}
	_, _ = l.call(ctx, func(n uint64) ([]byte, error) { return encodeFinish(n, p), nil }, nil, nil)
}

// Finish hands in the outcome of t and returns what the agent may see of it. On
// error the outcome must not be shown.
func (s *Session) Finish(ctx context.Context, t act.Ticket, o act.Outcome) (act.Reply, error) {
	l, id, err := s.owner(ctx)
	if err != nil {
		return act.Reply{}, fmt.Errorf("finishing: %w", err)
	}
	p := finishParams{Session: id, Ticket: t.ID, Error: o.Error, Labels: o.Labels, Spent: o.Spent}
	got, err := l.call(ctx, func(n uint64) ([]byte, error) { return encodeFinish(n, p), nil }, o.Body, nil)
	if errors.Is(err, &Error{Code: CodeBusy}) || errors.Is(err, &Error{Code: CodeTooLarge}) {
		// The ticket is still open, and nobody will see the result: that much goes
		// on record.
		p.Error = fmt.Sprintf("a result of %d bytes was withheld: %v", len(o.Body), err)
		_, ferr := l.call(ctx, func(n uint64) ([]byte, error) { return encodeFinish(n, p), nil }, nil, nil)
		err = errors.Join(err, ferr)
	}
	if err != nil {
		return act.Reply{}, fmt.Errorf("finishing: %w", err)
	}
	reply, err := decodeReplyTo(got.header.Result)
	if err != nil {
		return act.Reply{}, fmt.Errorf("finishing: reading the reply: %w", err)
	}
	reply.Body = got.body
	return reply, nil
}
