package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// anthropicUsage and openAIUsage are what an answer used, by each form: in OpenAI's, what
// came from a cache is a part of the prompt.
type anthropicUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens,omitempty"`
	CacheWrite int64 `json:"cache_creation_input_tokens,omitempty"`
}

type openAIUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
	Parts      struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u openAIUsage) toAnthropic() anthropicUsage {
	return anthropicUsage{Input: max(u.Prompt-u.Parts.Cached, 0), Output: u.Completion, CacheRead: u.Parts.Cached}
}

func (u anthropicUsage) toOpenAI() openAIUsage {
	o := openAIUsage{Prompt: sum(sum(u.Input, u.CacheRead), u.CacheWrite), Completion: u.Output}
	o.Total, o.Parts.Cached = sum(o.Prompt, o.Completion), u.CacheRead
	return o
}

// errNoEnd says that an answer does not say why it ended in a way that has a counterpart.
var errNoEnd = errors.New("translating the answer: it does not say, or not in a known way, why it ended")

// stopOf is why an answer ended, in Anthropic's form.
func stopOf(finish string, called bool) (string, error) {
	switch finish {
	case "stop":
		if called { // some services say so of calls too
			return "tool_use", nil
		}
		return "end_turn", nil
	case "length":
		return "max_tokens", nil
	case "tool_calls":
		return "tool_use", nil
	case "content_filter":
		return "refusal", nil
	}
	return "", errNoEnd
}

// finishOf is the same in OpenAI's form.
func finishOf(stop string) (string, error) {
	switch stop {
	case "end_turn", "stop_sequence":
		return "stop", nil
	case "max_tokens", "model_context_window_exceeded":
		return "length", nil
	case "tool_use":
		return "tool_calls", nil
	case "refusal":
		return "content_filter", nil
	}
	return "", errNoEnd
}

// openAICall is one call of a tool, or a piece of it in a stream.
type openAICall struct {
	Index    int            `json:"index"`
	ID       string         `json:"id"`
	Type     string         `json:"type"`
	Function calledFunction `json:"function"`
}

// openAIText is what a model says: whole, or a piece of it. Services that show what a model
// thinks name it in one of two ways.
type openAIText struct {
	Content   string       `json:"content"`
	Refusal   string       `json:"refusal"`
	Thinking  string       `json:"reasoning_content"`
	Reasoning string       `json:"reasoning"`
	Calls     []openAICall `json:"tool_calls"`
}

func (t openAIText) thought() string { return cmp.Or(t.Thinking, t.Reasoning) }

// openAIReply is an answer of [Chat], or a chunk of one.
type openAIReply struct {
	ID      string `json:"id"`
	Choices []struct {
		Index   int        `json:"index"`
		Message openAIText `json:"message"`
		Delta   openAIText `json:"delta"`
		Finish  string     `json:"finish_reason"`
	} `json:"choices"`
	Usage *openAIUsage    `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// anthropicReply is an answer of [Messages].
type anthropicReply struct {
	ID      string           `json:"id"`
	Type    string           `json:"type"`
	Content []anthropicPiece `json:"content"`
	Stop    string           `json:"stop_reason"`
	Usage   anthropicUsage   `json:"usage"`
}

// anthropicPiece is a block of an answer.
type anthropicPiece struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
}

// Reply translates an answer that is no stream.
func (t Translation) Reply(body []byte) ([]byte, error) {
	var out object
	var err error
	switch {
	case t.From == t.To:
		return body, nil
	case t.From == Messages && t.To == Chat:
		out, err = t.replyToMessages(body)
	case t.From == Chat && t.To == Messages:
		out, err = t.replyToChat(body)
	default:
		err = fmt.Errorf("what is %s is not translated into %s", t.To, t.From)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

func (t Translation) replyToMessages(body []byte) (object, error) {
	var in openAIReply
	if err := checked(body, &in); err != nil {
		return nil, err
	}
	if len(in.Choices) != 1 {
		return nil, fmt.Errorf("translating the answer: it is %d answers", len(in.Choices))
	}
	m := in.Choices[0].Message
	content := []object{}
	if s := m.thought(); s != "" {
		content = append(content, object{"type": "thinking", "thinking": s, "signature": ""})
	}
	if s := m.Content + m.Refusal; s != "" {
		content = append(content, object{"type": "text", "text": s})
	}
	for _, c := range m.Calls {
		input, ok := c.Function.input()
		if !ok {
			return nil, fmt.Errorf("translating the answer: the arguments of %q are no JSON object", c.Function.Name)
		}
		content = append(content, object{"type": "tool_use", "id": c.ID, "name": c.Function.Name, "input": input})
	}
	stop, err := stopOf(in.Choices[0].Finish, len(m.Calls) > 0)
	if err != nil {
		return nil, err
	}
	if m.Refusal != "" {
		stop = "refusal"
	}
	if in.Usage == nil {
		in.Usage = &openAIUsage{}
	}
	return object{
		"id": in.ID, "type": "message", "role": "assistant", "model": t.Said, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": in.Usage.toAnthropic(),
	}, nil
}

func (t Translation) replyToChat(body []byte) (object, error) {
	var in anthropicReply
	if err := checked(body, &in); err != nil {
		return nil, err
	}
	finish, err := finishOf(in.Stop)
	if err != nil {
		return nil, err
	}
	var text, thought strings.Builder
	calls := []object{}
	for _, b := range in.Content {
		switch b.Type {
		case "text":
			text.WriteString(b.Text)
		case "thinking":
			thought.WriteString(b.Thinking)
		case "redacted_thinking":
		case "tool_use":
			if !given(b.Input) {
				b.Input = json.RawMessage("{}")
			}
			calls = append(calls, object{"id": b.ID, "type": "function", "function": object{"name": b.Name, "arguments": string(b.Input)}})
		default:
			return nil, fmt.Errorf("translating the answer: it has %q, which has no counterpart", b.Type)
		}
	}
	m := object{"role": "assistant", "content": nil, "refusal": nil}
	if text.Len() > 0 {
		m["content"] = text.String()
	}
	if thought.Len() > 0 {
		m["reasoning_content"] = thought.String()
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	return object{
		"id": in.ID, "object": "chat.completion", "created": t.Created, "model": t.Said, "usage": in.Usage.toOpenAI(),
		"choices": []object{{"index": 0, "message": m, "finish_reason": finish, "logprobs": nil}},
	}, nil
}

// failure is what went wrong, in either form.
type failure struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
}

// maxFailure is how much of the text of an error is passed on, in bytes.
const maxFailure = 4 << 10

// Failure translates an answer that says, with that status, that there is none.
func (t Translation) Failure(status int, body []byte) []byte {
	if t.From == t.To {
		return body
	}
	var in struct {
		Error json.RawMessage `json:"error"`
	}
	f := failure{}
	if checked(body, &in) == nil {
		f = failureOf(in.Error)
	}
	if f.Message == "" {
		f.Message = fmt.Sprintf("the service answered with status %d", status)
	}
	return t.failed(f, status)
}

// failureOf reads an error: an object in both forms, and of some services a text.
func failureOf(raw json.RawMessage) (f failure) {
	if json.Unmarshal(raw, &f) != nil {
		f = failure{}
		if json.Unmarshal(raw, &f.Message) != nil {
			f.Message = ""
		}
	}
	if len(f.Message) > maxFailure {
		f.Message = strings.ToValidUTF8(f.Message[:maxFailure], "")
	}
	return f
}

// failed is f in the form of the client.
func (t Translation) failed(f failure, status int) []byte {
	kind := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
		404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
	}[status]
	if kind == "" {
		kind = cmp.Or(f.Type, "api_error")
	}
	out := object{"error": object{"message": f.Message, "type": kind, "param": nil, "code": nil}}
	if t.From == Messages {
		out = object{"type": "error", "error": object{"message": f.Message, "type": kind}}
	}
	raw, err := json.Marshal(out)
	if err != nil { // text always encodes
		return []byte(`{"error":{}}`)
	}
	return raw
}
