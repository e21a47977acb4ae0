//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A provider is a model provider that follows a script, and answers the n-th turn of
// a conversation that has tools with the n-th line of the script. Over HTTP it speaks
// the messages API, streamed or not, and what provider_more_test.go adds.
type provider struct {
	script []turn
	mu     sync.Mutex
	tools  []string // what the model may call, as the agent knows it
	seen   []string // what came back for each tool call, in order
	server *httptest.Server
}

// A turn is what the model says: text, or one tool call.
type turn struct {
	Text string
	Tool string // suffix of the tool's name as the agent knows it
	Args string // JSON
}

func newProvider(t *testing.T, script []turn) *provider {
	p := &provider{script: script}
	p.server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.server.Close)
	return p
}

// results returns the text of every tool result that the model was shown.
func (p *provider) results() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.seen...)
}

type apiRequest struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
	Tools  []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

type apiBlock struct {
	Type    string          `json:"type"`
	Text    string          `json:"text,omitempty"`
	Content json.RawMessage `json:"content,omitempty"`
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/v1/messages"):
		p.messages(w, r)
	case strings.HasSuffix(r.URL.Path, "/v1/responses"):
		p.responses(w, r)
	case strings.Contains(r.URL.Path, "enerateContent"):
		p.generate(w, r)
	default:
		w.Header().Set("content-type", "application/json")
		_, _ = fmt.Fprint(w, `{"input_tokens":1}`)
	}
}

func (p *provider) messages(w http.ResponseWriter, r *http.Request) {
	var q apiRequest
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	block := map[string]any{"type": "text", "text": "ok"}
	stop := "end_turn"
	if len(q.Tools) > 0 {
		block, stop = p.next(q)
	}
	if q.Stream {
		stream(w, q.Model, block, stop)
		return
	}
	w.Header().Set("content-type", "application/json")
	_ = json.NewEncoder(w).Encode(message(q.Model, []any{block}, stop))
}

// next finds how far the conversation has come and answers with the next line.
func (p *provider) next(q apiRequest) (map[string]any, string) {
	var results, tools []string
	for _, m := range q.Messages {
		var blocks []apiBlock
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue
		}
		for _, b := range blocks {
			if b.Type == "tool_result" {
				results = append(results, string(b.Content))
			}
		}
	}
	for _, t := range q.Tools {
		tools = append(tools, t.Name)
	}
	says := p.turn(tools, results)
	if says.Tool == "" {
		return map[string]any{"type": "text", "text": says.Text}, "end_turn"
	}
	return map[string]any{
		"type": "tool_use", "id": fmt.Sprintf("toolu_%02d", len(results)), "name": says.Tool, "input": json.RawMessage(says.Args),
	}, "tool_use"
}

// turn is the line of the script for a conversation with these results, with the whole
// name of its tool.
func (p *provider) turn(tools, results []string) turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tools, p.seen = tools, results
	if len(results) >= len(p.script) {
		return turn{Text: "done"}
	}
	says := p.script[len(results)]
	called := says.Tool
	for _, t := range tools {
		// Agents set a name of the server before it; what has no such name is their own.
		if called != "" && strings.HasSuffix(t, called) && len(t) > len(says.Tool) {
			says.Tool = t
		}
	}
	return says
}

func message(model string, content []any, stop any) map[string]any {
	return map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": map[string]any{"input_tokens": 1, "output_tokens": 1},
	}
}

// stream sends one message with one block as server-sent events.
func stream(w http.ResponseWriter, model string, block map[string]any, stop string) {
	w.Header().Set("content-type", "text/event-stream")
	send := func(kind string, body map[string]any) {
		body["type"] = kind
		data, _ := json.Marshal(body)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
	}
	send("message_start", map[string]any{"message": message(model, []any{}, nil)})
	start := map[string]any{"type": "text", "text": ""}
	delta := map[string]any{"type": "text_delta", "text": block["text"]}
	if block["type"] == "tool_use" {
		start = map[string]any{"type": "tool_use", "id": block["id"], "name": block["name"], "input": map[string]any{}}
		delta = map[string]any{"type": "input_json_delta", "partial_json": string(block["input"].(json.RawMessage))}
	}
	send("content_block_start", map[string]any{"index": 0, "content_block": start})
	send("content_block_delta", map[string]any{"index": 0, "delta": delta})
	send("content_block_stop", map[string]any{"index": 0})
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": 1}})
	send("message_stop", map[string]any{})
}
