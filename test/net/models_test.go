//go:build linux

package net_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A model is a service that runs models, of Anthropic's, OpenAI's and Google's form. It has the
// agent run one command, and call one tool, and then says what it has to say in two events, of which the second
// waits for seen.
type model struct {
	command string        // of a shell; "" is none
	tool    string        // that is called then, by the end of its name, with args; "" is none
	args    string        // JSON
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
	add(&m.keys, r.Header.Get("X-Api-Key")+r.Header.Get("Authorization")+r.Header.Get("X-Goog-Api-Key"))
	m.bodies = append(m.bodies, fmt.Sprint(r.Header)+string(body))
	m.mu.Unlock()
	var q asked
	google := strings.Contains(r.URL.Path, ":streamGenerateContent")
	if err = errors.Join(err, json.Unmarshal(body, &q)); err != nil || !q.Stream && !google {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"input_tokens":1}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	e, tools := events{w}, len(q.Tools) > 0
	says := m.next(q, string(body))
	switch {
	case google:
		m.generate(e, r, tools, says)
	case strings.HasSuffix(r.URL.Path, "/responses"):
		m.responses(e, r, tools, says)
	default:
		m.messages(e, r, tools, says)
	}
}

// An asked is what of a request says what there is to call.
type asked struct {
	Stream bool    `json:"stream"`
	Tools  []named `json:"tools"`
}

type named struct {
	Name      string  `json:"name"`
	Tools     []named `json:"tools"`                // of a namespace
	Functions []named `json:"functionDeclarations"` // of Google
}

// A calling is one call of a tool; of no name, it is none.
type calling struct{ space, name, args string }

// next is what m calls in answer to a request.
func (m *model) next(q asked, body string) calling {
	done := max(strings.Count(body, `"type":"tool_result"`), strings.Count(body, `"type":"function_call_output"`), strings.Count(body, `"functionResponse"`))
	type step struct {
		names []string
		args  string
	}
	var script []step
	if m.command != "" {
		args, _ := json.Marshal(object{"command": m.command, "description": "look"})
		if slices.ContainsFunc(q.Tools, func(t named) bool { return t.Name == "exec_command" }) {
			args, _ = json.Marshal(object{"cmd": m.command})
		}
		script = append(script, step{[]string{"Bash", "bash", "exec_command", "run_shell_command"}, string(args)})
	}
	if m.tool != "" {
		if full := deferred(body, m.tool); full != "" { // Claude Code wants to be asked for it first
			script = append(script, step{[]string{"ToolSearch"}, `{"query":"select:` + full + `","max_results":1}`})
		}
		script = append(script, step{[]string{m.tool}, m.args})
	}
	if done >= len(script) {
		return calling{}
	}
	for _, t := range q.Tools {
		for _, in := range slices.Concat([]named{t}, t.Tools, t.Functions) {
			for _, name := range script[done].names {
				if in.Name == name || len(name) > 12 && strings.HasSuffix(in.Name, name) {
					call := calling{name: in.Name, args: script[done].args}
					if len(t.Tools) > 0 {
						call.space = t.Name
					}
					return call
				}
			}
		}
	}
	return calling{}
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
	if v["type"] != nil {
		_, _ = fmt.Fprintf(e.w, "event: %s\n", v["type"])
	}
	_, _ = fmt.Fprintf(e.w, "data: %s\n\n", data)
	_ = http.NewResponseController(e.w).Flush()
}

// messages answers as Anthropic does.
func (m *model) messages(e events, r *http.Request, tools bool, says calling) {
	e.send(object{"type": "message_start", "message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 100, "output_tokens": 1},
	}})
	stop := "end_turn"
	if says.name != "" {
		stop = "tool_use"
		e.send(object{"type": "content_block_start", "index": 0, "content_block": object{"type": "tool_use", "id": "toolu_" + says.name, "name": says.name, "input": object{}}})
		e.send(object{"type": "content_block_delta", "index": 0, "delta": object{"type": "input_json_delta", "partial_json": says.args}})
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
func (m *model) responses(e events, r *http.Request, tools bool, says calling) {
	e.send(object{"type": "response.created", "response": object{"id": "resp_1"}})
	item := object{"type": "message", "role": "assistant", "id": "msg_1", "content": []any{object{"type": "output_text", "text": "the first half, all done"}}}
	if says.name != "" {
		item = object{"type": "function_call", "call_id": "call_" + says.name, "name": says.name, "arguments": says.args}
		if says.space != "" {
			item["namespace"] = says.space
		}
	} else if tools {
		e.send(object{"type": "response.output_item.added", "item": object{"type": "message", "role": "assistant", "id": "msg_1", "content": []any{}}})
		e.send(object{"type": "response.output_text.delta", "delta": "the first half"})
		m.hold(r)
	}
	e.send(object{"type": "response.output_item.done", "item": item})
	e.send(object{"type": "response.completed", "response": object{"id": "resp_1", "usage": object{"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}}})
}

// generate answers as Google does.
func (m *model) generate(e events, r *http.Request, tools bool, says calling) {
	part := object{"text": "the first half, all done"}
	if says.name != "" {
		part = object{"functionCall": object{"name": says.name, "args": json.RawMessage(says.args)}}
	} else if tools {
		m.hold(r)
	}
	e.send(object{
		"candidates":    []any{object{"content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120},
	})
}

// deferred is the whole name of a tool that Claude Code tells of by its name alone, "" if it
// does not.
func deferred(body, tool string) string {
	return regexp.MustCompile(`mcp__[a-zA-Z_]*__` + tool).FindString(body)
}
