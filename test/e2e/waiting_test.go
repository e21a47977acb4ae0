//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/agent/external"
)

// asked returns the identifier of each question, as it comes, until the test ends.
func (p *place) asked() func() string {
	p.t.Helper()
	watch := p.command("approvals", "watch", "--json")
	out, err := watch.StdoutPipe()
	if err == nil {
		err = watch.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = watch.Process.Kill() // it has nothing to lose
		_ = watch.Wait()
	})
	events := json.NewDecoder(out)
	return func() string {
		p.t.Helper()
		for {
			var ev struct {
				Kind     string `json:"kind"`
				Question struct {
					ID string `json:"id"`
				} `json:"question"`
			}
			if err := events.Decode(&ev); err != nil {
				p.t.Fatalf("waiting for a question: %v", err)
			}
			if ev.Kind == "asked" {
				return ev.Question.ID
			}
		}
	}
}

// TestClaudeCodeWaits: Claude Code limits how long a call may take, and what it hears meanwhile
// does not extend that; our adapter sets the limit to an hour. Two agents wait for a person. One
// has a limit of two seconds, and gives up. Only then is the other approved, which has that of
// the adapter: it has waited longer than the first, and goes on.
func TestClaudeCodeWaits(t *testing.T) {
	modules := node(t)
	p := newPlace(t)
	asked := p.asked()
	known, ok, err := external.Lookup("claude")
	if err != nil || !ok {
		t.Fatalf("no adapter for claude, %v", err)
	}
	servers := p.servers(map[string]any{"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}}})
	rules := p.policy("may do anything in the workspace", "must ask before writing files in the workspace")
	start := func(name, whole string) (*provider, func() string) {
		url, token := p.listen("--agent", "claude", "--servers", servers, "--policy", rules)
		model := newProvider(t, []turn{{Tool: "write_file", Args: `{"path":"` + name + `","content":"x"}`}, {Text: "all done"}})
		config := p.file(filepath.Join(p.home, name+".json"), text(map[string]any{"mcpServers": map[string]any{"ringfence": map[string]any{
			"type": "http", "url": url, "headers": map[string]string{"Authorization": "Bearer " + token},
		}}}))
		agent := exec.Command(filepath.Join(modules, ".bin", "claude"), "-p", "Write.", "--mcp-config", config, "--strict-mcp-config",
			"--tools", "", "--allowedTools", "mcp__ringfence", "--output-format", "json")
		agent.Dir = p.work
		agent.Env = slices.Clone(p.env)
		for name, value := range known.Environment {
			agent.Env = append(agent.Env, name+"="+value)
		}
		agent.Env = append(agent.Env, "ANTHROPIC_BASE_URL="+model.server.URL, "ANTHROPIC_API_KEY=test-key")
		if whole != "" {
			agent.Env = append(agent.Env, "MCP_TOOL_TIMEOUT="+whole)
		}
		var said strings.Builder
		agent.Stdout, agent.Stderr = &said, &said
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		return model, func() string {
			if err := agent.Wait(); err != nil || !strings.Contains(said.String(), "all done") {
				t.Errorf("claude, which writes %s: %v\n%s", name, err, said.String())
			}
			return strings.Join(model.results(), "\n")
		}
	}
	patient, goesOn := start("patient", "")
	question := asked()
	_, givesUp := start("hasty", "2000")
	asked()
	if told := givesUp(); !strings.Contains(told, "timed out") {
		t.Errorf("the model that gave up was told %q", told)
	}
	if told := patient.results(); len(told) > 0 {
		t.Errorf("before anybody answered the other was told %q", told)
	}
	p.ok("approvals", "approve", question)
	if told := goesOn(); !strings.Contains(told, "Successfully wrote") {
		t.Errorf("the model that waited was told %q", told)
	}
	if _, err := os.Stat(filepath.Join(p.work, "patient")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(p.work, "hasty")); err == nil {
		t.Error("what nobody approved was done")
	}
}
