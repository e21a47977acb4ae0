package provider

import (
	"encoding/json"
	"strings"
)

// anthropicRequest is a request in the form of [Messages], as far as it has a counterpart.
type anthropicRequest struct {
	Model       string            `json:"model"`
	Messages    []json.RawMessage `json:"messages"`
	System      json.RawMessage   `json:"system"`
	MaxTokens   json.RawMessage   `json:"max_tokens"`
	Stop        []string          `json:"stop_sequences"`
	Stream      bool              `json:"stream"`
	Temperature json.RawMessage   `json:"temperature"`
	TopP        json.RawMessage   `json:"top_p"`
	Tools       []json.RawMessage `json:"tools"`
	Choice      json.RawMessage   `json:"tool_choice"`
	Thinking    json.RawMessage   `json:"thinking"`
	Output      json.RawMessage   `json:"output_config"`
	Format      json.RawMessage   `json:"output_format"`
}

// maxStops is how many texts at which an answer ends OpenAI's form can have.
const maxStops = 4

func (q *turning) toChat(clean []byte) (object, error) {
	var in anthropicRequest
	if err := q.read(clean, &in); err != nil {
		return nil, err
	}
	out := object{"model": q.Model}
	messages := []object{}
	system, err := q.texts(in.System)
	if err != nil {
		return nil, err
	}
	if len(system) > 0 {
		messages = append(messages, object{"role": "system", "content": plainOrParts(system)})
	}
	for _, raw := range in.Messages {
		if messages, err = q.turnToChat(messages, raw); err != nil {
			return nil, err
		}
	}
	out["messages"] = messages
	set(out, "max_completion_tokens", in.MaxTokens)
	set(out, "temperature", in.Temperature)
	set(out, "top_p", in.TopP)
	if len(in.Stop) > maxStops {
		return nil, cannot("it has more than %d texts that end the answer", maxStops)
	}
	if len(in.Stop) > 0 {
		out["stop"] = in.Stop
	}
	if in.Stream {
		out["stream"], out["stream_options"] = true, object{"include_usage": true}
	}
	if err := q.toolsToChat(out, in); err != nil {
		return nil, err
	}
	return out, q.effortToChat(out, in)
}

// texts are those of a list that has texts only.
func (q *turning) texts(raw json.RawMessage) (all []string, err error) {
	text := func(s string) {
		if s != "" {
			all = append(all, s)
		}
	}
	err = each(raw, text, func(raw json.RawMessage) error {
		var b struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if err := q.read(raw, &b); err != nil {
			return err
		}
		if b.Type != "text" {
			return cannot("it has %q where only text can be translated", b.Type)
		}
		text(b.Text)
		return nil
	})
	return all, err
}

// anthropicBlock is one piece of a message.
type anthropicBlock struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Source  json.RawMessage `json:"source"`
	Title   string          `json:"title"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Result  string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error"`
	// what a model thought goes with its signature, which other services do not know
	Thinking  json.RawMessage `json:"thinking"`
	Signature json.RawMessage `json:"signature"`
	Data      json.RawMessage `json:"data"`
}

// A turn is one message on its way to OpenAI's form.
type turn struct {
	parts   []object // of the user
	texts   []string
	calls   []object
	results []object
}

func (u *turn) text(s string) {
	if s != "" {
		u.texts = append(u.texts, s)
		u.parts = append(u.parts, object{"type": "text", "text": s})
	}
}

func (q *turning) turnToChat(messages []object, raw json.RawMessage) ([]object, error) {
	var m struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := q.read(raw, &m); err != nil {
		return nil, err
	}
	if m.Role != "user" && m.Role != "assistant" {
		return nil, cannot("it has a message of %q", m.Role)
	}
	var u turn
	if err := each(m.Content, u.text, func(raw json.RawMessage) error { return q.blockToChat(&u, m.Role, raw) }); err != nil {
		return nil, err
	}
	if m.Role == "assistant" {
		o := object{"role": "assistant"}
		if len(u.texts) > 0 {
			o["content"] = plainOrParts(u.texts)
		}
		if len(u.calls) > 0 {
			o["tool_calls"] = u.calls
		}
		if len(o) == 1 {
			return messages, nil // all that it had was left out
		}
		return append(messages, o), nil
	}
	messages = append(messages, u.results...)
	if len(u.parts) == 0 {
		return messages, nil
	}
	o := object{"role": "user", "content": u.parts}
	if len(u.texts) == 1 && len(u.parts) == 1 {
		o["content"] = u.texts[0]
	}
	return append(messages, o), nil
}

// blockToChat adds one piece of a message of role to u.
func (q *turning) blockToChat(u *turn, role string, raw json.RawMessage) error {
	var b anthropicBlock
	if err := q.read(raw, &b); err != nil {
		return err
	}
	switch {
	case b.Type == "text":
		u.text(b.Text)
		return nil
	case b.Type == "thinking" || b.Type == "redacted_thinking":
		q.leave("what was thought before")
		return nil
	case b.Type == "tool_use" && role == "assistant":
		if !given(b.Input) {
			b.Input = json.RawMessage("{}")
		}
		u.calls = append(u.calls, object{"id": b.ID, "type": "function", "function": object{"name": b.Name, "arguments": string(b.Input)}})
		return nil
	case b.Type == "tool_result" && role == "user":
		return q.resultToChat(u, b)
	case (b.Type == "image" || b.Type == "document") && role == "user":
		return q.dataToChat(u, b)
	}
	return cannot("it has %q in a message of %s, which has no counterpart", b.Type, role)
}

// resultToChat adds what a tool gave. OpenAI's form has only text there: an image follows
// in a message of the user.
func (q *turning) resultToChat(u *turn, b anthropicBlock) error {
	var r turn
	err := each(b.Content, r.text, func(raw json.RawMessage) error {
		var part anthropicBlock
		if err := q.read(raw, &part); err != nil {
			return err
		}
		switch part.Type {
		case "text":
			r.text(part.Text)
			return nil
		case "image", "document":
			return q.dataToChat(u, part)
		}
		return cannot("it has %q in what a tool gave, which has no counterpart", part.Type)
	})
	if err != nil {
		return err
	}
	content := any("")
	switch {
	case len(r.texts) > 0:
		content = plainOrParts(r.texts)
	case b.IsError:
		content = "error"
	}
	if b.IsError {
		q.leave("member is_error")
	}
	u.results = append(u.results, object{"role": "tool", "tool_call_id": b.Result, "content": content})
	return nil
}

// dataToChat adds an image or a document that the request has in it.
func (q *turning) dataToChat(u *turn, b anthropicBlock) error {
	var s struct {
		Type  string `json:"type"`
		Media string `json:"media_type"`
		Data  string `json:"data"`
	}
	if err := q.read(b.Source, &s); err != nil {
		return err
	}
	switch {
	case s.Type == "base64" && b.Type == "image":
		u.parts = append(u.parts, object{"type": "image_url", "image_url": object{"url": "data:" + s.Media + ";base64," + s.Data}})
	case s.Type == "base64":
		name := b.Title
		if name == "" {
			name = "document.pdf"
		}
		u.parts = append(u.parts, object{"type": "file", "file": object{"filename": name, "file_data": "data:" + s.Media + ";base64," + s.Data}})
	case s.Type == "text" && b.Type == "document":
		u.text(s.Data)
	default:
		return cannot("it has a %s by %q, which has no counterpart", b.Type, s.Type)
	}
	return nil
}

func (q *turning) toolsToChat(out object, in anthropicRequest) error {
	tools := []object{}
	for _, raw := range in.Tools {
		var t struct {
			Type        string          `json:"type"`
			Name        string          `json:"name"`
			Description json.RawMessage `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
			Strict      json.RawMessage `json:"strict"`
		}
		if err := q.read(raw, &t); err != nil {
			return err
		}
		if t.Type != "" && t.Type != "custom" {
			return cannot("the tool %s is known to models of Anthropic only", t.Type)
		}
		f := object{"name": t.Name}
		set(f, "description", t.Description)
		set(f, "parameters", t.Schema)
		set(f, "strict", t.Strict)
		tools = append(tools, object{"type": "function", "function": f})
	}
	if len(tools) == 0 {
		return nil
	}
	out["tools"] = tools
	if !given(in.Choice) {
		return nil
	}
	var c struct {
		Type string `json:"type"`
		Name string `json:"name"`
		One  bool   `json:"disable_parallel_tool_use"`
	}
	if err := q.read(in.Choice, &c); err != nil {
		return err
	}
	if c.One {
		out["parallel_tool_calls"] = false
	}
	switch c.Type {
	case "auto", "none":
		out["tool_choice"] = c.Type
	case "any":
		out["tool_choice"] = "required"
	case "tool":
		out["tool_choice"] = object{"type": "function", "function": object{"name": c.Name}}
	default:
		return cannot("its choice of a tool, %q, has no counterpart", c.Type)
	}
	return nil
}

// Of what OpenAI calls effort: from how many tokens of thinking on.
const (
	mediumThinking = 4096
	highThinking   = 16384
)

// effortToChat says how much the model is to think, and the form of its answer.
func (q *turning) effortToChat(out object, in anthropicRequest) error {
	var o struct {
		Effort string          `json:"effort"`
		Format json.RawMessage `json:"format"`
	}
	var t struct {
		Type   string `json:"type"`
		Budget int64  `json:"budget_tokens"`
	}
	for raw, v := range map[*json.RawMessage]any{&in.Output: &o, &in.Thinking: &t} {
		if !given(*raw) {
			continue
		}
		if err := q.read(*raw, v); err != nil {
			return err
		}
	}
	effort := map[string]string{"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}[o.Effort]
	if t.Type == "enabled" && effort == "" {
		switch {
		case t.Budget >= highThinking:
			effort = "high"
		case t.Budget >= mediumThinking:
			effort = "medium"
		default:
			effort = "low"
		}
	}
	switch {
	case effort == "" || t.Type == "disabled":
	case thinks(q.Model):
		out["reasoning_effort"] = effort
	default:
		q.leave("member thinking")
	}
	if given(o.Format) {
		in.Format = o.Format
	}
	if !given(in.Format) {
		return nil
	}
	var f struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}
	if err := q.read(in.Format, &f); err != nil {
		return err
	}
	if f.Type != "json_schema" {
		return cannot("the form of answers %q has no counterpart", f.Type)
	}
	out["response_format"] = object{"type": "json_schema", "json_schema": object{"name": "answer", "schema": f.Schema, "strict": true}}
	return nil
}

// thinks reports whether a model of OpenAI's form can be told how much to think: those
// before GPT-5, but for the o series, refuse to be.
func thinks(model string) bool {
	name := model[strings.LastIndexByte(model, '/')+1:]
	for _, old := range []string{"gpt-3", "gpt-4", "chatgpt-"} {
		if strings.HasPrefix(name, old) {
			return false
		}
	}
	return true
}
