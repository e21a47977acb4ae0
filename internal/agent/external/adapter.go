package external

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

//go:embed agents/*.json
var shipped embed.FS

// An Adapter is what must be known of an agent to run it in a box: data, one file for each
// agent. Paths begin with "~/" for the person's home.
type Adapter struct {
	Name     string   `json:"name"`     // that a person types
	Title    string   `json:"title"`    // that its maker gives it
	Programs []string `json:"programs"` // names on the search path
	Places   []string `json:"places"`   // where else it is installed
	Beneath  []string `json:"beneath"`  // what its program needs to read, where it is there
	Package  string   `json:"package"`  // of npm, "" if it is in none
	Provider string   `json:"provider"` // whose key it needs, by the name of the table of providers

	// Environment are variables that it is started with: no reports to its maker, no update
	// of itself, no questions that the box answers.
	Environment map[string]string `json:"environment"`
	Handed      []string          `json:"handed"` // variables of the person that it gets
	Quiet       []string          `json:"quiet"`  // hosts that it asks for reports and updates: refused, and nobody is told
	Arguments   Arguments         `json:"arguments"`
	Files       []File            `json:"files"`
	// Instructions are files and directories that the person wrote for it, which it reads.
	Instructions []string `json:"instructions"`
	// Credentials are its files that hold keys or tokens: never taken over.
	Credentials []string `json:"credentials"`
	Tested      string   `json:"tested"` // the version that this was read of and tried with
	// Exits says what its exit statuses mean, where they mean more than that it failed.
	Exits  map[string]string `json:"exits"`
	Quirks []string          `json:"quirks"` // what a person may stumble over
}

// Arguments are those of an agent, before what the person types.
type Arguments struct {
	Always   []string `json:"always"`   // its own questions are off: the box and the gate hold it
	Continue []string `json:"continue"` // the last conversation in this workspace
	Resume   []string `json:"resume"`   // that of ${ID}
	OneShot  []string `json:"one_shot"` // any of these says that it works and ends, without a terminal
	// OneShotContinue and OneShotResume are those after a command of OneShot, where they are others.
	OneShotContinue []string `json:"one_shot_continue"`
	OneShotResume   []string `json:"one_shot_resume"`
	Hooks           []string `json:"hooks"`      // those that hooks need to be run
	Transcript      []string `json:"transcript"` // of one that works and ends: each step is a line of JSON
	ToolsOnly       []string `json:"tools_only"` // its own tools are off
	// ToolsOnlyInstead says that these stand in the place of Always: the agent itself then
	// refuses what cannot be switched off.
	ToolsOnlyInstead bool `json:"tools_only_instead"`
	// Plain are first arguments after which it asks no model and calls no tool: then it gets
	// what the person typed and nothing else.
	Plain []string `json:"plain"`
}

// A File is one of an agent's own that is made before it starts, in its private home.
type File struct {
	Path      string          `json:"path"`
	Form      string          `json:"form"`       // "json" or "toml"
	Keep      []string        `json:"keep"`       // members of the person's own file that it gets
	Set       json.RawMessage `json:"set"`        // what it says whatever was there, with placeholders
	ToolsOnly json.RawMessage `json:"tools_only"` // the same, where its own tools are off
	Hooks     json.RawMessage `json:"hooks"`      // the same, where there is a command that is asked before each use of a tool
	NeedsKey  bool            `json:"needs_key"`  // it is only made where there is a key
}

// List returns the shipped adapters, by name.
func List() ([]Adapter, error) {
	entries, err := shipped.ReadDir("agents")
	if err != nil {
		return nil, fmt.Errorf("reading adapters: %w", err)
	}
	var all []Adapter
	for _, e := range entries {
		a, err := load(e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Adapter) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Lookup returns the adapter of that name; false if there is none.
func Lookup(name string) (Adapter, bool, error) {
	a, err := load(name + ".json")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return Adapter{}, false, nil
	}
	return a, err == nil, err
}

// load reads one adapter.
func load(file string) (a Adapter, err error) {
	text, err := shipped.ReadFile("agents/" + file)
	if err == nil {
		err = strictjson.Unmarshal(text, &a)
	}
	if err != nil {
		return Adapter{}, fmt.Errorf("reading adapter %s: %w", file, err)
	}
	return a, nil
}

// A Look is what of this machine an adapter is told, by who may look.
type Look struct {
	Home string // of the person, absolute
	// Path finds a program on the person's search path; "" if there is none.
	Path func(program string) string
	// Real resolves the links of a path; an error if it is not there.
	Real func(path string) (string, error)
	// Shebang returns the first line of a file if it begins with "#!", else "".
	Shebang func(path string) string
}

// A Program is where an agent is, and what must be seen for it to start.
type Program struct {
	Path     string   // without links
	ReadOnly []string // beyond what every box sees
	Search   []string // directories that come first on its search path
}

// Find finds the agent. The error says where it was looked for, and how it is installed.
func (a Adapter) Find(l Look) (Program, error) {
	var at []string
	for _, name := range a.Programs {
		if p := l.Path(name); p != "" {
			at = append(at, p)
		}
	}
	for _, p := range a.Places {
		at = append(at, l.expand(p))
	}
	for _, p := range at {
		real, err := l.Real(p)
		if err != nil {
			continue
		}
		prog := Program{Path: real}
		prog.show(l, packageOf(real), real)
		for _, b := range a.Beneath {
			if dir, err := l.Real(l.expand(b)); err == nil {
				prog.show(l, dir, "")
			}
		}
		return prog, a.interpreter(&prog, l)
	}
	e := fmt.Errorf("%s is not installed here: no program %s on the search path, nor at %s", a.Title, strings.Join(a.Programs, ", "), strings.Join(append([]string{"(nowhere else)"}, a.Places...)[min(1, len(a.Places)):], ", "))
	if a.Package != "" {
		e = fmt.Errorf("%w: \"npm install --global %s\" installs it", e, a.Package)
	}
	return Program{}, e
}

// interpreter adds what runs p, if it is a script: the usual one is node.
func (a Adapter) interpreter(p *Program, l Look) error {
	line, ok := strings.CutPrefix(l.Shebang(p.Path), "#!")
	if !ok {
		return nil
	}
	name := interpreterOf(strings.Fields(line))
	if name == "" {
		return nil
	}
	at := name
	if !filepath.IsAbs(at) {
		at = l.Path(name)
	}
	if at == "" {
		return fmt.Errorf("%s needs %s, which is not on the search path", a.Title, name)
	}
	real, err := l.Real(at)
	if err != nil {
		return fmt.Errorf("looking for %s, which runs %s: %w", name, a.Title, err)
	}
	p.Search = append(p.Search, filepath.Dir(real))
	// …/bin/node: its libraries and modules lie beside bin.
	dir := filepath.Dir(real)
	if filepath.Base(dir) == "bin" {
		dir = filepath.Dir(dir)
	}
	p.show(l, dir, real)
	return nil
}

// interpreterOf is the program that the first line of a script names, "" for one that every
// box has.
func interpreterOf(words []string) string {
	if len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) != "env" {
		return words[0]
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return w
		}
	}
	return ""
}

// show adds a directory, unless every box sees it. Where it holds more of the person's than
// a program, only needs is added, which lies in it.
func (p *Program) show(l Look, dir, needs string) {
	if l.shared(dir) {
		if dir = needs; dir == "" || l.shared(dir) {
			return
		}
	}
	for _, all := range []string{"/usr", "/bin", "/lib", "/lib64", "/sbin"} {
		if dir == all || strings.HasPrefix(dir, all+"/") {
			return
		}
	}
	if dir == "" || slices.Contains(p.ReadOnly, dir) {
		return
	}
	p.ReadOnly = append(p.ReadOnly, dir)
}

// shared reports whether a directory holds the person's home, or belongs to many programs of
// his.
func (l Look) shared(dir string) bool {
	dir = filepath.Clean(dir)
	if dir == "/" || l.Home == dir || strings.HasPrefix(l.Home, dir+"/") {
		return true
	}
	rest, ok := strings.CutPrefix(dir, l.Home+"/")
	return ok && slices.Contains([]string{"bin", "lib", "share", ".local", ".local/bin", ".local/lib", ".local/share", ".config", ".cache", "Library"}, rest)
}

// packageOf returns what of the tree around a program belongs to it: the directory of
// packages that it is installed in, else the directory that it is in.
func packageOf(program string) string {
	const modules = "/node_modules/"
	if i := strings.Index(program, modules); i >= 0 {
		return program[:i+len(modules)-1]
	}
	return filepath.Dir(program)
}

func (l Look) expand(p string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return filepath.Join(l.Home, rest)
	}
	return p
}
