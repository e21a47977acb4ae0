package mediator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// What kind of thing a result is, and what an error means, is read here and nowhere else:
// by decoded names and values, never by how they are written.

// The kinds of results. One that names none is complete.
const (
	resultComplete = "complete"
	resultInput    = "input_required"
	resultTask     = "task"
)

var (
	resultNames = []string{"resultType", "inputRequests", "requestState"}
	faultNames  = []string{"code", "message", "data"}
)

var (
	errResult = errors.New("it sent a result that cannot be read")
	errFault  = errors.New("the server answered with an error that cannot be read")
)

// readResult returns the kind of a result, and whether it asks for anything. The result is
// one object whose names cannot be taken for others; no kind but the three is any.
func readResult(body []byte) (kind string, asks bool, err error) {
	members, err := resultMembers(body)
	if err == nil {
		err = unambiguous(members, resultNames)
	}
	if err != nil {
		return "", false, fmt.Errorf("%w: %w", errResult, err)
	}
	kind = resultComplete
	seen := map[string]bool{}
	for _, m := range members {
		if slices.Contains(resultNames, m.Name) && seen[m.Name] {
			return "", false, fmt.Errorf("%w: it has %s twice", errResult, m.Name)
		}
		seen[m.Name] = true
		switch m.Name {
		case "inputRequests":
			asks = true
		case "resultType":
			kind, err = strictjson.Text(body[m.Start:m.End])
			if err != nil || kind != resultComplete && kind != resultInput && kind != resultTask {
				return "", false, fmt.Errorf("%w: it is of an unknown type", errResult)
			}
		}
	}
	return kind, asks, nil
}

// resultMembers returns the members of a result. Other names than those that are decided on
// may occur twice, and there may be any number of them: a result is the affair of its tool.
func resultMembers(body []byte) ([]strictjson.Member, error) {
	members, err := strictjson.Envelope(body, strictjson.Limits{Size: len(body), Depth: resultDepth})
	if !errors.Is(err, strictjson.ErrDuplicate) && !errors.Is(err, strictjson.ErrSize) {
		return members, err
	}
	d := json.NewDecoder(bytes.NewReader(body)) // it is JSON of a bounded depth
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	members = nil
	for d.More() {
		before := int(d.InputOffset())
		name, err := d.Token()
		text, ok := name.(string)
		after := int(d.InputOffset())
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil || !ok {
			return nil, fmt.Errorf("reading a member: %w", errors.Join(err, errResult))
		}
		end := int(d.InputOffset())
		escaped := bytes.IndexByte(body[before:after], '\\') >= 0
		members = append(members, strictjson.Member{Name: text, At: before, Escaped: escaped, Start: end - len(value), End: end})
	}
	return members, nil
}

// wantsInput reports whether a result asks for input instead of being one.
func wantsInput(body []byte) bool {
	kind, _, err := readResult(body)
	return err == nil && kind == resultInput
}

// checkComplete refuses a result that is none yet, or that asks for something beside it.
func checkComplete(body []byte) error {
	kind, asks, err := readResult(body)
	switch {
	case err != nil:
		return err
	case kind != resultComplete:
		return fmt.Errorf("%w: it is of the type %s, which it may not be here", errResult, kind)
	case asks:
		return fmt.Errorf("%w: it asks for input and is complete", errResult)
	}
	return nil
}

// faulted answers a call with the error of the server, as far as r leaves it.
func (c *call) faulted(ctx context.Context, t act.Ticket, r act.Reply, otherwise string) []byte {
	if len(r.Body) == 0 || r.Body[0] != '{' {
		return fault(c.m.id(), codeInternal, orElse(r.Note, otherwise))
	}
	body, err := c.fault(ctx, r.Body)
	switch {
	case errors.Is(err, errFault):
		return fault(c.m.id(), codeInternal, err.Error())
	case err != nil:
		return c.nothing(string(act.CodePolicy), t, "the server wants the client to open an address, which is denied")
	}
	return response(c.m.id(), "error", oneLine(body))
}

// fault returns the error object of a server as the client gets it: with an integer for its
// code, a message, perhaps data, and nothing else. What it asks the client to open has been
// decided. An object that is like that already stays as it is. The error is errFault
// if the object has no one reading.
func (c *call) fault(ctx context.Context, body []byte) ([]byte, error) {
	members, err := strictjson.Members(body, strictjson.Limits{Depth: resultDepth})
	if err == nil {
		err = unambiguous(members, faultNames)
	}
	if err != nil {
		return nil, errFault
	}
	var raw, message, data []byte
	same := true
	for _, m := range members {
		switch v := body[m.Start:m.End]; m.Name {
		case "code":
			raw = v
		case "message":
			message = v
		case "data":
			data = v
		default:
			same = false
		}
	}
	code, ok := integer(raw)
	if !ok || message != nil && message[0] != '"' {
		return nil, errFault
	}
	if code == codeRefers && data != nil {
		left, err := c.refers(ctx, data)
		if err != nil {
			return nil, err
		}
		same, data = same && string(left) == string(data), left
	}
	if same && message != nil && strconv.FormatInt(code, 10) == string(raw) {
		return body, nil
	}
	if message == nil {
		message = []byte(`""`)
	}
	out := strconv.AppendInt([]byte(`{"code":`), code, 10)
	out = append(append(out, `,"message":`...), message...)
	if data != nil {
		out = append(append(out, `,"data":`...), data...)
	}
	return append(out, '}'), nil
}

// integer returns the whole number that a JSON number is, however it is written. One that
// readers with doubles could not tell from a whole number counts as that.
func integer(raw []byte) (int64, bool) {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	const most = 1 << 53
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(f) > most || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

// codeRefers is the code of an error that asks the client to open addresses first, from
// 2025-11-25 on.
const codeRefers = -32042

// refers decides on the addresses that the data of such an error asks the client to open,
// as if the server had asked for each, and returns the data as the client may see them.
func (c *call) refers(ctx context.Context, data []byte) ([]byte, error) {
	members, err := strictjson.Members(data, strictjson.Limits{Depth: resultDepth})
	if err == nil {
		err = unambiguous(members, []string{"elicitations"})
	}
	if err != nil {
		return nil, errFault
	}
	i := slices.IndexFunc(members, func(m strictjson.Member) bool { return m.Name == "elicitations" })
	if i < 0 {
		return data, nil
	}
	wanted, err := strictjson.ValuesLimits(data, strictjson.Limits{Depth: resultDepth}, "/elicitations/*")
	if err != nil || len(wanted) > maxInputs || data[members[i].Start] != '[' {
		return nil, errNotGranted
	}
	var edits []strictjson.Edit
	for _, v := range wanted {
		if modeOf(v.Raw) != modeURL {
			return nil, errNotGranted
		}
		t, err := c.grant(ctx, askElicitation, v.Raw)
		if err != nil {
			return nil, err
		}
		// What comes of it is between the person and that address.
		if _, err := c.f.m.finish(ctx, t, act.Outcome{Error: "asked in an error"}); err != nil {
			return nil, err
		}
		edits = append(edits, strictjson.Edit{Start: v.Start, End: v.End, New: t.Bytes})
	}
	return strictjson.Splice(data, edits)
}
