//go:build linux

package net_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A model is a service that runs models, of Anthropic's and of OpenAI's form. It has the
// agent run one command, and then says what it has to say in two events, of which the second
// waits for seen.
type model struct {
	command string        // of a shell; "" is none
	reached chan struct{} // closed when the first event of what it says went out
	seen    chan struct{}

	once   sync.Once
	mu     sync.Mutex
	asked  []string // "POST /v1/messages", each once
	keys   []string // that were sent, each once
	bodies []string
	held   bool // the second event went out
}

// newModel serves one and returns the port.
func newModel(t *testing.T, w *world, command string) (*model, string) {
	t.Helper()
	m := &model{command: command, reached: make(chan struct{}), seen: make(chan struct{})}
	return m, serve(t, &http.Server{Handler: m, TLSConfig: w.config.Clone()})
}

// heard is all that was sent to m.
func (m *model) heard() (asked, keys []string, bodies string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked, m.keys, strings.Join(m.bodies, "\n")
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	m.mu.Lock()
	add := func(all *[]string, s string) {
		if !slices.Contains(*all, s) {
			*all = append(*all, s)
		}
	}
	add(&m.asked, r.Method+" "+r.URL.Path)
	add(&m.keys, r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"))
	m.bodies = append(m.bodies, fmt.Sprint(r.Header)+string(body))
	m.mu.Unlock()
	var q struct {
		Stream bool `json:"stream"`
		Tools  []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err != nil || json.Unmarshal(body, &q) != nil || !q.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"input_tokens":1}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	e := events{w}
	if strings.HasSuffix(r.URL.Path, "/responses") {
		m.responses(e, r, body, len(q.Tools) > 0)
		return
	}
	m.messages(e, r, body, len(q.Tools) > 0)
}

// hold waits until somebody has seen the first event, or has gone.
func (m *model) hold(r *http.Request) {
	m.once.Do(func() { close(m.reached) })
	select {
	case <-m.seen:
		m.mu.Lock()
		m.held = true
		m.mu.Unlock()
	case <-r.Context().Done():
	}
}

// events writes server-sent events.
type events struct{ w http.ResponseWriter }

type object = map[string]any

func (e events) send(v object) {
	data, _ := json.Marshal(v)
	_, _ = fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", v["type"], data)
	_ = http.NewResponseController(e.w).Flush()
}

// messages answers as Anthropic does.
func (m *model) messages(e events, r *http.Request, body []byte, tools bool) {
	e.send(object{"type": "message_start", "message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 100, "output_tokens": 1},
	}})
	stop := "end_turn"
	if tools && m.command != "" && !strings.Contains(string(body), `"tool_result"`) {
		input, _ := json.Marshal(object{"command": m.command, "description": "look"})
		stop = "tool_use"
		e.send(object{"type": "content_block_start", "index": 0, "content_block": object{"type": "tool_use", "id": "toolu_01", "name": "Bash", "input": object{}}})
		e.send(object{"type": "content_block_delta", "index": 0, "delta": object{"type": "input_json_delta", "partial_json": string(input)}})
	} else {
		e.send(object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
		e.send(object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": "the first half"}})
		if tools {
			m.hold(r)
		}
		e.send(object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": ", all done"}})
	}
	e.send(object{"type": "content_block_stop", "index": 0})
	e.send(object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 20}})
	e.send(object{"type": "message_stop"})
}

// responses answers as OpenAI does.
func (m *model) responses(e events, r *http.Request, body []byte, tools bool) {
	e.send(object{"type": "response.created", "response": object{"id": "resp_1"}})
	item := object{"type": "message", "role": "assistant", "id": "msg_1", "content": []any{object{"type": "output_text", "text": "the first half, all done"}}}
	if tools && m.command != "" && !strings.Contains(string(body), `"function_call_output"`) {
		args, _ := json.Marshal(object{"cmd": m.command, "command": m.command})
		item = object{"type": "function_call", "call_id": "call_1", "name": "exec_command", "arguments": string(args)}
	} else if tools {
		e.send(object{"type": "response.output_item.added", "item": object{"type": "message", "role": "assistant", "id": "msg_1", "content": []any{}}})
		e.send(object{"type": "response.output_text.delta", "delta": "the first half"})
		m.hold(r)
	}
	e.send(object{"type": "response.output_item.done", "item": item})
	e.send(object{"type": "response.completed", "response": object{"id": "resp_1", "usage": object{"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}}})
}
