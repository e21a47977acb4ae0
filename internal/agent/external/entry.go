package external

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// A written entry is what one of the known forms says of a server, in the members that
// some of them have.
type written struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	URL     string            `json:"url,omitempty"`
	HTTPURL string            `json:"httpUrl,omitempty"` // Gemini's of streamable HTTP; its url is that of SSE
	Headers map[string]string `json:"headers,omitempty"`

	EnvFile  string `json:"envFile,omitempty"`
	Disabled bool   `json:"disabled,omitempty"`
}

// out is the usual form: what package mediator reads.
type out struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// entry is w as an entry. project replaces the placeholders of a workspace.
func (w written) entry(name, project string) Entry {
	e := Entry{Name: name}
	if w.Disabled {
		e.Problem = "it is disabled there"
		return e
	}
	if w.EnvFile != "" {
		e.Problem = "it reads variables from a file, " + w.EnvFile + ": write them into \"env\""
		return e
	}
	o := out{Type: w.Type, Command: w.Command, Args: w.Args, Env: w.Env, Cwd: w.Cwd, URL: w.URL, Headers: w.Headers}
	if w.HTTPURL != "" {
		o.URL, o.Type = w.HTTPURL, "http"
	}
	switch {
	case o.Command == "" && o.URL == "":
		e.Problem = "it has neither a command nor an address"
		return e
	case o.Command != "" && o.URL != "":
		e.Problem = "it has both a command and an address"
		return e
	case filepath.Base(o.Command) == "ringfence" && len(o.Args) > 0 && o.Args[0] == "mcp":
		e.Problem = "it is ringfence itself"
		return e
	case o.Type == "streamable-http" || o.Type == "streamableHttp":
		o.Type = "http"
	}
	if problem := o.usual(project); problem != "" {
		e.Problem = problem
		return e
	}
	e.Secret = slices.Concat(given(o.Env), given(o.Headers))
	raw, err := encode(o)
	if err != nil {
		e.Problem = err.Error()
		return e
	}
	e.Raw = raw
	return e
}

func encode(o out) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o); err != nil {
		return nil, fmt.Errorf("writing the entry: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// given are the names of those values that stand in the file and are not taken from the
// environment.
func given(values map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if v := values[name]; v != "" && !strings.Contains(v, "${") {
			names = append(names, name)
		}
	}
	return names
}

// usual writes the placeholders of o in the usual form, ${NAME}, and says which cannot
// be.
func (o *out) usual(project string) (problem string) {
	change := func(s string) string {
		text, bad := placeholders(s, project)
		if bad != "" && problem == "" {
			problem = bad
		}
		return text
	}
	o.Command, o.Cwd, o.URL = change(o.Command), change(o.Cwd), change(o.URL)
	o.Args = slices.Clone(o.Args)
	for i, a := range o.Args {
		o.Args[i] = change(a)
	}
	for _, m := range []*map[string]string{&o.Env, &o.Headers} {
		next := map[string]string{}
		for name, v := range *m {
			next[name] = change(v)
		}
		if *m = next; len(next) == 0 {
			*m = nil
		}
	}
	return problem
}

var placeholder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([^}]*)\}`) })

// placeholders rewrites ${env:NAME} and the names of the workspace; what asks a person,
// or another program, has no usual form.
func placeholders(s, project string) (text, problem string) {
	text = placeholder().ReplaceAllStringFunc(s, func(all string) string {
		name := all[2 : len(all)-1]
		switch kind, rest, _ := strings.Cut(name, ":"); {
		case kind == "env" && rest != "":
			return "${" + rest + "}"
		case name == "workspaceFolder" || name == "workspaceRoot" || name == "projectRoot":
			return project
		case name == "userHome":
			return "${HOME}"
		case name == "pathSeparator" || name == "/":
			return "/"
		case kind == "input" || kind == "command" || kind == "config" || name == "workspaceFolderBasename":
			problem = fmt.Sprintf("%s is filled in by the editor: write %s in its place and set that variable", all, "${"+variable(rest)+"}")
		}
		return all
	})
	return text, problem
}

// variable is a name of a variable that says the same as a label.
func variable(label string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z' || r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, label)
	if name == "" {
		return "VALUE"
	}
	return name
}
