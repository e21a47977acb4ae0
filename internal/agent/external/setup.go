package external

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

//go:embed setups.json
var setups []byte

// An Editor is a program outside of a box, and the changes of its settings by which it
// works through ringfence.
type Editor struct {
	Name     string
	Marks    []string // any of these files is there if the program is, absolute
	Programs []string // or any of these is on the search path
	Changes  []Setup
}

// A Setup is one change of one file of settings.
type Setup struct {
	File  string // absolute
	Hooks bool   // it is about hooks, else about a server of MCP
	form  string // "toml", else JSON with or without comments
	edits []edit
}

// An edit is one value of a file.
type edit struct {
	path  []string        // names of members, from the outermost
	value json.RawMessage // what is there then
	list  bool            // it is an element of a list at path, beside others
	first bool            // it is only written where nothing is, and stays
}

// SetupOptions say how a program reaches us.
type SetupOptions struct {
	Home    string // of the person, absolute
	Config  string // $XDG_CONFIG_HOME or what stands for it, absolute
	Command string // our program, absolute
}

// Editors returns the programs that can be set up, by name. Cursor's hooks are those of
// https://cursor.com/docs/agent/hooks, those of Codex and Gemini CLI what the programs read.
func Editors(o SetupOptions) ([]Editor, error) {
	var file map[string]struct {
		Marks    []string `json:"marks"`
		Programs []string `json:"programs"`
		Changes  []struct {
			File  string                     `json:"file"`
			Form  string                     `json:"form"`
			What  string                     `json:"what"`
			First map[string]json.RawMessage `json:"first"`
			Set   map[string]json.RawMessage `json:"set"`
			Add   map[string]json.RawMessage `json:"add"`
		} `json:"changes"`
	}
	if err := strictjson.Unmarshal(setups, &file); err != nil {
		return nil, fmt.Errorf("reading how programs are set up: %w", err)
	}
	var all []Editor
	for _, name := range slices.Sorted(maps.Keys(file)) {
		e := Editor{Name: name, Programs: file[name].Programs}
		for _, m := range file[name].Marks {
			e.Marks = append(e.Marks, o.path(m))
		}
		for _, c := range file[name].Changes {
			s := Setup{File: o.path(c.File), Hooks: c.What == "hooks", form: c.Form}
			for _, group := range []struct {
				values map[string]json.RawMessage
				edit   edit
			}{{c.First, edit{first: true}}, {c.Set, edit{}}, {c.Add, edit{list: true}}} {
				for _, pointer := range slices.Sorted(maps.Keys(group.values)) {
					value, err := o.fill(group.values[pointer], name)
					if err != nil {
						return nil, err
					}
					next := group.edit
					next.path, next.value = strings.Split(pointer[1:], "/"), value
					s.edits = append(s.edits, next)
				}
			}
			e.Changes = append(e.Changes, s)
		}
		all = append(all, e)
	}
	return all, nil
}

func (o SetupOptions) path(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return filepath.Join(o.Home, rest)
	}
	return strings.Replace(p, "${CONFIG}", o.Config, 1)
}

// fill puts our program into raw.
func (o SetupOptions) fill(raw json.RawMessage, name string) (json.RawMessage, error) {
	text := string(raw)
	for placeholder, value := range map[string]string{"${COMMAND}": o.Command, "${HOOK}": word(o.Command) + hookEnd(name)} {
		quoted, err := strictjson.Quote(value)
		if err != nil {
			return nil, fmt.Errorf("writing the program %q: %w", o.Command, err)
		}
		text = strings.ReplaceAll(text, placeholder, string(quoted[1:len(quoted)-1]))
	}
	return json.RawMessage(text), nil
}

// hookEnd is the end of every command that is a hook of ours.
func hookEnd(name string) string { return " hook " + name }

// word is s as one word of a POSIX shell.
func word(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%,:") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Apply returns data with the change made; all else stays as it is written, comments too.
// An empty data is a file that is not there. What a change of ours has left before is
// replaced. Errors begin with line:column.
func (s Setup) Apply(data []byte) ([]byte, error) {
	var err error
	for _, e := range s.edits {
		if s.form == "toml" {
			data, err = e.applyTOML(data)
		} else {
			data, err = e.applyJSON(data)
		}
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}

// Remove returns data without what Apply adds; what held nothing else stays, empty.
func (s Setup) Remove(data []byte) ([]byte, error) {
	var err error
	for _, e := range s.edits {
		switch {
		case e.first:
			continue
		case s.form == "toml":
			data = withoutBlock(data)
		default:
			data, err = e.removeJSON(data)
		}
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}
