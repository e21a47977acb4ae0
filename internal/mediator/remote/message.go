package remote

import (
	"bytes"
	"errors"
	"strconv"

	"ringfence/internal/act/strictjson"
)

// A message is what this package must know of a line of JSON-RPC.
type message struct {
	raw    []byte
	id     []byte // as it is written; nil in a notification
	method string // "" in a response
	name   string // what Mcp-Name repeats: of a tool, a prompt, a resource or a task
	// version is the revision that a request of 2026-07-28 or later names; "" in all others.
	version string
	result  []byte
	fault   []byte
}

const depth = 256 // nesting of a message, as in the mediator

var errMessage = errors.New("it sent what is no message of JSON-RPC")

// readMessage reads one message, of max bytes at most.
func readMessage(raw []byte, limit int) (message, error) {
	m := message{raw: raw}
	text := bytes.TrimLeft(raw, " \t\r\n")
	if len(text) == 0 || text[0] != '{' {
		return m, errMessage
	}
	members, err := strictjson.Envelope(raw, strictjson.Limits{Size: limit, Depth: depth})
	if err != nil {
		return m, errMessage
	}
	var params []byte
	for _, v := range members {
		value := raw[v.Start:v.End]
		switch v.Name {
		case "id":
			m.id = value
		case "method":
			if m.method, err = strictjson.Text(value); err != nil {
				return m, errMessage
			}
		case "params":
			params = value
		case "result":
			m.result = value
		case "error":
			m.fault = value
		}
	}
	if m.method == "" && (m.id == nil || (m.result == nil) == (m.fault == nil)) {
		return m, errMessage
	}
	if m.method != "" && params != nil {
		m.readParams(params)
	}
	return m, nil
}

// named says which parameter names what a request is about.
var named = map[string]string{
	"tools/call": "/name", "prompts/get": "/name", "resources/read": "/uri",
	"tasks/get": "/taskId", "tasks/update": "/taskId", "tasks/cancel": "/taskId",
}

const metaVersion = "io.modelcontextprotocol/protocolVersion"

func (m *message) readParams(params []byte) {
	text := func(pointer string) string {
		v, ok, err := strictjson.Find(params, pointer)
		if err != nil || !ok {
			return ""
		}
		s, err := v.Text()
		if err != nil {
			return ""
		}
		return s
	}
	if pointer := named[m.method]; pointer != "" {
		m.name = text(pointer)
	}
	if m.id != nil {
		m.version = text("/_meta/" + strictjson.Escape(metaVersion))
	}
}

// number is the id of a request of ours, 0 if it is none.
func (m message) number() int64 {
	n, err := strconv.ParseInt(string(m.id), 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != string(m.id) {
		return 0
	}
	return n
}

func (m message) request() bool { return m.method != "" && m.id != nil }

// idKey makes ids comparable, as the mediator does.
func idKey(raw []byte) string {
	if s, err := strictjson.Text(raw); err == nil {
		return `"` + s
	}
	return string(raw)
}

// oneLine returns raw fit for a line.
func oneLine(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte{'\n'}, []byte{' '}), []byte{'\r'}, []byte{' '})
}

const codeTransport = -32000 // of answers that this package gives in place of the server

// fault is the line that answers a request in place of the server.
func fault(id int64, text string) []byte {
	b := strconv.AppendInt([]byte(`{"jsonrpc":"2.0","id":`), id, 10)
	b = strconv.AppendInt(append(b, `,"error":{"code":`...), codeTransport, 10)
	quoted, err := strictjson.Quote(text)
	if err != nil {
		quoted = []byte(`"the server could not be reached"`)
	}
	return append(append(append(b, `,"message":`...), quoted...), "}}"...)
}
