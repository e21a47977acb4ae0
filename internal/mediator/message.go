package mediator

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
)

// A span is a value at its place in a line. The zero span is no value.
type span struct{ start, end int }

func (s span) ok() bool { return s.end > 0 }

// of returns the bytes of s in raw, nil if s is no value.
func (s span) of(raw []byte) []byte {
	if !s.ok() {
		return nil
	}
	return raw[s.start:s.end:s.end]
}

// A message is one JSON-RPC message: the line that was received, and where its
// parts are in it.
type message struct {
	raw    []byte
	method string
	idAt   span
	params span
	result span
	fault  span  // the error object
	metaAt span  // params._meta, an object; of what a client sent only
	odd    error // why _meta has more than one reading; nil if it has one

	x  *exchange // of a request under way; nil otherwise
	in int64     // the request of ours in whose answer a server sent it; 0 if that is not known
}

func (m message) id() []byte { return m.idAt.of(m.raw) }

// request and response say what m is; a message that is neither is a
// notification.
func (m message) request() bool  { return m.method != "" && m.idAt.ok() }
func (m message) response() bool { return m.method == "" }

var (
	errEnvelope = errors.New("not a JSON-RPC 2.0 message")
	errLookLike = errors.New("a name that another reader may take for a known one")
)

// readClient reads a line of the client, which must be strict JSON throughout.
func readClient(line []byte) (message, error) {
	members, err := strictjson.Members(line, strictjson.Limits{})
	if err != nil {
		return message{}, err
	}
	if err := unambiguous(members, envelopeNames); err != nil {
		return message{}, err
	}
	m, err := envelope(line, members)
	if err == nil {
		m.readMeta()
	}
	return m, err
}

// readServer reads a line of a server. What is within its result is for the
// Decider to judge.
func readServer(line []byte, limit int) (message, error) {
	members, err := strictjson.Envelope(line, strictjson.Limits{Size: limit, Depth: resultDepth})
	if err != nil {
		return message{}, err
	}
	return envelope(line, members)
}

var (
	envelopeNames = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	callNames     = []string{"name", "arguments", "_meta", "task"}
	metaNames     = []string{"progressToken"}
)

// unambiguous refuses members that a reader which ignores case, or one that
// does not decode names, would take for others than this package does.
func unambiguous(members []strictjson.Member, known []string) error {
	for _, m := range members {
		for _, k := range known {
			if m.Name == k && m.Escaped || m.Name != k && strings.EqualFold(m.Name, k) {
				return fmt.Errorf("offset %d: %w: %q", m.At, errLookLike, k)
			}
		}
	}
	return nil
}

func envelope(line []byte, members []strictjson.Member) (message, error) {
	m := message{raw: line}
	var version string
	for _, v := range members {
		at := span{v.Start, v.End}
		var err error
		switch v.Name {
		case "jsonrpc":
			version, err = strictjson.Text(at.of(line))
		case "method":
			if m.method, err = strictjson.Text(at.of(line)); err == nil && m.method == "" {
				err = errEnvelope
			}
		case "id":
			m.idAt = at
		case "params":
			m.params = at
		case "result":
			m.result = at
		case "error":
			m.fault = at
		}
		if err != nil {
			return message{}, fmt.Errorf("%w: %s", errEnvelope, v.Name)
		}
	}
	return m, m.check(version)
}

func (m message) check(version string) error {
	switch {
	case version != "2.0":
		return fmt.Errorf(`%w: "jsonrpc" is not "2.0"`, errEnvelope)
	case m.method == "" && !m.idAt.ok():
		return fmt.Errorf("%w: neither method nor id", errEnvelope)
	case m.method == "" && m.result.ok() == m.fault.ok():
		return fmt.Errorf("%w: a response has a result or an error", errEnvelope)
	case m.method != "" && (m.result.ok() || m.fault.ok()):
		return fmt.Errorf("%w: a request has no result", errEnvelope)
	case m.request() && !isID(m.id()):
		return fmt.Errorf("%w: an id is a string or a number", errEnvelope)
	case m.method != "" && m.params.ok() && m.raw[m.params.start] != '{':
		return fmt.Errorf("%w: params are an object", errEnvelope)
	case m.fault.ok() && m.raw[m.fault.start] != '{':
		return fmt.Errorf("%w: an error is an object", errEnvelope)
	}
	return nil
}

func isID(raw []byte) bool {
	return len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// idKey makes ids comparable: strings by what they say, numbers by how they are
// written.
func idKey(raw []byte) string {
	if s, err := strictjson.Text(raw); err == nil {
		return `"` + s
	}
	return string(raw)
}

// A callParts is where the parts of a tools/call are in its line.
type callParts struct {
	name      string
	nameAt    span
	arguments span
	meta      span
	token     span
	task      span
	always    bool // the server gets a token also where the client gave none
}

// withToken returns p for a server that must know which call it serves.
func (p callParts) withToken() callParts {
	p.always = true
	return p
}

// readCall finds the parts of a tools/call that readClient accepted.
func readCall(m message) (callParts, error) {
	var p callParts
	if !m.params.ok() {
		return p, errors.New("params are missing")
	}
	members, err := within(m.raw, m.params, callNames)
	if err != nil {
		return p, err
	}
	for _, v := range members {
		at := span{v.Start, v.End}
		switch v.Name {
		case "name":
			p.nameAt = at
			if p.name, err = strictjson.Text(at.of(m.raw)); err != nil {
				return p, errors.New("the name of the tool is not a string")
			}
		case "arguments":
			if p.arguments = at; m.raw[at.start] != '{' {
				return p, errors.New("arguments are not an object")
			}
		case "task":
			if p.task = at; m.raw[at.start] != '{' {
				return p, errors.New("task is not an object")
			}
		case "_meta":
			p.meta = at
			if p.token, err = readToken(m.raw, at); err != nil {
				return p, err
			}
		}
	}
	if p.name == "" {
		return p, errors.New("the name of the tool is missing")
	}
	return p, nil
}

func readToken(raw []byte, meta span) (span, error) {
	members, err := within(raw, meta, metaNames)
	if err != nil {
		return span{}, fmt.Errorf("_meta: %w", err)
	}
	for _, v := range members {
		if v.Name != "progressToken" {
			continue
		}
		at := span{v.Start, v.End}
		if !isID(at.of(raw)) {
			return span{}, errors.New("a progress token is a string or a number")
		}
		return at, nil
	}
	return span{}, nil
}

// within returns the members of the object at s, placed in the whole of raw.
func within(raw []byte, s span, known []string) ([]strictjson.Member, error) {
	members, err := strictjson.Members(s.of(raw), strictjson.Limits{})
	if err != nil {
		return nil, err
	}
	for i := range members {
		members[i].At += s.start
		members[i].Start += s.start
		members[i].End += s.start
	}
	return members, unambiguous(members, known)
}

// toServer returns the line of a call as the server gets it: without what is not decided.
func (p callParts) toServer(m message, id int64, tool string, arguments []byte) ([]byte, error) {
	left, err := m.only(callNames)
	if err != nil {
		return nil, err
	}
	if &left.raw[0] != &m.raw[0] {
		always := p.always
		if p, err = readCall(left); err != nil {
			return nil, err
		}
		m, p.always = left, always
	}
	number := strconv.AppendInt(nil, id, 10)
	name, err := strictjson.Quote(tool)
	if err != nil {
		return nil, err
	}
	if tool == p.name {
		name = p.nameAt.of(m.raw) // as it was written
	}
	arguments = oneLine(arguments)
	edits := []strictjson.Edit{
		{Start: m.idAt.start, End: m.idAt.end, New: number},
		{Start: p.nameAt.start, End: p.nameAt.end, New: name},
		{Start: len(m.raw), End: len(m.raw), New: []byte{'\n'}},
	}
	token := append([]byte(`"progressToken":`), number...)
	switch {
	case p.token.ok():
		edits = append(edits, strictjson.Edit{Start: p.token.start, End: p.token.end, New: number})
	case p.always && !p.meta.ok():
		edits[1].New = append(append(append(slices.Clip(name), `,"_meta":{`...), token...), '}')
	case p.always:
		if len(bytes.Trim(p.meta.of(m.raw), "{} \t\r")) > 0 {
			token = append(token, ',')
		}
		edits = append(edits, strictjson.Edit{Start: p.meta.start + 1, End: p.meta.start + 1, New: token})
	}
	switch {
	case p.arguments.ok():
		if !bytes.Equal(p.arguments.of(m.raw), arguments) {
			edits = append(edits, strictjson.Edit{Start: p.arguments.start, End: p.arguments.end, New: arguments})
		}
	case string(arguments) != "{}":
		edits[1].New = append(append(slices.Clip(edits[1].New), `,"arguments":`...), arguments...)
	}
	return strictjson.Splice(m.raw, edits)
}

// oneLine returns raw fit for a line. A newline in JSON stands between tokens,
// where a space says the same.
func oneLine(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 {
		return raw
	}
	return bytes.ReplaceAll(raw, []byte{'\n'}, []byte{' '})
}

// response builds a line that answers id; kind is "result" or "error".
func response(id []byte, kind string, body []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	b := make([]byte, 0, len(id)+len(body)+40)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	b = append(b, `,"`...)
	b = append(b, kind...)
	b = append(b, `":`...)
	b = append(b, body...)
	return append(b, "}\n"...)
}

// notification builds a line without an id; params may be nil.
func notification(method string, params []byte) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","method":"`), method...)
	b = append(b, '"')
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}
	return append(b, "}\n"...)
}

// The codes of JSON-RPC and MCP that this package answers with.
const (
	codeParse       = -32700
	codeRequest     = -32600
	codeMethod      = -32601
	codeParams      = -32602
	codeInternal    = -32603
	codeBusy        = -32000
	codeDenied      = -32010 // ours, of requests that are no calls of tools: denied, or it came to nothing
	codeUnsupported = -32022 // UnsupportedProtocolVersion of 2026-07-28
)

// fault builds a line that refuses id.
func fault(id []byte, code int, text string) []byte {
	return response(id, "error", faultBody(code, text, nil))
}

func faultBody(code int, text string, data []byte) []byte {
	b := append([]byte(`{"code":`), strconv.Itoa(code)...)
	b = append(append(b, `,"message":`...), quote(text)...)
	if data != nil {
		b = append(append(b, `,"data":`...), data...)
	}
	return append(b, '}')
}

// quote writes s as a JSON string; what cannot be written is replaced.
func quote(s string) []byte {
	b, err := strictjson.Quote(strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD"))
	if err != nil {
		return []byte(`""`)
	}
	return b
}
