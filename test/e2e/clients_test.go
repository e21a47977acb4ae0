//go:build unix

package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A door is how a client reaches ringfence: by a command, or at a URL with a token.
type door struct {
	command    []string
	url, token string
}

// doors is a place with a workspace of one file, and both doors to it.
func doors(t *testing.T) (*place, map[string]door) {
	t.Helper()
	p := newPlace(t)
	p.file("a.txt", "the word is swordfish\n")
	servers := p.servers(map[string]any{"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}}})
	args := []string{"--servers", servers, "--policy", p.policy("may do anything in the workspace", "must never write files named kept.txt"), "--ask", "never"}
	url, token := p.listen(args...)
	return p, map[string]door{
		"stdio": {command: append([]string{"ringfence", "mcp", "-w", p.work}, args...)},
		"HTTP":  {url: url, token: token},
	}
}

// What every client of the place does: a call that is allowed, and one that is denied
// by a clause which the answer names.
const (
	secret    = "swordfish"
	forbidden = `{"path":"kept.txt","content":"x"}`
	clause    = "must never write files named kept.txt"
)

// recorded checks that what a client did, and nothing else, is on record.
func (p *place) recorded(times int) {
	p.t.Helper()
	want := slices.Repeat([]string{"filesystem.read_text_file allow", "filesystem.write_file deny policy"}, times)
	if got := p.calls(); !slices.Equal(got, want) {
		p.t.Errorf("on record: %q\nwant %q", got, want)
	}
	p.ok("ledger", "verify")
}

// TestAgents: agents from npm, with a scripted model, reach ringfence over standard
// input and output and over HTTP. They offer its tools to the model, make a call that
// is allowed and one that is denied, and tell the model which clause denied it. The
// record shows exactly that.
func TestAgents(t *testing.T) {
	modules := node(t)
	for name, agent := range map[string]func(p *place, modules, provider string, d door) *exec.Cmd{
		"codex": codex, "gemini": gemini, "opencode": opencode,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, doors := doors(t)
			for way, d := range doors {
				model := newProvider(t, []turn{
					{Tool: "read_text_file", Args: `{"path":"a.txt"}`}, {Tool: "write_file", Args: forbidden}, {Text: "all done"},
				})
				c := agent(p, modules, model.server.URL, d)
				c.Dir = p.work
				out, err := c.CombinedOutput()
				if err != nil || !strings.Contains(string(out), "all done") {
					t.Fatalf("%s: %v\n%s", way, err, out)
				}
				for _, tool := range []string{"read_text_file", "write_file", "directory_tree"} {
					if !slices.ContainsFunc(model.tools, func(known string) bool { return strings.HasSuffix(known, tool) }) {
						t.Errorf("%s: the model was offered %q, and no %s", way, model.tools, tool)
					}
				}
				if seen := model.results(); len(seen) != 2 || !strings.Contains(seen[0], secret) || !strings.Contains(seen[1], clause) {
					t.Errorf("%s: the model was told %q", way, seen)
				}
			}
			p.recorded(len(doors))
		})
	}
}

// codex is Codex with the model at provider and ringfence behind d.
func codex(p *place, modules, provider string, d door) *exec.Cmd {
	var server string
	if d.url == "" {
		server = "command = " + text(d.command[0]) + "\nargs = " + text(d.command[1:]) + "\nenv_vars = [\"RINGFENCE_HOME\"]"
	} else {
		server = `url = "` + d.url + "\"\nbearer_token_env_var = \"RINGFENCE_TOKEN\""
	}
	p.file(p.home+"/.codex/config.toml", `model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "`+provider+`/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[mcp_servers.ringfence]
`+server+`
startup_timeout_sec = 60
default_tools_approval_mode = "approve"
`)
	c := exec.Command(filepath.Join(modules, ".bin", "codex"), "exec", "--skip-git-repo-check", "-s", "read-only", "Read the word.")
	c.Env = append(p.env, "OPENAI_API_KEY=test-key", "RINGFENCE_TOKEN="+d.token, "CODEX_HOME="+p.home+"/.codex")
	return c
}

// gemini is Gemini CLI with the model at provider and ringfence behind d.
func gemini(p *place, modules, provider string, d door) *exec.Cmd {
	server := map[string]any{"trust": true}
	if d.url != "" {
		server["httpUrl"], server["headers"] = d.url, map[string]string{"Authorization": "Bearer " + d.token}
	} else {
		server["command"], server["args"] = d.command[0], d.command[1:]
	}
	p.file(p.home+"/.gemini/settings.json", text(map[string]any{
		"mcpServers": map[string]any{"ringfence": server},
		"security":   map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"privacy":    map[string]any{"usageStatisticsEnabled": false},
		"general":    map[string]any{"enableAutoUpdate": false},
	}))
	c := exec.Command(filepath.Join(modules, ".bin", "gemini"), "-m", "gemini-2.5-flash", "--skip-trust", "--approval-mode", "yolo", "-p", "Read the word.")
	c.Env = append(p.env, "GEMINI_API_KEY=test-key", "GOOGLE_GEMINI_BASE_URL="+provider)
	return c
}

// opencode is OpenCode with the model at provider and ringfence behind d.
func opencode(p *place, modules, provider string, d door) *exec.Cmd {
	server := map[string]any{"type": "local", "command": d.command, "timeout": 60000}
	if d.url != "" {
		server = map[string]any{"type": "remote", "url": d.url, "headers": map[string]string{"Authorization": "Bearer " + d.token}, "oauth": false}
	}
	config := p.file(p.home+"/opencode.json", text(map[string]any{
		"mcp": map[string]any{"ringfence": server},
		"provider": map[string]any{"scripted": map[string]any{
			"npm": "@ai-sdk/anthropic", "options": map[string]string{"baseURL": provider + "/v1", "apiKey": "test-key"},
			"models": map[string]any{"scripted": map[string]any{"name": "scripted", "tool_call": true}},
		}},
		"model": "scripted/scripted", "small_model": "scripted/scripted", "autoupdate": false, "share": "disabled",
	}))
	// Without install scripts its program is in the package of the machine alone.
	program := "opencode-" + runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	c := exec.Command(filepath.Join(modules, program, "bin", "opencode"), "run", "Read the word.")
	c.Env = append(p.env, "OPENCODE_CONFIG="+config, "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1")
	return c
}

// TestInspector: the command line of the MCP inspector lists the tools, has a call
// allowed and one denied, over both ways.
func TestInspector(t *testing.T) {
	modules := node(t)
	t.Parallel()
	p, doors := doors(t)
	for way, d := range doors {
		to := slices.Concat(d.command, []string{"-e", "RINGFENCE_HOME=" + p.own})
		if d.url != "" {
			to = []string{d.url, "--transport", "http", "--header", "Authorization: Bearer " + d.token}
		}
		for _, c := range []struct {
			want string
			args []string
		}{
			{"directory_tree", []string{"--method", "tools/list"}},
			{secret, []string{"--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=a.txt"}},
			{clause, []string{"--method", "tools/call", "--tool-name", "write_file", "--tool-arg", "path=kept.txt", "content=x"}},
		} {
			run := exec.Command(filepath.Join(modules, ".bin", "mcp-inspector"), slices.Concat([]string{"--cli"}, to, c.args)...)
			run.Dir, run.Env = p.work, p.env
			if out, err := run.CombinedOutput(); !strings.Contains(string(out), c.want) {
				t.Errorf("%s: %q: %v\n%s", way, c.args, err, out)
			}
		}
	}
	p.recorded(len(doors))
}

// text is v in JSON. It is made of strings, lists and maps alone.
func text(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}
