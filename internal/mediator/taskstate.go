package mediator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// What a server says of a task is decided like the answer to a call: a result within it is a
// result, an error an error, and what it asks for is asked.

// stateNames are the members of the state of a task that are decided on.
var stateNames = []string{"taskId", "status", "result", "error", "inputRequests"}

// statusWith is the one status beside which a member may stand.
var statusWith = map[string]string{"result": "completed", "error": "failed", "inputRequests": "input_required"}

// maxTaskInputs bounds what one task may ask for, from its making to its end.
const maxTaskInputs = 4 * maxInputs

// readState returns the status of a task, and what stands at statusWith[status], which is
// zero if nothing does. Anything that stands beside another status is refused: nobody would
// decide it.
func readState(k *task, body []byte) (status string, part span, err error) {
	if kind, _, err := readResult(body); err != nil || kind != resultComplete {
		return "", span{}, errors.Join(fmt.Errorf("%w: it is not the state of a task", errResult), err)
	}
	members, err := strictjson.Envelope(body, strictjson.Limits{Size: len(body), Depth: resultDepth})
	if err == nil {
		err = unambiguous(members, stateNames)
	}
	if err != nil {
		return "", span{}, fmt.Errorf("%w: %w", errResult, err)
	}
	of := ""
	for _, m := range members {
		raw := body[m.Start:m.End]
		switch {
		case m.Name == "status":
			status, err = strictjson.Text(raw)
		case statusWith[m.Name] == "" || string(raw) == "null":
		case of != "" || k.f != nil: // in sessions no state has any
			err = errors.New("more than its status allows")
		default:
			of, part = statusWith[m.Name], span{m.Start, m.End}
		}
		if err != nil {
			return "", span{}, fmt.Errorf("%w: the member %s: %w", errResult, m.Name, err)
		}
	}
	if !slices.Contains(statuses, status) || of != "" && of != status {
		return "", span{}, fmt.Errorf("%w: the status %s is none, or has members of another", errResult, clip(status))
	}
	return status, part, nil
}

// aboutTask makes of an inspected answer about k what the client reads: with our id, and
// with the outcome of the call as the Decider leaves it.
func (c *call) aboutTask(ctx context.Context, k *task, body []byte) ([]byte, error) {
	if c.m.method != "tasks/get" {
		if err := checkComplete(body); err != nil {
			return nil, err
		}
	}
	switch {
	case c.m.method == "tasks/result":
		body, err := c.result(ctx, k, body)
		if err != nil {
			return nil, err
		}
		return renameTask(body, "/_meta/io.modelcontextprotocol~1related-task/taskId", k.id)
	case c.m.method == "tasks/update":
		return []byte(`{}`), nil // it says nothing but that it came
	case c.m.method == "tasks/cancel" && k.f == nil:
		_, err := c.f.m.settle(ctx, k, act.Outcome{Error: errCancelled.Error()})
		return []byte(`{}`), err
	}
	status, part, err := readState(k, body)
	if err != nil {
		return nil, err
	}
	c.f.m.mu.Lock()
	k.state = stateOf(body)
	c.f.m.mu.Unlock()
	if c.m.method == "tasks/cancel" {
		_, err = c.f.m.settle(ctx, k, act.Outcome{Error: errCancelled.Error()})
	} else {
		body, err = c.outcome(ctx, k, body, status, part)
	}
	if err != nil {
		return nil, err
	}
	return renameTask(body, "/taskId", k.id)
}

// outcome settles k with what the state in body says that came of it.
func (c *call) outcome(ctx context.Context, k *task, body []byte, status string, part span) ([]byte, error) {
	var left []byte
	var err error
	switch {
	case status == "working", k.f != nil && status != "cancelled":
		return body, nil
	case status == "input_required" && part.ok():
		return c.wants(ctx, k, body)
	case status == "input_required":
		return body, nil
	case status == "completed" && !part.ok():
		return nil, errors.New("the task is completed without a result")
	case status == "completed":
		left, err = c.result(ctx, k, part.of(body))
	case status == "failed" && part.ok():
		left, err = c.failure(ctx, k, part.of(body))
	default:
		_, err = c.f.m.settle(ctx, k, act.Outcome{Error: "its task " + status})
		return body, err
	}
	if err != nil {
		return nil, err
	}
	return strictjson.Splice(body, []strictjson.Edit{{Start: part.start, End: part.end, New: left}})
}

// result settles k with the result of its call, and returns what the client reads of that.
func (c *call) result(ctx context.Context, k *task, raw []byte) ([]byte, error) {
	if err := checkComplete(raw); err != nil {
		_, _ = c.f.m.settle(ctx, k, act.Outcome{Error: err.Error()}) // it is logged
		return nil, err
	}
	left, err := c.f.m.settle(ctx, k, act.Outcome{Body: raw})
	if err == nil {
		err = checkComplete(left)
	}
	if err != nil {
		return nil, err
	}
	whole := &call{f: c.f, m: c.m, s: k.s, tool: true}
	return whole.paged(left)
}

// failure settles k with the error of its call, and returns what the client reads of that.
func (c *call) failure(ctx context.Context, k *task, raw []byte) ([]byte, error) {
	left, err := c.f.m.settle(ctx, k, act.Outcome{Body: raw, Error: "the server answered with an error"})
	if err != nil {
		return nil, err
	}
	left, err = c.fault(ctx, left)
	if err != nil && !errors.Is(err, errFault) {
		return nil, errAddressDenied
	}
	return left, err
}

var errAddressDenied = errors.New("the server wants the client to open an address, which is denied")

// wants decides what a task asks for that it has not asked before.
func (c *call) wants(ctx context.Context, k *task, body []byte) ([]byte, error) {
	fresh := &passed{tickets: map[string]act.Ticket{}}
	c.f.m.mu.Lock()
	seen := maps.Clone(k.seen)
	c.f.m.mu.Unlock()
	edits, err := c.grantAll(ctx, body, fresh, seen)
	if err == nil {
		body, err = strictjson.Splice(body, edits)
	}
	if err == nil {
		err = c.f.m.keepAsked(k, fresh, body)
	}
	if err != nil {
		c.f.m.drop(fresh, err)
		return nil, err
	}
	c.f.m.drop(fresh, errors.New("it was asked twice at once"))
	return body, nil
}

// keepAsked moves what was granted to k into it; what another request has moved before
// stays in fresh.
func (m *Mediator) keepAsked(k *task, fresh *passed, body []byte) error {
	shown := map[string][]byte{}
	for key := range fresh.tickets {
		v, _, err := strictjson.Find(body, "/inputRequests/"+strictjson.Escape(key))
		if err != nil {
			return err
		}
		shown[key] = bytes.Clone(v.Raw)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(k.seen)+len(shown) > maxTaskInputs {
		return fmt.Errorf("the task wants more than %d things", maxTaskInputs)
	}
	for key, raw := range shown {
		if k.seen[key] == nil {
			k.asked[key], k.seen[key] = fresh.tickets[key], raw
			delete(fresh.tickets, key)
		}
	}
	return nil
}
