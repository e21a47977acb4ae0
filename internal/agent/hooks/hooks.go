// Package hooks turns what agents ask before they use a tool of their own into requests, and
// verdicts into the answers that each of them understands.
//
// It is a transport, beside package mediator: it decides nothing and reaches no policy. An
// agent that does not ask is not held by it; the box is what holds. It opens no connection.
//
// Invariants:
//
//	K1  A tool that is not known is asked about as such, and never passes for another.
//	K2  What cannot be read is a denial.
//	K3  Of the arguments, what names a resource is what is decided; the rest goes on record
//	    as it is, and counts for nothing.
package hooks

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// Server is the name under which tools of agents are known to a session, and by which its
// annotations are: "agent.shell".
const Server = "agent"

// definitions is the list of tools that every use is turned into, as MCP has it.
//
//go:embed tools.json
var definitions []byte

// maxInput bounds what an agent says of one use, in bytes.
const maxInput = 4 << 20

// A Use is one use of a tool that an agent is about to make.
type Use struct {
	Agent   string // as in Agents
	Session string // its own name of the conversation; "" if it says none
	Dir     string // that it works in; "" if it says none
	Name    string // of the tool, as the agent calls it
	Own     bool   // nothing is to be decided: by it the agent speaks to itself
	Ours    string // "" or, if it looks like a tool of our own server of MCP, what follows the name of that

	tool string // of ours
	args map[string]any
}

// Agents returns the agents whose hooks are understood, by name.
func Agents() []string { return []string{"claude", "codex", "cursor", "gemini"} }

// input is what agents say. Cursor says it in its own members.
type input struct {
	Session      string          `json:"session_id"`
	Conversation string          `json:"conversation_id"`
	Dir          string          `json:"cwd"`
	Roots        []string        `json:"workspace_roots"`
	Event        string          `json:"hook_event_name"`
	Tool         string          `json:"tool_name"`
	Input        json.RawMessage `json:"tool_input"`
	Command      string          `json:"command"`
	File         string          `json:"file_path"`
}

// exact refuses members that differ from ours in case only: package json takes them for ours.
func exact(data []byte) error {
	all, err := strictjson.Members(data, strictjson.Limits{Size: maxInput})
	if err != nil {
		return err
	}
	for _, m := range all {
		for _, ours := range []string{"session_id", "conversation_id", "cwd", "workspace_roots", "hook_event_name", "tool_name", "tool_input", "command", "file_path"} {
			if m.Name != ours && strings.EqualFold(m.Name, ours) {
				return fmt.Errorf("%q is no member; %q is", m.Name, ours)
			}
		}
	}
	return nil
}

// ErrNoTool says that what an agent told is no use of a tool: nothing is to be decided.
var ErrNoTool = errors.New("no use of a tool")

// Parse reads what an agent says of a use. Other events are [ErrNoTool].
func Parse(agent string, data []byte) (Use, error) {
	if !slices.Contains(Agents(), agent) {
		return Use{}, fmt.Errorf("hooks of %q are not known; those of %s are", agent, strings.Join(Agents(), ", "))
	}
	if err := strictjson.CheckLimits(data, strictjson.Limits{Size: maxInput}); err != nil {
		return Use{}, fmt.Errorf("reading what %s says: %w", agent, err)
	}
	var in input
	if err := exact(data); err != nil {
		return Use{}, fmt.Errorf("reading what %s says: %w", agent, err)
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return Use{}, fmt.Errorf("reading what %s says: %w", agent, err)
	}
	if in.Event == "" {
		return Use{}, fmt.Errorf("reading what %s says: it does not say what happens", agent)
	}
	u := Use{Agent: agent, Session: in.Session, Dir: in.Dir, Name: in.Tool}
	switch {
	case agent == "cursor":
		u.Session = in.Conversation
		if u.Dir == "" && len(in.Roots) > 0 {
			u.Dir = in.Roots[0]
		}
		return u, u.cursor(in)
	case in.Event != "PreToolUse" && in.Event != "BeforeTool":
		return u, fmt.Errorf("%w: %s", ErrNoTool, in.Event)
	case in.Tool == "":
		return u, fmt.Errorf("reading what %s says: no tool is named", agent)
	}
	return u, u.of(in.Tool, in.Input)
}

func (u *Use) cursor(in input) error {
	switch in.Event {
	case "beforeShellExecution":
		u.Name = "shell"
		u.set("shell", map[string]any{"command": in.Command})
	case "beforeReadFile":
		u.Name = "read_file"
		u.set("read", map[string]any{"path": in.File})
	case "beforeMCPExecution":
		u.mcp(in.Tool)
		u.rest(in.Input)
	default:
		return fmt.Errorf("%w: %s", ErrNoTool, in.Event)
	}
	return nil
}

// inner are tools that have no effect but on the agent itself: they note, plan, show, or wait
// for what was decided. What an agent below it does asks by itself.
const inner = "inner"

// A known tool is one of an agent's own: which of ours it is, and where its argument stands.
type known struct {
	tool string
	args map[string]string // ours to theirs
}

// tools are those of all agents, which do not call different things by one name.
var tools = map[string]known{
	// Claude Code; Codex calls its shell so, too.
	"Bash":         {"shell", map[string]string{"command": "command"}},
	"Read":         {"read", map[string]string{"path": "file_path"}},
	"NotebookRead": {"read", map[string]string{"path": "notebook_path"}},
	"Write":        {"write", map[string]string{"writes": "file_path"}},
	"Edit":         {"write", map[string]string{"writes": "file_path"}},
	"MultiEdit":    {"write", map[string]string{"writes": "file_path"}},
	"NotebookEdit": {"write", map[string]string{"writes": "notebook_path"}},
	"Glob":         {"search", map[string]string{"path": "path"}},
	"Grep":         {"search", map[string]string{"path": "path"}},
	"LS":           {"search", map[string]string{"path": "path"}},
	"WebFetch":     {"fetch", map[string]string{"url": "url"}},
	"WebSearch":    {"remote", nil},

	// What only plans, shows, or waits for what was decided.
	"TodoWrite": {inner, nil}, "TaskCreate": {inner, nil}, "TaskUpdate": {inner, nil}, "TaskList": {inner, nil}, "TaskGet": {inner, nil},
	"TaskOutput": {inner, nil}, "BashOutput": {inner, nil}, "KillShell": {inner, nil}, "TaskStop": {inner, nil},
	"EnterPlanMode": {inner, nil}, "ExitPlanMode": {inner, nil}, "AskUserQuestion": {inner, nil}, "ToolSearch": {inner, nil},
	"Task": {inner, nil}, "Agent": {inner, nil}, "Skill": {inner, nil}, "update_plan": {inner, nil}, "write_todos": {inner, nil},

	// Codex.
	"shell": {"shell", map[string]string{"command": "command", "cwd": "workdir"}}, "local_shell": {"shell", map[string]string{"command": "command", "cwd": "workdir"}},
	"shell_command": {"shell", map[string]string{"command": "command", "cwd": "workdir"}}, "exec_command": {"shell", map[string]string{"command": "cmd", "cwd": "workdir"}},
	"apply_patch": {"patch", map[string]string{"patch": "command"}},
	"view_image":  {"read", map[string]string{"path": "path"}},

	// Gemini CLI.
	"run_shell_command":   {"shell", map[string]string{"command": "command", "cwd": "dir_path"}},
	"read_file":           {"read", map[string]string{"path": "file_path"}},
	"write_file":          {"write", map[string]string{"writes": "file_path"}},
	"replace":             {"write", map[string]string{"writes": "file_path"}},
	"list_directory":      {"search", map[string]string{"path": "dir_path"}},
	"glob":                {"search", map[string]string{"path": "dir_path"}},
	"search_file_content": {"search", map[string]string{"path": "dir_path"}}, "grep_search": {"search", map[string]string{"path": "dir_path"}},
	"google_web_search": {"remote", nil}, "web_fetch": {"remote", nil},
}

// of turns a tool and what it is given into one of ours.
func (u *Use) of(name string, raw json.RawMessage) error {
	k, ok := tools[name]
	if !ok {
		u.mcp(name)
		u.rest(raw)
		return nil
	}
	var given map[string]any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &given); err != nil {
			return fmt.Errorf("reading what %s is given: %w", name, err)
		}
	}
	args := map[string]any{}
	for ours, theirs := range k.args {
		value, there := given[theirs]
		if !there {
			continue
		}
		delete(given, theirs)
		if ours == "writes" {
			value = []any{value}
		}
		args[ours] = value
	}
	if k.tool == "patch" {
		return u.patch(args["patch"])
	}
	u.Own = k.tool == inner
	if pattern, ok := given["pattern"].(string); ok && strings.EqualFold(name, "glob") {
		if dir := within(args["path"], pattern); dir != nil {
			args["path"] = dir
		}
	}
	u.set(k.tool, args)
	if len(given) > 0 {
		u.args["rest"] = given
	}
	return nil
}

// within is the directory that a pattern of file names, looked for in base, begins with.
func within(base any, pattern string) any {
	fixed, _, _ := strings.Cut(pattern, "*")
	if i := strings.IndexAny(fixed, "?[{!("); i >= 0 {
		fixed = fixed[:i]
	}
	i := strings.LastIndexByte(fixed, '/')
	if fixed == pattern {
		i = len(fixed)
	}
	if i <= 0 && !strings.HasPrefix(fixed, "/") {
		if base == nil && strings.Contains(pattern, "..") {
			return ".."
		}
		return base
	}
	fixed = fixed[:max(i, 1)]
	dir, ok := base.(string)
	if !ok || path.IsAbs(fixed) {
		return fixed
	}
	return path.Join(dir, fixed)
}

// mcp is a tool of a server of MCP, "mcp__server__tool", or none that is known.
func (u *Use) mcp(name string) {
	u.Name = name
	for _, prefix := range []string{"mcp__ringfence__", "mcp_ringfence_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			u.Ours = rest
		}
	}
	u.set("other", map[string]any{})
}

func (u *Use) rest(raw json.RawMessage) {
	var v any
	if json.Unmarshal(raw, &v) == nil && v != nil {
		u.args["rest"] = v
	}
}

func (u *Use) set(tool string, args map[string]any) {
	u.tool, u.args = tool, args
	args["tool"] = u.Name
	switch tool {
	case "shell", "read", "search", "write":
		if args["cwd"] == nil && u.Dir != "" {
			args["cwd"] = u.Dir
		}
	}
}

// patch is what a patch in the form of Codex changes.
func (u *Use) patch(text any) error {
	if list, ok := text.([]any); ok && len(list) > 0 { // "apply_patch" and the patch
		text = list[len(list)-1]
	}
	s, ok := text.(string)
	if !ok {
		return errors.New("reading a patch: it is no text")
	}
	writes, deletes := []any{}, []any{}
	last := ""
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		head, path, _ := strings.Cut(line, ": ")
		path = strings.TrimSpace(path)
		switch head {
		case "*** Add File", "*** Update File":
			writes, last = append(writes, path), path
		case "*** Delete File":
			deletes = append(deletes, path)
		case "*** Move to":
			writes, deletes = append(writes, path), append(deletes, last)
		case "*** Begin Patch", "*** End Patch", "*** End of File", "*** Environment ID":
		default:
			if strings.HasPrefix(line, "***") {
				return fmt.Errorf("reading a patch: %.80q is no line of one", line)
			}
		}
	}
	if len(writes)+len(deletes) == 0 {
		return errors.New("reading a patch: it names no file")
	}
	u.set("write", map[string]any{"writes": writes, "deletes": deletes})
	return nil
}

// By reports whether u is a tool of one of servers, which our own server of MCP stands in
// front of and decides about by itself. Another server may be called so that its tools look
// like these; it needs the name of one of ours for that, after ours.
func (u Use) By(servers []string) bool {
	return u.Ours != "" && slices.ContainsFunc(servers, func(s string) bool {
		return strings.HasPrefix(u.Ours, s+"__") || strings.HasPrefix(u.Ours, s+"_") && u.Agent == "gemini"
	})
}

// List tells a session which tools there are. It must come before the first Ask.
func List(ctx context.Context, d act.Decider) error {
	t, err := d.Decide(ctx, act.Request{Verb: act.VerbList, Tool: Server, Args: definitions})
	if err == nil && t.Verdict == act.Allow {
		_, err = d.Finish(ctx, t, act.Outcome{Body: definitions})
	}
	if err != nil {
		return fmt.Errorf("telling which tools an agent has: %w", err)
	}
	return nil
}

// Ask has a use decided, by a session that has Server. What is allowed is on record as handed
// to the agent; reason says why what is not, is not.
func Ask(ctx context.Context, d act.Decider, u Use) (allowed bool, reason string, err error) {
	raw, err := json.Marshal(u.args)
	if err != nil {
		return false, "", fmt.Errorf("asking about %s: %w", u.Name, err)
	}
	t, err := d.Decide(ctx, act.Request{Verb: act.VerbCall, Tool: Server + "." + u.tool, Args: raw})
	if err != nil {
		return false, "", fmt.Errorf("asking about %s: %w", u.Name, err)
	}
	if t.Verdict != act.Allow {
		return false, t.Reason, nil
	}
	if _, err := d.Finish(ctx, t, act.Outcome{Body: handed}); err != nil {
		return false, "", fmt.Errorf("asking about %s: %w", u.Name, err)
	}
	return true, "", nil
}

// handed is the outcome of a use that the agent carries out itself: what came of it nobody
// but the agent knows.
var handed = []byte(`{"content":[{"type":"text","text":"the agent carries it out itself"}]}`)

// Answer is what agent reads: whether the tool may be used, and why not.
func Answer(agent string, u Use, allowed bool, reason string) []byte {
	var v any
	switch {
	case agent == "cursor":
		permission := "deny"
		if allowed {
			permission = "allow"
		}
		v = map[string]any{"permission": permission, "userMessage": reason, "agentMessage": reason, "user_message": reason, "agent_message": reason}
	case allowed:
		return nil // it goes on as it would have: a hook takes no question of the agent's away
	case agent == "gemini":
		v = map[string]any{"decision": "deny", "reason": reason}
	default:
		v = map[string]any{"hookSpecificOutput": map[string]any{"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil // of texts it is none; nothing is no permission
	}
	return b.Bytes()
}
