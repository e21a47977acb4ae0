//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/agent/external"
	"ringfence/internal/agent/home"
)

// An adapted is an agent from npm, and what has a scripted model answer it.
type adapted struct {
	name  string
	tool  turn     // one of its own, which makes the file "planted"
	typed []string // one-shot
}

func adaptedAgents(p *place, provider string) []adapted {
	file := `{"file_path":"` + p.work + `/planted","filePath":"` + p.work + `/planted","content":"x"}`
	return []adapted{
		{"claude", turn{Tool: "Bash", Args: `{"command":"touch planted","description":"x"}`}, []string{"-p", "hi"}},
		{"codex", turn{Tool: "exec_command", Args: `{"cmd":"touch planted"}`}, []string{
			"exec", "--skip-git-repo-check", "-c", "model_provider=s", "-c", "model=scripted",
			"-c", `model_providers.s={name="s",base_url="` + provider + `/v1",wire_api="responses",env_key="OPENAI_API_KEY"}`, "hi",
		}},
		{"gemini", turn{Tool: "write_file", Args: file}, []string{"-m", "gemini-2.5-flash", "-p", "hi"}},
		{"opencode", turn{Tool: "bash", Args: `{"command":"touch planted","description":"x"}`}, []string{"run", "-m", "scripted/scripted", "hi"}},
	}
}

// start is the agent with a home that its adapter has made for it, and change, if any, has
// changed.
func (a adapted) start(p *place, modules, provider, hook string, toolsOnly bool, change func(home string)) *exec.Cmd {
	p.t.Helper()
	known, ok, err := external.Lookup(a.name)
	if err != nil || !ok {
		p.t.Fatalf("no adapter %q, %v", a.name, err)
	}
	h, err := home.Open(p.t.TempDir(), a.name, p.work, -1, -1)
	if err != nil {
		p.t.Fatal(err)
	}
	v := external.Values{Home: h.Dir, Workspace: p.work, URL: "http://127.0.0.1:9/mcp", Token: "none", Key: "test-key", Hook: hook}
	if _, err := h.Settle(known, filepath.Join(p.home, "nobody"), v, toolsOnly); err != nil {
		p.t.Fatal(err)
	}
	if change != nil {
		change(h.Dir)
	}
	program := filepath.Join(modules, ".bin", a.name)
	if a.name == "opencode" {
		program = filepath.Join(modules, "opencode-"+runtime.GOOS+"-"+strings.Replace(runtime.GOARCH, "amd64", "x64", 1), "bin", "opencode")
	}
	config := p.file(h.Dir+"/provider.json", text(map[string]any{"provider": map[string]any{"scripted": map[string]any{
		"npm": "@ai-sdk/anthropic", "options": map[string]string{"baseURL": provider + "/v1", "apiKey": "test-key"},
		"models": map[string]any{"scripted": map[string]any{"name": "scripted", "tool_call": true}},
	}}}))
	c := exec.Command(program, known.Argv(v, toolsOnly, a.typed)...)
	c.Dir = p.work
	c.Env = slices.DeleteFunc(slices.Clone(p.env), func(kv string) bool { return strings.HasPrefix(kv, "HOME=") })
	c.Env = append(c.Env, "HOME="+h.Dir, "OPENCODE_CONFIG="+config, "ANTHROPIC_BASE_URL="+provider, "ANTHROPIC_API_KEY=test-key",
		"OPENAI_API_KEY=test-key", "GEMINI_API_KEY=test-key", "GOOGLE_GEMINI_BASE_URL="+provider)
	for name, value := range known.Environment {
		c.Env = append(c.Env, name+"="+value)
	}
	return c
}

// planted reports whether the agent's own tool has worked.
func (p *place) planted() bool {
	_, err := os.Stat(filepath.Join(p.work, "planted"))
	return err == nil
}

// TestAdaptersOwnTools: by its adapter an agent works with its own tools without asking; with
// them off the model is offered none by which it could change or read anything, and one that
// it asks for all the same does nothing.
func TestAdaptersOwnTools(t *testing.T) {
	modules := node(t)
	acting := regexp.MustCompile(`(?i)^(bash|.*shell.*|exec_command|write.*|edit|multiedit|notebookedit|replace|apply_patch|read|read_file|grep.*|glob|list|list_directory|view_image|web.*|google_web_search|task|agent|spawn_agent|invoke_agent|skill)$`)
	for i := range adaptedAgents(newPlace(t), "") {
		p := newPlace(t)
		for _, only := range []bool{true, false} {
			model := newProvider(t, nil)
			a := adaptedAgents(p, model.server.URL)[i]
			model.script = []turn{a.tool, {Text: "all done"}}
			out, err := a.start(p, modules, model.server.URL, "", only, nil).CombinedOutput()
			if err != nil || !only && !strings.Contains(string(out), "all done") {
				t.Errorf("%s, own tools off %v: %v\n%s", a.name, only, err, out)
			}
			if p.planted() == only {
				t.Errorf("%s, own tools off %v: planted %v, the model was told %q", a.name, only, p.planted(), model.results())
			}
			if offered := slices.ContainsFunc(model.tools, acting.MatchString); offered == only {
				t.Errorf("%s, own tools off %v: the model was offered %q", a.name, only, model.tools)
			}
		}
	}
}

// TestAdaptersHooks: a hook that refuses is asked, the tool does nothing, and the model is
// told why; as the adapter writes it for a box, and as "ringfence init" does outside.
func TestAdaptersHooks(t *testing.T) {
	modules := node(t)
	for i, name := range []string{"claude", "codex", "gemini"} {
		for _, way := range []string{"box", "init"} {
			p := newPlace(t)
			model := newProvider(t, nil)
			a := adaptedAgents(p, model.server.URL)[i]
			model.script = []turn{a.tool, {Text: "all done"}}
			asked := filepath.Join(p.home, "asked")
			hook := p.file(p.home+"/ringfence", "#!/bin/sh\n{ echo \"$@\"; cat; } >>"+asked+"\necho 'no, for a reason' >&2\nexit 2\n")
			if err := os.Chmod(hook, 0o755); err != nil {
				t.Fatal(err)
			}
			var change func(string)
			if way == "init" {
				program := hook
				change = func(home string) { p.hooked(name, home, program) }
				if name == "codex" { // whose person says so in the program
					a.typed = slices.Insert(a.typed, 1, "--dangerously-bypass-hook-trust")
				}
				hook = ""
			} else {
				hook += " hook"
			}
			out, err := a.start(p, modules, model.server.URL, hook, false, change).CombinedOutput()
			said, _ := os.ReadFile(asked) // empty if nobody was asked
			if !strings.HasPrefix(string(said), "hook "+name+"\n") || !strings.Contains(string(said), "planted") || p.planted() {
				t.Errorf("%s, %s: %v, planted %v, asked %q\n%s", name, way, err, p.planted(), said, out)
			}
			if told := strings.Join(model.results(), ""); !strings.Contains(told, "no, for a reason") {
				t.Errorf("%s, %s: the model was told %q", name, way, told)
			}
		}
	}
}

// hooked writes into home what "ringfence init" writes for hooks.
func (p *place) hooked(name, home, program string) {
	p.t.Helper()
	all, err := external.Editors(external.SetupOptions{Home: home, Config: home + "/.config", Command: program})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range all {
		for _, s := range e.Changes {
			if e.Name != name || !s.Hooks {
				continue
			}
			before, _ := os.ReadFile(s.File) // there need be none
			after, err := s.Apply(before)
			if err != nil {
				p.t.Fatal(err)
			}
			p.file(s.File, string(after))
		}
	}
}
