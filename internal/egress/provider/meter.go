package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// A Budget is what may still be used. A member below zero is no bound; the zero Budget is
// used up.
type Budget struct {
	Tokens   int64 `json:"tokens"`
	MicroUSD int64 `json:"micro_usd"`
}

// Unbounded is a budget without bounds.
var Unbounded = Budget{Tokens: -1, MicroUSD: -1}

// ErrBudget says that an answer came to its end because a budget did.
var ErrBudget = errors.New("the budget is used up")

// maxEvent is how many bytes one event of a stream, or an answer that is no stream, may
// have; of larger ones the usage is not read.
const maxEvent = 16 << 20

// A Meter passes an answer on as it comes and reads what it used. It is an io.WriteCloser
// for the bytes of the answer's body, one event at a time, and not for concurrent use.
type Meter struct {
	MeterOptions
	w       io.Writer
	buf     []byte // of an event, or an answer, that is not whole
	skipped bool   // the answer was too large to be read
	said    Usage
	final   bool // said is what the service says at the end
	whole   bool // the answer, which is no stream, was read to its end
	out     int64
	ended   error
}

// MeterOptions say what a meter reads, and until when.
type MeterOptions struct {
	Wire    Wire
	Streams bool // server-sent events
	// Hide leaves out the event with the usage that the client did not ask for.
	Hide bool
	Sent int // bytes of the request: a bound of the tokens that the service may count
	// Most is how many tokens the request lets the answer have: so many are assumed of one
	// that is no stream until all of it was read, as the service has made it before it comes.
	Most   int64
	Model  string
	Prices Prices
	Budget Budget // ended in flight when it is used up
	// Others is what other answers used of the same budget meanwhile; nil: nothing.
	Others func() (tokens, microUSD int64)
}

// NewMeter returns a meter that passes what is written to it on to w.
func NewMeter(w io.Writer, o MeterOptions) *Meter { return &Meter{MeterOptions: o, w: w} }

// Write passes p on. Once the budget is used up it ends the stream as the provider would
// with an error, and returns [ErrBudget]; nothing of what comes later passes.
func (m *Meter) Write(p []byte) (int, error) {
	if m.ended != nil {
		return 0, m.ended
	}
	if !m.Streams {
		if len(m.buf)+len(p) > maxEvent {
			m.buf, m.skipped = nil, true
		}
		if !m.skipped {
			m.buf = append(m.buf, p...)
		}
		return m.w.Write(p)
	}
	m.buf = append(m.buf, p...)
	for {
		end := endOfEvent(m.buf)
		if end < 0 {
			break
		}
		if err := m.pass(m.buf[:end]); err != nil {
			return len(p), err
		}
		m.buf = m.buf[end:]
	}
	if len(m.buf) > maxEvent {
		m.ended = errors.New("one event of the answer is too large")
		return len(p), m.ended
	}
	m.buf = append([]byte(nil), m.buf...) // what went is not kept
	return len(p), nil
}

// endOfEvent is where the first event in b ends, behind its empty line; -1 if it has not.
func endOfEvent(b []byte) int {
	best := -1
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r", "\n\r\n"} {
		if i := bytes.Index(b, []byte(end)); i >= 0 && (best < 0 || i+len(end) < best) {
			best = i + len(end)
		}
	}
	return best
}

// pass reads one event and hands it on.
func (m *Meter) pass(event []byte) error {
	data := dataOf(event)
	hidden := m.read(data) && m.Hide
	if !hidden {
		if _, err := m.w.Write(event); err != nil {
			m.ended = err
			return err
		}
	}
	if m.over() {
		_, err := m.w.Write(ending(m.Wire, "the budget of this session is used up"))
		m.ended = errors.Join(ErrBudget, err)
	}
	return m.ended
}

// over reports whether more was used than may be.
func (m *Meter) over() bool {
	if m.Budget == Unbounded {
		return false
	}
	var tokens, money int64
	if m.Others != nil {
		tokens, money = m.Others()
	}
	u := m.Usage()
	if m.Budget.Tokens >= 0 && sum(u.Tokens(), tokens) > m.Budget.Tokens {
		return true
	}
	cost, _ := m.Prices.Cost(m.Model, u)
	return m.Budget.MicroUSD >= 0 && sum(cost, money) > m.Budget.MicroUSD
}

// dataOf is the data of an event, without its field names.
func dataOf(event []byte) []byte {
	var data []byte
	for line := range bytes.FieldsFuncSeq(event, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(rest, []byte(" "))...), '\n')
		}
	}
	return bytes.TrimSpace(data)
}

// usageOf are the members of usage in all wires.
type usageOf struct {
	Input       *int64 `json:"input_tokens"`
	Output      *int64 `json:"output_tokens"`
	CacheRead   int64  `json:"cache_read_input_tokens"`
	CacheWrite  int64  `json:"cache_creation_input_tokens"`
	Prompt      *int64 `json:"prompt_tokens"`
	Completion  int64  `json:"completion_tokens"`
	PromptParts struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	InputParts struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputParts struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	CompletionParts struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// message is what is read of an event, or of an answer that is no stream.
type message struct {
	Type     string                   `json:"type"`
	Message  struct{ Usage *usageOf } `json:"message"`
	Response struct{ Usage *usageOf } `json:"response"`
	Usage    *usageOf                 `json:"usage"`
	Choices  []json.RawMessage        `json:"choices"`
	Google   *googleUsage             `json:"usageMetadata"`
}

type googleUsage struct {
	Prompt   int64 `json:"promptTokenCount"`
	Output   int64 `json:"candidatesTokenCount"`
	Thoughts int64 `json:"thoughtsTokenCount"`
	Cached   int64 `json:"cachedContentTokenCount"`
	ToolUse  int64 `json:"toolUsePromptTokenCount"`
}

// read takes in one text and reports whether it has nothing but the usage in it.
func (m *Meter) read(data []byte) (onlyUsage bool) {
	if len(data) == 0 || data[0] != '{' {
		return false
	}
	var msg message
	if json.Unmarshal(data, &msg) != nil {
		return false
	}
	if !m.Streams || msg.Type == "" || strings.HasSuffix(msg.Type, "delta") {
		m.out = sum(m.out, textIn(data))
	}
	switch m.Wire {
	case Messages:
		m.messages(msg)
	case Chat:
		if u := msg.Usage; u != nil && u.Prompt != nil {
			m.take(Usage{
				Input: *u.Prompt - u.PromptParts.Cached, CacheRead: u.PromptParts.Cached,
				Output: u.Completion, Reasoning: u.CompletionParts.Reasoning,
			}, true)
			return msg.Choices != nil && len(msg.Choices) == 0
		}
	case Responses:
		u := msg.Response.Usage
		if u == nil {
			u = msg.Usage
		}
		if u != nil && u.Input != nil && u.Output != nil {
			m.take(Usage{
				Input: *u.Input - u.InputParts.Cached, CacheRead: u.InputParts.Cached,
				Output: *u.Output, Reasoning: u.OutputParts.Reasoning,
			}, true)
		}
	case Google:
		if g := msg.Google; g != nil {
			m.take(Usage{
				Input: sum(g.Prompt, g.ToolUse) - g.Cached, CacheRead: g.Cached,
				Output: sum(g.Output, g.Thoughts), Reasoning: g.Thoughts,
			}, true)
		}
	}
	return false
}

// messages takes in what Anthropic says: the input first, the output as it grows.
func (m *Meter) messages(msg message) {
	u := msg.Message.Usage
	if u == nil {
		u = msg.Usage
	}
	if u == nil {
		return
	}
	got := m.said
	if u.Input != nil {
		got.Input = *u.Input
	}
	got.CacheRead, got.CacheWrite = max(got.CacheRead, u.CacheRead), max(got.CacheWrite, u.CacheWrite)
	if u.Output != nil {
		got.Output = *u.Output
	}
	m.take(got, msg.Type != "message_start")
}

// take keeps what the service says. It never says less than it did.
func (m *Meter) take(u Usage, final bool) {
	for into, v := range map[*int64]int64{
		&m.said.Input: u.Input, &m.said.Output: u.Output, &m.said.CacheRead: u.CacheRead,
		&m.said.CacheWrite: u.CacheWrite, &m.said.Reasoning: u.Reasoning,
	} {
		*into = max(*into, v)
	}
	m.final = m.final || final
}

// written are the members of an answer that hold what a model wrote.
var written = map[string]bool{
	"text": true, "partial_json": true, "thinking": true, "content": true, "arguments": true, "delta": true,
	"reasoning_content": true, "reasoning": true, "input": true, "refusal": true, "signature": true,
}

// textIn is how many bytes of what a model wrote are in data.
func textIn(data []byte) int64 {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return 0
	}
	var count func(v any, counts bool) int64
	count = func(v any, counts bool) (n int64) {
		switch v := v.(type) {
		case string:
			if counts {
				return int64(len(v))
			}
		case []any:
			for _, e := range v {
				n += count(e, counts)
			}
		case map[string]any:
			for name, e := range v {
				n += count(e, written[name])
			}
		}
		return n
	}
	return count(v, false)
}

// bytesOfToken is how few bytes of text a token is taken to have, where the service does
// not say how many there were: of English it has four or five.
const bytesOfToken = 2

// Usage is what was used so far: what the service said, else an estimate on the high side.
func (m *Meter) Usage() Usage {
	if m.final {
		return m.said
	}
	u := m.said
	if u.Input == 0 && u.CacheRead == 0 && u.CacheWrite == 0 {
		u.Input = int64(m.Sent) / bytesOfToken
	}
	u.Output = max(u.Output, m.out/bytesOfToken)
	if !m.Streams && !m.whole {
		u.Output = max(u.Output, m.Most)
	}
	u.Estimated = true
	return u
}

// Close takes in the end of the answer; whole says that it came as the service meant it.
func (m *Meter) Close() error {
	if m.Streams && len(m.buf) > 0 && m.ended == nil {
		return m.pass(m.buf)
	}
	if m.Streams || m.skipped {
		return m.ended
	}
	m.whole = true
	body := bytes.TrimSpace(m.buf)
	if m.Wire == Google && bytes.HasPrefix(body, []byte("[")) {
		var all []json.RawMessage
		if json.Unmarshal(body, &all) == nil {
			for _, one := range all {
				m.read(one)
			}
		}
		return nil
	}
	m.read(body)
	return nil
}

// ending is how each wire says in a stream that it ends with an error.
func ending(w Wire, why string) []byte {
	var b strings.Builder
	switch w {
	case Messages:
		b.WriteString("event: error\n")
	case Responses:
		why, err := json.Marshal(why)
		if err != nil {
			why = []byte(`""`)
		}
		// Some clients read the one and some the other; to Codex a stream without the second
		// is one to connect to again.
		return fmt.Appendf(nil, "event: error\ndata: {\"type\":\"error\",\"code\":\"insufficient_quota\",\"message\":%s,\"param\":null}\n\n"+
			"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_ended\",\"object\":\"response\",\"status\":\"failed\","+
			"\"output\":[],\"error\":{\"code\":\"insufficient_quota\",\"message\":%[1]s}}}\n\n", why)
	case Chat, Google:
	}
	b.WriteString("data: ")
	b.Write(Refusal(w, 402, why))
	b.WriteString("\n\n")
	return []byte(b.String())
}

// Spent is the budget that is left of b after u with a model.
func (b Budget) Spent(p Prices, model string, u Usage) Budget {
	if b.Tokens >= 0 {
		b.Tokens = max(b.Tokens-min(u.Tokens(), math.MaxInt64), 0)
	}
	if b.MicroUSD >= 0 {
		cost, _ := p.Cost(model, u)
		b.MicroUSD = max(b.MicroUSD-cost, 0)
	}
	return b
}
