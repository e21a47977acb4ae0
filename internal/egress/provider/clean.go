package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
)

// MaxRequest is how many bytes a request to a model may have.
const MaxRequest = 32 << 20

// A Clean is a request that asks for text and nothing else.
type Clean struct {
	Body     []byte   // what goes out; that which came, if nothing had to change
	Model    string   // as the client names it
	Streams  bool     // the answer is a stream of events
	Left     []string // what was taken out, for the record: "tool web_search_20250305"
	HideLast bool     // the client did not ask for the usage that the stream ends with
	Most     int64    // tokens that the answer may have, by the request; where it says none, an assumption
}

// A RefusedError says what of a request cannot be taken out.
type RefusedError struct{ Why string }

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Why }

func cannot(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// A document is a request, its members by name.
type document struct {
	m       map[string]json.RawMessage
	changed bool
	left    []string
}

// Clean reads a request for e and takes out what the service would do besides answering.
// Errors are [*RefusedError]s.
func (e Endpoint) Clean(u weburl.URL, body []byte) (Clean, error) {
	if err := strictjson.CheckLimits(body, strictjson.Limits{Size: MaxRequest, Depth: 4 * strictjson.MaxDepth}); err != nil {
		return Clean{}, cannot("the request is not JSON that has one meaning: %v", err)
	}
	d := &document{}
	if err := json.Unmarshal(body, &d.m); err != nil || d.m == nil {
		return Clean{}, cannot("the request is no JSON object")
	}
	c := Clean{}
	var err error
	d.only(members[e.Wire])
	switch e.Wire {
	case Messages:
		err = d.messages()
	case Chat:
		err = d.chat(&c)
	case Responses:
		err = d.responses()
	case Google:
		err = d.google()
	default:
		err = cannot("%q is no form of request", e.Wire)
	}
	if err != nil {
		return Clean{}, err
	}
	c.Left, c.Body = d.left, body
	c.Streams = string(d.m["stream"]) == "true"
	if e.Wire == Google {
		c.Model, c.Streams = googleModel(u), strings.HasSuffix(u.Path, ":streamGenerateContent")
	} else if c.Model, err = d.text("model"); err != nil || c.Model == "" {
		return Clean{}, cannot("the request names no model")
	}
	switch {
	case strings.ContainsAny(c.Model, " \t\n\x00") || len(c.Model) > 200:
		return Clean{}, cannot("the request names a model that cannot be one")
	case strings.Contains(c.Model, "search") || strings.Contains(c.Model, ":online"): // OpenAI's, and a suffix of OpenRouter's
		return Clean{}, cannot("the model %s searches the web by itself", c.Model)
	}
	c.Most = d.most()
	if d.changed {
		if c.Body, err = json.Marshal(d.m); err != nil {
			return Clean{}, cannot("the request cannot be written again: %v", err)
		}
	}
	return c, nil
}

// googleModel is the model that a path of Google's names.
func googleModel(u weburl.URL) string {
	name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	return name[:max(strings.LastIndexByte(name, ':'), 0)]
}

// mostUnsaid is how many tokens an answer is taken to have at most whose request says
// nothing of it.
const mostUnsaid = 16 << 10

// most is how many tokens the answer may have: the greatest of what the request says, for
// each of the answers that it asks for.
func (d *document) most() int64 {
	number := func(raw json.RawMessage) int64 {
		var n float64
		if json.Unmarshal(raw, &n) != nil || n < 1 {
			return 0
		}
		return int64(min(n, 1<<30))
	}
	var google map[string]json.RawMessage
	for _, name := range []string{"generationConfig", "generation_config"} {
		if raw := d.m[name]; raw != nil && json.Unmarshal(raw, &google) != nil {
			google = nil
		}
	}
	most := max(number(d.m["max_tokens"]), number(d.m["max_completion_tokens"]), number(d.m["max_output_tokens"]),
		number(google["maxOutputTokens"]), number(google["max_output_tokens"]))
	if most == 0 {
		most = mostUnsaid
	}
	times := max(number(d.m["n"]), number(google["candidateCount"]), number(google["candidate_count"]), 1)
	return most * min(times, 128)
}

// members are those of a request that are known to ask for text. Others are left out.
var members = map[Wire][]string{
	Messages: {
		"model", "messages", "system", "max_tokens", "metadata", "stop_sequences", "stream", "temperature", "top_k", "top_p",
		"tools", "tool_choice", "thinking", "service_tier", "context_management", "output_config", "output_format", "betas",
	},
	Chat: {
		"model", "messages", "tools", "tool_choice", "functions", "function_call", "stream", "stream_options", "max_tokens",
		"max_completion_tokens", "temperature", "top_p", "n", "stop", "seed", "logprobs", "top_logprobs", "logit_bias",
		"presence_penalty", "frequency_penalty", "response_format", "parallel_tool_calls", "reasoning_effort", "reasoning",
		"verbosity", "user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "prediction", "modalities",
	},
	Responses: {
		"model", "input", "instructions", "tools", "tool_choice", "stream", "stream_options", "max_output_tokens", "temperature",
		"top_p", "text", "reasoning", "parallel_tool_calls", "include", "user", "metadata", "store", "truncation", "service_tier",
		"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "max_tool_calls", "top_logprobs", "background",
		"previous_response_id", "conversation", "prompt",
	},
	Google: {
		"contents", "systemInstruction", "system_instruction", "tools", "toolConfig", "tool_config", "safetySettings",
		"safety_settings", "generationConfig", "generation_config", "cachedContent", "cached_content", "generateContentRequest",
	},
}

// only drops members that are not in known.
func (d *document) only(known []string) {
	for name := range d.m {
		if !slices.Contains(known, name) {
			d.drop(name)
		}
	}
}

func (d *document) drop(name string) {
	if d.m[name] == nil {
		return
	}
	delete(d.m, name)
	d.changed = true
	d.left = append(d.left, "member "+name)
	slices.Sort(d.left)
}

func (d *document) set(name string, value string) {
	if string(d.m[name]) != value {
		d.m[name], d.changed = json.RawMessage(value), true
	}
}

func (d *document) text(name string) (s string, err error) {
	err = json.Unmarshal(d.m[name], &s)
	return s, err
}

// tools keeps those entries of the list of tools that keep says are run by the client,
// and forgets a choice that may name one of the others.
func (d *document) tools(keep func(kind string, tool map[string]json.RawMessage) bool) error {
	if d.m["tools"] == nil || string(d.m["tools"]) == "null" {
		return nil
	}
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(d.m["tools"], &all); err != nil {
		return cannot("its tools are no list of objects")
	}
	left := []map[string]json.RawMessage{}
	for _, tool := range all {
		var kind string
		if raw := tool["type"]; raw != nil && json.Unmarshal(raw, &kind) != nil {
			return cannot("a tool has a type that is no text")
		}
		if keep(kind, tool) {
			left = append(left, tool)
			continue
		}
		d.left = append(d.left, "tool "+kind)
	}
	if len(left) == len(all) {
		return nil
	}
	d.changed = true
	delete(d.m, "tool_choice")
	if len(left) == 0 {
		delete(d.m, "tools")
		return nil
	}
	raw, err := json.Marshal(left)
	d.m["tools"] = raw
	return err
}

// clientTools are Anthropic's own kinds of tools that the client runs, or that only
// choose among its tools.
var clientTools = regexp.MustCompile(`^(custom|(bash|text_editor|computer|memory|tool_search_tool_regex|tool_search_tool_bm25)_[0-9]{8})?$`)

func (d *document) messages() error {
	if err := d.tools(func(kind string, _ map[string]json.RawMessage) bool { return clientTools.MatchString(kind) }); err != nil {
		return err
	}
	for _, name := range []string{"messages", "system"} {
		if err := walk(d.m[name], func(o map[string]any) error {
			switch o["type"] {
			case "url", "file":
				return cannot("it has the service fetch %v of its own", first(o["url"], o["file_id"], "a file"))
			case "container_upload":
				return cannot("it has the service take a file into a container")
			}
			return nil
		}, "input", "input_schema"); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) chat(c *Clean) error {
	if err := d.tools(func(kind string, _ map[string]json.RawMessage) bool { return kind == "function" || kind == "custom" }); err != nil {
		return err
	}
	if d.m["store"] != nil {
		d.set("store", "false")
	}
	if string(d.m["stream"]) == "true" {
		var options map[string]json.RawMessage
		if raw := d.m["stream_options"]; raw != nil && json.Unmarshal(raw, &options) != nil {
			return cannot("its options of the stream are no object")
		}
		if string(options["include_usage"]) != "true" { // it is what is charged by
			c.HideLast = true
			d.set("stream_options", `{"include_usage":true}`)
		}
	}
	return walk(d.m["messages"], fetches, "arguments", "annotations")
}

func (d *document) responses() error {
	for _, name := range []string{"prompt", "previous_response_id", "conversation"} {
		if raw := d.m[name]; raw != nil && string(raw) != "null" {
			return cannot("it continues what the service has stored (%s)", name)
		}
	}
	if string(d.m["background"]) == "true" {
		return cannot("it would go on when nobody listens (background)")
	}
	d.set("store", "false")
	if err := d.tools(runByClient); err != nil {
		return err
	}
	return walk(d.m["input"], fetches, "arguments", "annotations", "action")
}

// runByClient reports whether a tool of OpenAI's responses is one that the client runs, or a
// namespace of such tools, which is how clients send the tools of a server of MCP.
func runByClient(kind string, tool map[string]json.RawMessage) bool {
	switch kind {
	case "function", "custom", "local_shell", "apply_patch", "computer_use_preview", "computer":
		return true
	case "shell":
		return bytes.Contains(tool["environment"], []byte(`"local"`)) && !bytes.Contains(tool["environment"], []byte("container"))
	case "tool_search":
		return string(tool["execution"]) == `"client"`
	case "namespace":
		for name := range tool {
			if !slices.Contains([]string{"type", "name", "description", "tools"}, name) {
				return false
			}
		}
		var in []map[string]json.RawMessage // a structure would take "TYPE" for "type"
		if json.Unmarshal(tool["tools"], &in) != nil {
			return false
		}
		for _, t := range in {
			if of := string(t["type"]); of != `"function"` && of != `"custom"` {
				return false
			}
		}
		return len(in) > 0
	}
	return false
}

// fetches refuses what has OpenAI's services fetch or read a file.
func fetches(o map[string]any) error {
	for _, name := range []string{"image_url", "file_url", "video_url", "url"} {
		at, _ := o[name].(string)
		if at != "" && !strings.HasPrefix(at, "data:") {
			return cannot("it has the service fetch %q", at)
		}
	}
	for _, name := range []string{"file_data", "audio_url", "data"} { // base64, or for some services an address
		if at, _ := o[name].(string); strings.Contains(at, "://") && !strings.HasPrefix(at, "data:") {
			return cannot("it has the service fetch %q", at)
		}
	}
	if id, ok := o["file_id"].(string); ok && id != "" {
		return cannot("it has the service read its file %q", id)
	}
	if o["type"] == "item_reference" {
		return cannot("it continues what the service has stored (item_reference)")
	}
	return nil
}

// googleTools are the members of an entry of Google's tools that the client runs.
var googleTools = []string{"functionDeclarations", "function_declarations", "computerUse", "computer_use"}

func (d *document) google() error {
	for _, name := range []string{"cachedContent", "cached_content"} {
		if d.m[name] != nil {
			return cannot("it continues what the service has stored (%s)", name)
		}
	}
	if raw := d.m["generateContentRequest"]; raw != nil {
		return cannot("it has a request in the request")
	}
	if err := d.googleEntries(); err != nil {
		return err
	}
	for _, name := range []string{"contents", "systemInstruction", "system_instruction"} {
		if err := walk(d.m[name], func(o map[string]any) error {
			if at := first(o["fileUri"], o["file_uri"], nil); at != nil {
				return cannot("it has the service fetch %v", at)
			}
			return nil
		}, "args", "response"); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) googleEntries() error {
	if d.m["tools"] == nil {
		return nil
	}
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(d.m["tools"], &all); err != nil {
		return cannot("its tools are no list of objects")
	}
	left := []map[string]json.RawMessage{}
	dropped := false
	for _, entry := range all {
		for name := range entry {
			if !slices.Contains(googleTools, name) {
				delete(entry, name)
				dropped = true
				d.left = append(d.left, "tool "+name)
			}
		}
		if len(entry) > 0 {
			left = append(left, entry)
		}
	}
	slices.Sort(d.left)
	if !dropped {
		return nil
	}
	raw, err := json.Marshal(left)
	d.m["tools"], d.changed = raw, true
	if len(left) == 0 {
		delete(d.m, "tools")
		delete(d.m, "toolConfig")
		delete(d.m, "tool_config")
	}
	return err
}

// first returns the first of values that is not nil or "".
func first(values ...any) any {
	for _, v := range values {
		if v != nil && v != "" {
			return v
		}
	}
	return nil
}

// walk visits every object within raw, but not below the members named: there stands
// what tools are given and gave, which the service does not act on.
func walk(raw json.RawMessage, visit func(map[string]any) error, but ...string) error {
	if raw == nil {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return cannot("the request cannot be read: %v", err)
	}
	return walkAny(v, visit, but)
}

func walkAny(v any, visit func(map[string]any) error, but []string) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := walkAny(e, visit, but); err != nil {
				return err
			}
		}
	case map[string]any:
		if err := visit(v); err != nil {
			return err
		}
		for name, e := range v {
			if slices.Contains(but, name) {
				continue
			}
			if err := walkAny(e, visit, but); err != nil {
				return err
			}
		}
	}
	return nil
}
