package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A Stream translates the events of an answer as they come. It is an io.WriteCloser for
// the bytes of the answer's body, and not for concurrent use. What is written to it in
// pieces comes out as if it had been written at once.
type Stream struct {
	t    Translation
	w    io.Writer
	buf  []byte // of an event that is not whole
	take func(data []byte) error
	end  func() error // what is still to be said when nothing more comes
	over bool         // the answer has ended, well or with an error that was said
	bad  error
}

// errCut says that an answer stopped before its end.
var errCut = fmt.Errorf("translating the answer: it stopped before its end: %w", io.ErrUnexpectedEOF)

// Stream returns what translates a stream that is written to it, and writes it to w.
func (t Translation) Stream(w io.Writer) *Stream {
	s := &Stream{t: t, w: w}
	switch {
	case t.From == Messages && t.To == Chat:
		c := &chunksToEvents{s: s, open: -1}
		s.take, s.end = c.take, c.end
	case t.From == Chat && t.To == Messages:
		c := &eventsToChunks{s: s}
		s.take, s.end = c.take, func() error { return errCut }
	default:
		s.bad = fmt.Errorf("what is %s is not translated into %s", t.To, t.From)
	}
	return s
}

// Write takes p in. After an error nothing more comes out.
func (s *Stream) Write(p []byte) (int, error) {
	if s.bad != nil {
		return 0, s.bad
	}
	if s.over {
		return len(p), nil
	}
	s.buf = append(s.buf, p...)
	for !s.over {
		end := endOfEvent(s.buf)
		if end < 0 {
			break
		}
		if s.bad = s.event(s.buf[:end]); s.bad != nil {
			return len(p), s.bad
		}
		s.buf = s.buf[end:]
	}
	if len(s.buf) > maxEvent {
		s.bad = errors.New("one event of the answer is too large")
		return len(p), s.bad
	}
	s.buf = append([]byte(nil), s.buf...) // what went is not kept
	return len(p), nil
}

// Close takes in the end of what came. The error says that it was not the answer's: what
// came out is then not to be taken for a whole one.
func (s *Stream) Close() error {
	if s.bad == nil && !s.over && len(s.buf) > 0 {
		if s.event(s.buf) != nil { // half of one
			s.bad = errCut
		}
		s.buf = nil
	}
	if s.bad == nil && !s.over {
		s.bad = s.end()
	}
	return s.bad
}

func (s *Stream) event(raw []byte) error {
	data := dataOf(raw)
	if len(data) == 0 {
		return nil // a comment, or only the name of an event
	}
	return s.take(data)
}

// fail says that the service failed, and ends the stream as the client's service would.
func (s *Stream) fail(raw json.RawMessage) error {
	s.over = true
	f := failureOf(raw)
	if f.Message == "" {
		f.Message = "the service failed"
	}
	name := ""
	if s.t.From == Messages {
		name = "event: error\n"
	}
	_, err := fmt.Fprintf(s.w, "%sdata: %s\n\n", name, s.t.failed(f, 0))
	return err
}

// say writes one event; name is its type, "" for the form that has none.
func (s *Stream) say(name string, o object) error {
	if name != "" {
		o["type"] = name
		name = "event: " + name + "\n"
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("translating the answer: %w", err)
	}
	_, err = fmt.Fprintf(s.w, "%sdata: %s\n\n", name, raw)
	return err
}

// A chunksToEvents makes a stream of [Messages] of one of [Chat]. There, blocks come one
// after the other: one is open at a time.
type chunksToEvents struct {
	s       *Stream
	begun   bool
	blocks  int    // that were begun
	kind    string // of the open one; "": none is
	open    int    // the index of the call that it is, by the service
	called  bool
	refused bool
	finish  string
	usage   openAIUsage
}

// done is what OpenAI's form ends a stream with.
const done = "[DONE]"

func (c *chunksToEvents) take(data []byte) error {
	if string(data) == done {
		return c.end()
	}
	var in openAIReply
	if err := checked(data, &in); err != nil {
		return err
	}
	if given(in.Error) {
		return c.s.fail(in.Error)
	}
	if err := c.begin(in.ID); err != nil {
		return err
	}
	if in.Usage != nil {
		c.usage = *in.Usage
	}
	for _, choice := range in.Choices {
		if choice.Index != 0 {
			return errors.New("translating the answer: it is several answers")
		}
		if err := c.delta(choice.Delta); err != nil {
			return err
		}
		if choice.Finish != "" {
			c.finish = choice.Finish
		}
	}
	return nil
}

func (c *chunksToEvents) begin(id string) error {
	if c.begun {
		return nil
	}
	c.begun = true
	return c.s.say("message_start", object{"message": object{
		"id": id, "type": "message", "role": "assistant", "model": c.s.t.Said, "content": []object{},
		"stop_reason": nil, "stop_sequence": nil, "usage": anthropicUsage{},
	}})
}

func (c *chunksToEvents) delta(d openAIText) error {
	c.refused = c.refused || d.Refusal != ""
	if s := d.thought(); s != "" {
		if err := c.piece("thinking", object{"thinking": "", "signature": ""}, object{"type": "thinking_delta", "thinking": s}); err != nil {
			return err
		}
	}
	if s := d.Content + d.Refusal; s != "" {
		if err := c.piece("text", object{"text": ""}, object{"type": "text_delta", "text": s}); err != nil {
			return err
		}
	}
	for _, call := range d.Calls {
		if err := c.call(call); err != nil {
			return err
		}
	}
	return nil
}

// call takes in a piece of a call. Its first one has the name.
func (c *chunksToEvents) call(call openAICall) error {
	if c.kind != "tool_use" || c.open != call.Index {
		if call.Function.Name == "" {
			return errors.New("translating the answer: it goes on with a call that is not the last one")
		}
		if err := c.close(); err != nil {
			return err
		}
		c.open, c.called = call.Index, true
		if err := c.start("tool_use", object{"id": call.ID, "name": call.Function.Name, "input": object{}}); err != nil {
			return err
		}
	}
	if call.Function.Arguments == "" {
		return nil
	}
	return c.more(object{"type": "input_json_delta", "partial_json": call.Function.Arguments})
}

// piece says more of a block of that kind, and begins one with first if none is open.
func (c *chunksToEvents) piece(kind string, first, delta object) error {
	if c.kind != kind {
		if err := c.close(); err != nil {
			return err
		}
		if err := c.start(kind, first); err != nil {
			return err
		}
	}
	return c.more(delta)
}

func (c *chunksToEvents) start(kind string, block object) error {
	c.kind, block["type"] = kind, kind
	c.blocks++
	return c.s.say("content_block_start", object{"index": c.blocks - 1, "content_block": block})
}

func (c *chunksToEvents) more(delta object) error {
	return c.s.say("content_block_delta", object{"index": c.blocks - 1, "delta": delta})
}

func (c *chunksToEvents) close() error {
	if c.kind == "" {
		return nil
	}
	c.kind = ""
	return c.s.say("content_block_stop", object{"index": c.blocks - 1})
}

// end says that the answer is whole: the service said why it ended.
func (c *chunksToEvents) end() error {
	if c.finish == "" {
		return errCut
	}
	stop, err := stopOf(c.finish, c.called)
	if err != nil {
		return err
	}
	if c.refused {
		stop = "refusal"
	}
	c.s.over = true
	if err := c.close(); err != nil {
		return err
	}
	if err := c.s.say("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": c.usage.toAnthropic()}); err != nil {
		return err
	}
	return c.s.say("message_stop", object{})
}

// An eventsToChunks makes a stream of [Chat] of one of [Messages].
type eventsToChunks struct {
	s     *Stream
	id    string
	begun bool
	kind  string // of the open block; "": none is
	calls int
	input bool // the open call was given something
	stop  string
	usage anthropicUsage
}

// anthropicEvent is an event of [Messages].
type anthropicEvent struct {
	Type    string          `json:"type"`
	Message anthropicReply  `json:"message"`
	Block   anthropicPiece  `json:"content_block"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Delta   struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
		Input    string `json:"partial_json"`
		Stop     string `json:"stop_reason"`
	} `json:"delta"`
}

func (c *eventsToChunks) take(data []byte) error {
	var in anthropicEvent
	if err := checked(data, &in); err != nil {
		return err
	}
	if !c.begun && in.Type != "message_start" && in.Type != "error" && in.Type != "ping" {
		return errors.New("translating the answer: it does not begin with its beginning")
	}
	switch in.Type {
	case "message_start":
		if c.begun {
			return errors.New("translating the answer: it begins twice")
		}
		c.begun, c.id, c.usage = true, in.Message.ID, in.Message.Usage
		return c.chunk(object{"role": "assistant", "content": ""}, nil)
	case "content_block_start":
		return c.start(in.Block)
	case "content_block_delta":
		return c.more(in)
	case "content_block_stop":
		missing := c.kind == "tool_use" && !c.input
		c.kind = ""
		if missing {
			return c.arguments("{}")
		}
		return nil
	case "message_delta":
		if in.Delta.Stop != "" {
			c.stop = in.Delta.Stop
		}
		if !given(in.Usage) {
			return nil
		}
		return checked(in.Usage, &c.usage) // of what it does not name, the beginning said it
	case "message_stop":
		return c.finish()
	case "error":
		return c.s.fail(in.Error)
	}
	return nil // "ping", and what will be added: by the contract of this form it can be ignored
}

func (c *eventsToChunks) start(b anthropicPiece) error {
	if c.kind != "" {
		return errors.New("translating the answer: a block begins within another one")
	}
	c.kind, c.input = b.Type, false
	switch b.Type {
	case "text":
		return c.text("content", b.Text)
	case "thinking":
		return c.text("reasoning_content", b.Thinking)
	case "redacted_thinking":
		return nil
	case "tool_use":
		c.calls++
		call := object{"index": c.calls - 1, "id": b.ID, "type": "function", "function": object{"name": b.Name, "arguments": ""}}
		if err := c.chunk(object{"tool_calls": []object{call}}, nil); err != nil {
			return err
		}
		if given(b.Input) && string(b.Input) != "{}" {
			return c.arguments(string(b.Input))
		}
		return nil
	}
	return fmt.Errorf("translating the answer: it has %q, which has no counterpart", b.Type)
}

func (c *eventsToChunks) more(in anthropicEvent) error {
	kind := map[string]string{"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "tool_use"}[in.Delta.Type]
	if kind == "" {
		return nil // signatures and citations have no counterpart
	}
	if kind != c.kind {
		return fmt.Errorf("translating the answer: %q in a block that is %q", in.Delta.Type, c.kind)
	}
	switch kind {
	case "text":
		return c.text("content", in.Delta.Text)
	case "thinking":
		return c.text("reasoning_content", in.Delta.Thinking)
	}
	if in.Delta.Input == "" {
		return nil
	}
	return c.arguments(in.Delta.Input)
}

func (c *eventsToChunks) text(member, s string) error {
	if s == "" {
		return nil
	}
	return c.chunk(object{member: s}, nil)
}

func (c *eventsToChunks) arguments(s string) error {
	c.input = true
	return c.chunk(object{"tool_calls": []object{{"index": c.calls - 1, "function": object{"arguments": s}}}}, nil)
}

func (c *eventsToChunks) chunk(delta object, finish any) error {
	return c.emit([]object{{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
}

func (c *eventsToChunks) emit(choices []object, u *openAIUsage) error {
	o := object{"id": c.id, "object": "chat.completion.chunk", "created": c.s.t.Created, "model": c.s.t.Said, "choices": choices}
	if !c.s.t.Hide {
		o["usage"] = u
	}
	return c.s.say("", o)
}

func (c *eventsToChunks) finish() error {
	finish, err := finishOf(c.stop)
	if err != nil {
		return err
	}
	c.s.over = true
	if err := c.chunk(object{}, finish); err != nil {
		return err
	}
	if !c.s.t.Hide {
		u := c.usage.toOpenAI()
		if err := c.emit([]object{}, &u); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(c.s.w, "data: %s\n\n", done)
	return err
}
