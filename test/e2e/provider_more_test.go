//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// responses speaks the responses API, streamed, as Codex reads it.
func (p *provider) responses(w http.ResponseWriter, r *http.Request) {
	type tool struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Tools []tool `json:"tools"` // of a namespace
	}
	var q struct {
		Tools []tool `json:"tools"`
		Input []struct {
			Type   string          `json:"type"`
			Output json.RawMessage `json:"output"`
		} `json:"input"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var tools, results []string
	spaces := map[string]string{}
	for _, t := range q.Tools {
		if t.Name != "" && t.Type != "namespace" {
			tools = append(tools, t.Name)
		}
		for _, in := range t.Tools {
			tools = append(tools, in.Name)
			spaces[in.Name] = t.Name
		}
	}
	for _, in := range q.Input {
		if in.Type == "function_call_output" {
			results = append(results, string(in.Output))
		}
	}
	says := p.turn(tools, results)
	item := map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": says.Text}}}
	if says.Tool != "" {
		item = map[string]any{"type": "function_call", "call_id": fmt.Sprintf("call_%02d", len(results)), "name": says.Tool, "arguments": says.Args}
		if space := spaces[says.Tool]; space != "" {
			item["namespace"] = space
		}
	}
	send := events(w)
	send(map[string]any{"type": "response.created", "response": map[string]any{"id": "resp_1"}})
	send(map[string]any{"type": "response.output_item.done", "item": item})
	send(map[string]any{"type": "response.completed", "response": map[string]any{"id": "resp_1", "usage": map[string]any{
		"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
	}}})
}

// generate speaks the API of Gemini, streamed or not.
func (p *provider) generate(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Tools []struct {
			Functions []struct {
				Name string `json:"name"`
			} `json:"functionDeclarations"`
		} `json:"tools"`
		Contents []struct {
			Parts []struct {
				Response *struct {
					Response json.RawMessage `json:"response"`
				} `json:"functionResponse"`
			} `json:"parts"`
		} `json:"contents"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var tools, results []string
	for _, t := range q.Tools {
		for _, f := range t.Functions {
			tools = append(tools, f.Name)
		}
	}
	for _, c := range q.Contents {
		for _, part := range c.Parts {
			if part.Response != nil {
				results = append(results, string(part.Response.Response))
			}
		}
	}
	says := turn{Text: "ok"}
	if len(tools) > 0 {
		says = p.turn(tools, results)
	}
	part := map[string]any{"text": says.Text}
	if says.Tool != "" {
		part = map[string]any{"functionCall": map[string]any{"name": says.Tool, "args": json.RawMessage(says.Args)}}
	}
	answer := map[string]any{
		"candidates":    []any{map[string]any{"content": map[string]any{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}
	if r.URL.Query().Get("alt") == "sse" {
		events(w)(answer)
		return
	}
	w.Header().Set("content-type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// events returns what sends server-sent events, named by their type if they have one.
func events(w http.ResponseWriter) func(body map[string]any) {
	w.Header().Set("content-type", "text/event-stream")
	return func(body map[string]any) {
		data, _ := json.Marshal(body)
		if kind, ok := body["type"]; ok {
			_, _ = fmt.Fprintf(w, "event: %s\n", kind)
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	}
}
