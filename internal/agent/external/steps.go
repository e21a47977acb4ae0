package external

import (
	"encoding/json"
	"slices"
	"strings"
)

// A Step is one thing that an agent has done or said, as its transcript says it: nothing
// depends on that being true.
type Step struct {
	Kind    string          `json:"kind"` // "session", "text", "call", "result", "usage", "end" or "error"
	Session string          `json:"session,omitempty"`
	Text    string          `json:"text,omitempty"` // at most 64 KiB
	Tool    string          `json:"tool,omitempty"`
	Input   json.RawMessage `json:"input,omitempty"`
	Failed  bool            `json:"failed,omitempty"`
	Tokens  *StepTokens     `json:"tokens,omitempty"`
}

// StepTokens are those that the agent says it has used: all of a transcript together are
// those of the run.
type StepTokens struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

const (
	maxLine = 8 << 20 // bytes of a line that is looked at
	maxStep = 64 << 10
	maxNews = 256 // steps of one line
)

// Steps reads one line of the transcript that [Adapter.Transcribed] asks for. A line that
// says nothing of what is known has none.
func (a Adapter) Steps(line []byte) []Step {
	if len(line) > maxLine {
		return nil
	}
	var steps []Step
	switch a.Name {
	case "claude":
		steps = claudeSteps(line)
	case "codex":
		steps = codexSteps(line)
	case "gemini":
		steps = geminiSteps(line)
	case "opencode":
		steps = opencodeSteps(line)
	}
	steps = steps[:min(len(steps), maxNews)]
	for i, s := range steps {
		if len(s.Text) > maxStep {
			steps[i].Text = strings.ToValidUTF8(s.Text[:maxStep], "")
		}
	}
	return slices.DeleteFunc(steps, func(s Step) bool { return s.Kind == "" })
}

// claudeSteps reads a line of "claude -p --output-format stream-json --verbose".
func claudeSteps(line []byte) []Step {
	var l struct {
		Type    string `json:"type"`
		Subtype string `json:"subtype"`
		Session string `json:"session_id"`
		Message struct {
			Content json.RawMessage `json:"content"`
		} `json:"message"`
		Result  string `json:"result"`
		IsError bool   `json:"is_error"`
		Usage   struct {
			Input   int64 `json:"input_tokens"`
			Created int64 `json:"cache_creation_input_tokens"`
			Read    int64 `json:"cache_read_input_tokens"`
			Output  int64 `json:"output_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil
	}
	switch {
	case l.Type == "system" && l.Subtype == "init":
		return []Step{{Kind: "session", Session: l.Session}}
	case l.Type == "result":
		return []Step{{Kind: "end", Session: l.Session, Text: l.Result, Failed: l.IsError, Tokens: &StepTokens{l.Usage.Input + l.Usage.Created + l.Usage.Read, l.Usage.Output}}}
	case l.Type != "assistant" && l.Type != "user":
		return nil
	}
	var parts []struct {
		Type    string          `json:"type"`
		Text    string          `json:"text"`
		Name    string          `json:"name"`
		Input   json.RawMessage `json:"input"`
		Content json.RawMessage `json:"content"`
		IsError bool            `json:"is_error"`
	}
	if json.Unmarshal(l.Message.Content, &parts) != nil {
		return nil
	}
	var steps []Step
	for _, p := range parts {
		switch p.Type {
		case "text":
			steps = append(steps, Step{Kind: "text", Text: p.Text})
		case "tool_use":
			steps = append(steps, Step{Kind: "call", Tool: p.Name, Input: p.Input})
		case "tool_result":
			steps = append(steps, Step{Kind: "result", Text: textOf(p.Content), Failed: p.IsError})
		}
	}
	return steps
}

// textOf is the text of a value: of a string, and of the parts of a list.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	var all []string
	for _, p := range parts {
		all = append(all, p.Text)
	}
	return strings.Join(all, "\n")
}

// contentOf is the text of a result of MCP.
func contentOf(raw json.RawMessage) string {
	var result struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(raw, &result) != nil || result.Content == nil {
		return string(raw)
	}
	return textOf(result.Content)
}

// A codexItem is what Codex does or says in a turn.
type codexItem struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Command   string          `json:"command"`
	Output    string          `json:"aggregated_output"`
	Exit      *int            `json:"exit_code"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Changes   json.RawMessage `json:"changes"`
	Status    string          `json:"status"`
	Message   string          `json:"message"`
}

// codexSteps reads a line of "codex exec --json".
func codexSteps(line []byte) []Step {
	var l struct {
		Type    string `json:"type"`
		Thread  string `json:"thread_id"`
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
		Item  codexItem `json:"item"`
		Usage struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil
	}
	switch l.Type {
	case "thread.started":
		return []Step{{Kind: "session", Session: l.Thread}}
	case "turn.completed":
		return []Step{{Kind: "end", Tokens: &StepTokens{l.Usage.Input, l.Usage.Output}}}
	case "turn.failed":
		return []Step{{Kind: "end", Text: l.Error.Message, Failed: true}}
	case "error":
		return []Step{{Kind: "error", Text: l.Message, Failed: true}}
	case "item.started":
		return []Step{l.Item.begun()}
	case "item.completed":
		return []Step{l.Item.done()}
	}
	return nil
}

func (i codexItem) begun() Step {
	switch i.Type {
	case "command_execution":
		return Step{Kind: "call", Tool: "shell", Text: i.Command}
	case "mcp_tool_call":
		return Step{Kind: "call", Tool: i.Server + "." + i.Tool, Input: i.Arguments}
	case "file_change":
		return Step{Kind: "call", Tool: "apply_patch", Input: i.Changes}
	}
	return Step{}
}

func (i codexItem) done() Step {
	failed := i.Status == "failed" || i.Status == "declined"
	switch i.Type {
	case "agent_message":
		return Step{Kind: "text", Text: i.Text}
	case "error":
		return Step{Kind: "error", Text: i.Message} // it goes on
	case "command_execution":
		return Step{Kind: "result", Tool: "shell", Text: i.Output, Failed: failed || i.Exit != nil && *i.Exit != 0}
	case "mcp_tool_call":
		return Step{Kind: "result", Tool: i.Server + "." + i.Tool, Text: contentOf(i.Result), Failed: failed}
	case "file_change":
		return Step{Kind: "result", Tool: "apply_patch", Text: string(i.Changes), Failed: failed}
	}
	return Step{}
}

// geminiSteps reads a line of "gemini -p … --output-format stream-json".
func geminiSteps(line []byte) []Step {
	var l struct {
		Type       string          `json:"type"`
		Session    string          `json:"session_id"`
		Role       string          `json:"role"`
		Content    string          `json:"content"`
		Tool       string          `json:"tool_name"`
		Parameters json.RawMessage `json:"parameters"`
		Status     string          `json:"status"`
		Output     string          `json:"output"`
		Message    string          `json:"message"`
		Stats      struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"stats"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil
	}
	switch l.Type {
	case "init":
		return []Step{{Kind: "session", Session: l.Session}}
	case "message":
		if l.Role == "assistant" {
			return []Step{{Kind: "text", Text: l.Content}}
		}
	case "tool_use":
		return []Step{{Kind: "call", Tool: l.Tool, Input: l.Parameters}}
	case "tool_result":
		return []Step{{Kind: "result", Text: l.Output, Failed: l.Status == "error"}}
	case "error":
		return []Step{{Kind: "error", Text: l.Message, Failed: true}}
	case "result":
		return []Step{{Kind: "end", Failed: l.Status == "error", Tokens: &StepTokens{l.Stats.Input, l.Stats.Output}}}
	}
	return nil
}

// opencodeSteps reads a line of "opencode run --format json".
func opencodeSteps(line []byte) []Step {
	var l struct {
		Type    string `json:"type"`
		Session string `json:"sessionID"`
		Part    struct {
			Text  string `json:"text"`
			Tool  string `json:"tool"`
			State struct {
				Status string          `json:"status"`
				Input  json.RawMessage `json:"input"`
				Output string          `json:"output"`
				Error  string          `json:"error"`
			} `json:"state"`
			Reason string `json:"reason"`
			Tokens struct {
				Input  int64 `json:"input"`
				Output int64 `json:"output"`
			} `json:"tokens"`
		} `json:"part"`
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(line, &l) != nil {
		return nil
	}
	switch st := l.Part.State; l.Type {
	case "text":
		return []Step{{Kind: "text", Text: l.Part.Text}}
	case "tool_use": // when it is done
		return []Step{
			{Kind: "call", Tool: l.Part.Tool, Input: st.Input},
			{Kind: "result", Tool: l.Part.Tool, Text: st.Output + st.Error, Failed: st.Status == "error"},
		}
	case "step_start":
		return []Step{{Kind: "session", Session: l.Session}}
	case "step_finish":
		kind := "usage"
		if l.Part.Reason == "stop" {
			kind = "end"
		}
		return []Step{{Kind: kind, Tokens: &StepTokens{l.Part.Tokens.Input, l.Part.Tokens.Output}}}
	case "error":
		return []Step{{Kind: "error", Text: string(l.Error), Failed: true}}
	}
	return nil
}
