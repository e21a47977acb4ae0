package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"

	"ringfence/internal/act/strictjson"
)

// maxFile bounds a file, in bytes: Claude Code keeps its history in the same one.
const maxFile = strictjson.MaxSize

// maxOpens bounds how many lists, objects and parts of names a file has: those who read it do
// so by recursion, and a stack that is used up ends the process.
const maxOpens = 100_000

// maxDots bounds the names of a line of TOML, each of which is a table in the one before.
const maxDots = 200

// tooDeep reports whether a file may hold more than readers bear, whatever is quoted in it.
func tooDeep(data []byte, dots bool) bool {
	opens, line := 0, 0
	for _, b := range data {
		switch b {
		case '[', '{':
			opens++
		case '.':
			line++
		case '\n':
			line = 0
		}
		if opens > maxOpens || dots && line > maxDots {
			return true
		}
	}
	return false
}

// usual is {"mcpServers": {…}}, with comments or without.
func usual(data []byte, project string) ([]Entry, error) {
	return members(data, project, "/mcpServers")
}

// vscode is {"servers": {…}, "inputs": […]}.
func vscode(data []byte, project string) ([]Entry, error) {
	return members(data, project, "/servers")
}

// gemini is {"mcpServers": {…}} where "url" is the address of SSE.
func gemini(data []byte, project string) ([]Entry, error) {
	entries, err := usual(data, project)
	for i, e := range entries {
		var o out
		if e.Raw == nil || json.Unmarshal(e.Raw, &o) != nil || o.URL == "" || o.Type != "" {
			continue
		}
		o.Type = "sse"
		if entries[i].Raw, err = encode(o); err != nil {
			return nil, err
		}
	}
	return entries, err
}

// claude is {"mcpServers": {…}, "projects": {"/dir": {"mcpServers": {…}}}}. What a project
// has goes before what all have.
func claude(data []byte, project string) ([]Entry, error) {
	all, err := usual(data, project)
	if err != nil {
		return nil, err
	}
	own, err := members(data, project, "/projects/"+strictjson.Escape(project)+"/mcpServers")
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if !slices.ContainsFunc(own, func(o Entry) bool { return o.Name == e.Name }) {
			own = append(own, e)
		}
	}
	return own, nil
}

// members reads the object that pointer names; none if there is none.
func members(data []byte, project, pointer string) ([]Entry, error) {
	plain, err := standard(data)
	if err != nil {
		return nil, err
	}
	list, ok, err := strictjson.Find(plain, pointer)
	if err != nil {
		return nil, placed(plain, err)
	}
	if !ok || list.Kind == strictjson.Null {
		return nil, nil
	}
	found, err := strictjson.Members(list.Raw, strictjson.Limits{Size: maxFile})
	if err != nil {
		return nil, fmt.Errorf("%s: the list of servers must be an object", place(plain, list.Start))
	}
	entries := make([]Entry, 0, len(found))
	for _, m := range found {
		var w written
		raw := list.Raw[m.Start:m.End]
		if err := json.Unmarshal(raw, &w); err != nil {
			entries = append(entries, Entry{Name: m.Name, Problem: fmt.Sprintf("%s (%s)", unreadable(err), place(plain, list.Start+m.Start))})
			continue
		}
		entries = append(entries, w.entry(m.Name, project))
	}
	return entries, nil
}

// unreadable says why an entry is none.
func unreadable(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what := "the entry"
		if e.Field != "" {
			what = strconv.Quote(e.Field)
		}
		return fmt.Sprintf("%s cannot be of type %s", what, e.Value)
	}
	return "it cannot be read"
}

// standard is data as strict JSON: comments and commas before an end, which editors
// allow, become spaces, so that places stay.
func standard(data []byte) ([]byte, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("1:1: the file has more than %d bytes", maxFile)
	}
	if tooDeep(data, false) {
		return nil, fmt.Errorf("1:1: the file has more than %d lists and objects", maxOpens)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(bytes.TrimSpace(data)) == 0 {
		return []byte("{}"), nil
	}
	plain, err := hujson.Standardize(bytes.Clone(data)) // which writes into what it is given
	if err != nil {
		return nil, fmt.Errorf("1:1: %w", err)
	}
	if err := strictjson.CheckLimits(plain, strictjson.Limits{Size: maxFile}); err != nil {
		return nil, placed(plain, err)
	}
	return plain, nil
}

// placed is an error of package strictjson with line and column.
func placed(data []byte, err error) error {
	if e, ok := errors.AsType[*strictjson.Error](err); ok {
		if e.Detail != "" {
			return fmt.Errorf("%s: %w: %s", place(data, e.Offset), e.Err, e.Detail)
		}
		return fmt.Errorf("%s: %w", place(data, e.Offset), e.Err)
	}
	return fmt.Errorf("1:1: %w", err)
}

func place(data []byte, at int) string {
	before := data[:min(at, len(data))]
	return fmt.Sprintf("%d:%d", 1+bytes.Count(before, []byte{'\n'}), len(before)-bytes.LastIndexByte(before, '\n'))
}

// A codexServer is a table [mcp_servers.NAME] of Codex.
type codexServer struct {
	Command     string            `toml:"command"`
	Args        []string          `toml:"args"`
	Env         map[string]string `toml:"env"`
	EnvVars     []any             `toml:"env_vars"`
	Cwd         string            `toml:"cwd"`
	URL         string            `toml:"url"`
	Bearer      string            `toml:"bearer_token_env_var"`
	Headers     map[string]string `toml:"http_headers"`
	EnvHeaders  map[string]string `toml:"env_http_headers"`
	Enabled     *bool             `toml:"enabled"`
	Transported string            `toml:"type"`
}

// codex is the file config.toml.
func codex(data []byte, project string) ([]Entry, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("1:1: the file has more than %d bytes", maxFile)
	}
	var file struct {
		Servers map[string]codexServer `toml:"mcp_servers"`
	}
	if err := toml.Unmarshal(data, &file); err != nil {
		if e, ok := errors.AsType[toml.ParseError](err); ok {
			return nil, fmt.Errorf("%d:%d: %s", e.Position.Line, max(1, e.Position.Col), e.Message)
		}
		return nil, fmt.Errorf("1:1: %w", err)
	}
	var entries []Entry
	for _, name := range slices.Sorted(maps.Keys(file.Servers)) {
		entries = append(entries, file.Servers[name].entry(name, project))
	}
	return entries, nil
}

// entry is s in the members that other programs use too.
func (s codexServer) entry(name, project string) Entry {
	w := written{Command: s.Command, Args: s.Args, Env: maps.Clone(s.Env), Cwd: s.Cwd, URL: s.URL, Headers: maps.Clone(s.Headers)}
	if s.URL != "" {
		w.Type = "http"
	}
	w.Disabled = s.Enabled != nil && !*s.Enabled
	for _, v := range s.EnvVars {
		if name, ok := v.(string); ok {
			w.Env = with(w.Env, name, "${"+name+":-}")
		}
	}
	for header, name := range s.EnvHeaders {
		w.Headers = with(w.Headers, header, "${"+name+"}")
	}
	if s.Bearer != "" {
		w.Headers = with(w.Headers, "Authorization", "Bearer ${"+s.Bearer+"}")
	}
	return w.entry(name, project)
}

func with(m map[string]string, name, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[name] = value
	return m
}
