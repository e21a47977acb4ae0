package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// Questions returns the open questions, oldest first.
func (c *Client) Questions(ctx context.Context) ([]Question, error) {
	var qs []Question
	err := c.stream(ctx, methodQuestions, nothing{}, func(r reply) error {
		var q Question
		if err := json.Unmarshal(r.header.Result, &q); err != nil {
			return fmt.Errorf("reading a question: %w", err)
		}
		qs = append(qs, q)
		return nil
	})
	return qs, err
}

// Question returns one open question; ErrNotFound if there is none of that id.
func (c *Client) Question(ctx context.Context, id string) (Question, error) {
	var q Question
	return q, c.do(ctx, methodQuestion, questionParams{ID: id}, &q)
}

// Answer answers a question as the person whose process this is. A yes quotes
// the mark of the question as it was shown.
//
// Errors: ErrNotFound (answered, expired), ErrRefused (this person may not).
func (c *Client) Answer(ctx context.Context, id string, choice Choice) error {
	return c.do(ctx, methodAnswer, questionParams{ID: id, Choice: choice}, nil)
}

// WatchQuestions passes every event at the desk to each, beginning with an
// "asked" event for every open question, until ctx ends or each fails.
func (c *Client) WatchQuestions(ctx context.Context, each func(QuestionEvent) error) error {
	return c.stream(ctx, methodWatch, nothing{}, func(r reply) error {
		var e QuestionEvent
		if err := json.Unmarshal(r.header.Result, &e); err != nil {
			return fmt.Errorf("reading an event: %w", err)
		}
		return each(e)
	})
}

// ToolsList returns what the engine knows of tool definitions.
func (c *Client) ToolsList(ctx context.Context, q ToolQuery) ([]ToolPin, error) {
	var ps []ToolPin
	return ps, c.do(ctx, methodToolsList, q, &ps)
}

// ToolsReview is ToolsList with definitions and differences.
func (c *Client) ToolsReview(ctx context.Context, q ToolQuery) ([]ToolPin, error) {
	var ps []ToolPin
	return ps, c.do(ctx, methodToolsReview, q, &ps)
}

// ToolsPin approves or rejects a definition and returns what is known of the
// tool then.
func (c *Client) ToolsPin(ctx context.Context, r PinRequest) (ToolPin, error) {
	var p ToolPin
	return p, c.do(ctx, methodToolsPin, r, &p)
}

// RecordReview puts on record what is about to be done with what a box changed. On
// error it must not be done; ErrRefused says that another person must do it.
func (c *Client) RecordReview(ctx context.Context, r ReviewRecord) error {
	return c.do(ctx, methodReview, r, nil)
}

// LedgerEntries passes entries to each, oldest first, as they are stored.
func (c *Client) LedgerEntries(ctx context.Context, q LedgerQuery, each func(entry json.RawMessage) error) error {
	return c.stream(ctx, methodLedgerEntries, q, func(r reply) error { return each(r.body) })
}

// LedgerExport writes the export of one session to w.
func (c *Client) LedgerExport(ctx context.Context, session string, w io.Writer) error {
	return c.stream(ctx, methodLedgerExport, sessionParams{Session: session}, func(r reply) error {
		_, err := w.Write(r.body)
		return err
	})
}

// LedgerVerify has the engine verify its own record.
func (c *Client) LedgerVerify(ctx context.Context) (Verification, error) {
	var v Verification
	return v, c.do(ctx, methodLedgerVerify, nothing{}, &v)
}

// LedgerSessions returns the sessions of the record, oldest first.
func (c *Client) LedgerSessions(ctx context.Context) ([]SessionInfo, error) {
	var ss []SessionInfo
	return ss, c.do(ctx, methodLedgerSessions, nothing{}, &ss)
}

// Status returns how the engine is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.do(ctx, methodStatus, nothing{}, &s)
}

// Stop asks the engine to stop. It refuses while sessions are open, unless
// force.
func (c *Client) Stop(ctx context.Context, force bool) error {
	return c.do(ctx, methodStop, stopParams{Force: force}, nil)
}

// newerVersions is how many versions of the protocol after ours StopAny knows of.
const newerVersions = 16

// StopAny is [Client.Stop] for the engine that runs, whatever its version: hello and
// stop are the same in all of them, so that another program can always be ended.
func StopAny(ctx context.Context, o Options, force bool) error {
	var err error
	for i := range Version + newerVersions {
		if o.version = Version - i; o.version < 1 {
			o.version = i + 1
		}
		var c *Client
		if c, err = Connect(ctx, o); err == nil {
			return errors.Join(c.Stop(ctx, force), c.Close())
		}
		if !errors.Is(err, ErrVersion) {
			break
		}
	}
	return err
}

// readStream greets the engine on nc, sends one request and passes on the parts
// of its reply.
func (c *Client) readStream(nc net.Conn, method string, params any, part func(reply) error) error {
	l := &link{out: writer{nc: nc, to: nc}}
	r := bufio.NewReaderSize(nc, 16<<10)
	if _, err := l.greet(r, Version); err != nil {
		return err
	}
	head, err := encodeRequest(1, method, params)
	if err != nil {
		return err
	}
	if err := l.out.frame(head, nil, writeStall); err != nil {
		return unreachable(err)
	}
	for {
		h, body, err := readHeader(r, maxReply)
		switch {
		case err != nil:
			return unreachable(err)
		case h.Error != nil:
			return h.Error
		case !h.More:
			return nil
		}
		if err := part(reply{h, body}); err != nil {
			return err
		}
	}
}
