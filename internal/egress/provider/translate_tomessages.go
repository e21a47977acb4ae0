package provider

import (
	"encoding/json"
	"strings"
)

// openAIRequest is a request in the form of [Chat], as far as it has a counterpart.
type openAIRequest struct {
	Model       string            `json:"model"`
	Messages    []json.RawMessage `json:"messages"`
	Tools       []json.RawMessage `json:"tools"`
	Functions   json.RawMessage   `json:"functions"`
	Choice      json.RawMessage   `json:"tool_choice"`
	Parallel    *bool             `json:"parallel_tool_calls"`
	Stream      bool              `json:"stream"`
	Options     json.RawMessage   `json:"stream_options"`
	MaxTokens   int64             `json:"max_tokens"`
	MaxAll      int64             `json:"max_completion_tokens"`
	Temperature *float64          `json:"temperature"`
	TopP        json.RawMessage   `json:"top_p"`
	N           *int64            `json:"n"`
	Stop        json.RawMessage   `json:"stop"`
	Format      json.RawMessage   `json:"response_format"`
	Effort      string            `json:"reasoning_effort"`
	Store       json.RawMessage   `json:"store"`
}

// defaultTokens bounds an answer where the request does not, which Anthropic's form must:
// as many as each of its models can write.
const defaultTokens = 8192

func (q *turning) toMessages(clean []byte) (object, error) {
	var in openAIRequest
	if err := q.read(clean, &in); err != nil {
		return nil, err
	}
	switch {
	case in.N != nil && *in.N != 1:
		return nil, cannot("it asks for %d answers at once", *in.N)
	case given(in.Functions):
		return nil, cannot("it has functions, in the form before that of tools")
	}
	b := &speaking{q: q}
	for _, raw := range in.Messages {
		if err := b.add(raw); err != nil {
			return nil, err
		}
	}
	tokens := int64(defaultTokens)
	if n := max(in.MaxTokens, in.MaxAll); n > 0 {
		tokens = n
	}
	out := object{"model": q.Model, "messages": b.all(), "max_tokens": tokens}
	if len(b.system) > 0 {
		out["system"] = b.system
	}
	if in.Stream {
		out["stream"] = true
	}
	stop, err := q.stops(in.Stop)
	if err != nil {
		return nil, err
	}
	if len(stop) > 0 {
		out["stop_sequences"] = stop
	}
	if err := q.toolsToMessages(out, in); err != nil {
		return nil, err
	}
	q.effortToMessages(out, in, tokens, b.answering)
	q.chanceToMessages(out, in)
	return out, q.formToMessages(out, in.Format)
}

func (q *turning) stops(raw json.RawMessage) (all []string, err error) {
	add := func(s string) { all = append(all, s) }
	err = each(raw, add, func(raw json.RawMessage) error {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return cannot("what ends the answer is no text")
		}
		add(s)
		return nil
	})
	return all, err
}

// A speaking is a conversation on its way to Anthropic's form.
type speaking struct {
	q         *turning
	system    []object
	role      string // whose blocks are the last
	blocks    []object
	done      []object
	answering bool // the last message has what tools gave
}

// say adds a block of role. What one side says in a row is one message.
func (s *speaking) say(role string, block object) {
	if role != s.role && len(s.blocks) > 0 {
		s.done = append(s.done, object{"role": s.role, "content": s.blocks})
		s.blocks = nil
	}
	s.role = role
	s.blocks = append(s.blocks, block)
}

func (s *speaking) all() []object {
	if len(s.blocks) > 0 {
		s.done = append(s.done, object{"role": s.role, "content": s.blocks})
		s.blocks = nil
	}
	if s.done == nil {
		return []object{}
	}
	return s.done
}

// openAIMessage is one message of [Chat].
type openAIMessage struct {
	Role    string            `json:"role"`
	Content json.RawMessage   `json:"content"`
	Calls   []json.RawMessage `json:"tool_calls"`
	Old     json.RawMessage   `json:"function_call"`
	Call    string            `json:"tool_call_id"`
	Refusal json.RawMessage   `json:"refusal"`
}

func (s *speaking) add(raw json.RawMessage) error {
	var m openAIMessage
	if err := s.q.read(raw, &m); err != nil {
		return err
	}
	s.answering = m.Role == "tool"
	switch m.Role {
	case "system", "developer":
		if s.role != "" {
			return cannot("it has instructions in the middle of the conversation, which have no counterpart")
		}
		texts, err := s.q.texts(m.Content)
		for _, t := range texts {
			s.system = append(s.system, object{"type": "text", "text": t})
		}
		return err
	case "tool":
		texts, err := s.q.texts(m.Content)
		if err != nil {
			return err
		}
		result := object{"type": "tool_result", "tool_use_id": m.Call}
		if len(texts) > 0 {
			result["content"] = plainOrParts(texts)
		}
		s.say("user", result)
		return nil
	case "user":
		return each(m.Content, s.text("user"), s.part)
	case "assistant":
		return s.assistant(m)
	}
	return cannot("it has a message of %q", m.Role)
}

func (s *speaking) text(role string) func(string) {
	return func(text string) {
		if text != "" {
			s.say(role, object{"type": "text", "text": text})
		}
	}
}

func (s *speaking) assistant(m openAIMessage) error {
	if given(m.Old) {
		return cannot("it has a function call, in the form before that of tools")
	}
	say := s.text("assistant")
	if err := each(m.Refusal, say, func(json.RawMessage) error { return cannot("a refusal is no text") }); err != nil {
		return err
	}
	if err := each(m.Content, say, func(raw json.RawMessage) error {
		var p struct {
			Type    string `json:"type"`
			Text    string `json:"text"`
			Refusal string `json:"refusal"`
		}
		if err := s.q.read(raw, &p); err != nil {
			return err
		}
		if p.Type != "text" && p.Type != "refusal" {
			return cannot("it has %q in a message of assistant, which has no counterpart", p.Type)
		}
		say(p.Text + p.Refusal)
		return nil
	}); err != nil {
		return err
	}
	for _, raw := range m.Calls {
		var c struct {
			Type     string          `json:"type"`
			ID       string          `json:"id"`
			Function json.RawMessage `json:"function"`
		}
		var f calledFunction
		if err := s.q.read(raw, &c); err != nil {
			return err
		}
		if c.Type != "" && c.Type != "function" {
			return cannot("it has a call of %q, which has no counterpart", c.Type)
		}
		if err := s.q.read(c.Function, &f); err != nil {
			return err
		}
		input, ok := f.input()
		if !ok {
			return cannot("the arguments of a call of %s are no JSON object", f.Name)
		}
		s.say("assistant", object{"type": "tool_use", "id": c.ID, "name": f.Name, "input": input})
	}
	return nil
}

// calledFunction is which tool is called, with what.
type calledFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// input is the arguments as an object; no text at all is an empty one.
func (f calledFunction) input() (json.RawMessage, bool) {
	if strings.TrimSpace(f.Arguments) == "" {
		return json.RawMessage("{}"), true
	}
	var o map[string]json.RawMessage
	if checked([]byte(f.Arguments), &o) != nil || o == nil {
		return nil, false
	}
	return json.RawMessage(f.Arguments), true
}

// part adds one piece of a message of the user.
func (s *speaking) part(raw json.RawMessage) error {
	var p struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		Image json.RawMessage `json:"image_url"`
		File  json.RawMessage `json:"file"`
	}
	if err := s.q.read(raw, &p); err != nil {
		return err
	}
	switch p.Type {
	case "text":
		s.text("user")(p.Text)
		return nil
	case "image_url":
		var i struct {
			URL string `json:"url"`
		}
		if err := s.q.read(p.Image, &i); err != nil {
			return err
		}
		media, data, ok := dataURL(i.URL)
		if !ok {
			return cannot("it has an image that is not in the request itself")
		}
		s.say("user", object{"type": "image", "source": object{"type": "base64", "media_type": media, "data": data}})
		return nil
	case "file":
		var f struct {
			Name string `json:"filename"`
			Data string `json:"file_data"`
		}
		if err := s.q.read(p.File, &f); err != nil {
			return err
		}
		media, data, ok := dataURL(f.Data)
		if !ok || media != "application/pdf" {
			return cannot("it has a file that is no PDF in the request itself")
		}
		block := object{"type": "document", "source": object{"type": "base64", "media_type": media, "data": data}}
		if f.Name != "" {
			block["title"] = f.Name
		}
		s.say("user", block)
		return nil
	}
	return cannot("it has %q in a message of user, which has no counterpart", p.Type)
}

func (q *turning) toolsToMessages(out object, in openAIRequest) error {
	tools := []object{}
	for _, raw := range in.Tools {
		var t struct {
			Type     string          `json:"type"`
			Function json.RawMessage `json:"function"`
		}
		var f struct {
			Name        string          `json:"name"`
			Description json.RawMessage `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
			Strict      json.RawMessage `json:"strict"`
		}
		if err := q.read(raw, &t); err != nil {
			return err
		}
		if t.Type != "function" {
			return cannot("a tool of type %q has no counterpart", t.Type)
		}
		if err := q.read(t.Function, &f); err != nil {
			return err
		}
		tool := object{"name": f.Name, "input_schema": object{"type": "object", "properties": object{}}}
		set(tool, "description", f.Description)
		set(tool, "input_schema", f.Parameters)
		set(tool, "strict", f.Strict)
		tools = append(tools, tool)
	}
	if len(tools) == 0 {
		return nil
	}
	out["tools"] = tools
	choice, err := q.choiceToMessages(in.Choice)
	if err != nil {
		return err
	}
	if in.Parallel != nil && !*in.Parallel && (choice == nil || choice["type"] != "none") {
		if choice == nil {
			choice = object{"type": "auto"}
		}
		choice["disable_parallel_tool_use"] = true
	}
	if choice != nil {
		out["tool_choice"] = choice
	}
	return nil
}

func (q *turning) choiceToMessages(raw json.RawMessage) (object, error) {
	if !given(raw) {
		return nil, nil //nolint:nilnil // no choice is none
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		kind, ok := map[string]string{"auto": "auto", "none": "none", "required": "any"}[word]
		if !ok {
			return nil, cannot("its choice of a tool, %q, has no counterpart", word)
		}
		return object{"type": kind}, nil
	}
	var c struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := q.read(raw, &c); err != nil {
		return nil, err
	}
	if c.Type != "function" || c.Function.Name == "" {
		return nil, cannot("its choice of a tool, %q, has no counterpart", c.Type)
	}
	return object{"type": "tool", "name": c.Function.Name}, nil
}

// thinkingOf is how many tokens a model of Anthropic may think for an effort of OpenAI's
// form, and leastThinking the fewest that it can.
var thinkingOf = map[string]int64{"low": 2048, "medium": 8192, "high": 24576, "xhigh": 24576}

const leastThinking = 1024

// effortToMessages says how much the model is to think: not where Anthropic's form then
// wants to see what it thought before, and not where a tool must be called.
func (q *turning) effortToMessages(out object, in openAIRequest, tokens int64, answering bool) {
	n := min(thinkingOf[in.Effort], tokens/2)
	choice, _ := out["tool_choice"].(object)
	forced := choice != nil && choice["type"] != "auto" && choice["type"] != "none"
	switch {
	case in.Effort == "" || in.Effort == "none" || in.Effort == "minimal":
	case n < leastThinking || answering || forced:
		q.leave("member reasoning_effort")
	default:
		out["thinking"] = object{"type": "enabled", "budget_tokens": n}
	}
}

// chanceToMessages says how the model picks its words. Anthropic's models take one of two
// ways to say it, up to 1, and none when they think.
func (q *turning) chanceToMessages(out object, in openAIRequest) {
	if in.Temperature != nil {
		switch t := *in.Temperature; {
		case out["thinking"] != nil:
			q.leave("member temperature")
		case t > 1:
			q.leave("a temperature above 1")
			out["temperature"] = 1
		default:
			out["temperature"] = t
		}
	}
	if given(in.TopP) {
		if out["temperature"] != nil || out["thinking"] != nil {
			q.leave("member top_p")
			return
		}
		out["top_p"] = in.TopP
	}
}

func (q *turning) formToMessages(out object, raw json.RawMessage) error {
	if !given(raw) {
		return nil
	}
	var f struct {
		Type   string `json:"type"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := q.read(raw, &f); err != nil {
		return err
	}
	switch {
	case f.Type == "text":
		return nil
	case f.Type == "json_schema" && given(f.Schema.Schema):
		out["output_config"] = object{"format": object{"type": "json_schema", "schema": f.Schema.Schema}}
		return nil
	}
	return cannot("the form of answers %q has no counterpart", f.Type)
}
