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
)

// TestClaudeCode: Claude Code, with a scripted model and no tools but ours, reads
// a file (allowed), writes outside the workspace (denied, and the model is told
// why), and pushes (a person approves from another process). The record shows
// exactly that.
func TestClaudeCode(t *testing.T) {
	modules := node(t)
	p := newPlace(t)
	p.file("a.txt", "the word is swordfish\n")
	remote := p.repository()
	model := newProvider(t, []turn{
		{Tool: "filesystem__read_text_file", Args: `{"path":"a.txt"}`},
		{Tool: "filesystem__write_file", Args: `{"path":"` + p.home + `/outside.txt","content":"x"}`},
		{Tool: "git__git_push", Args: `{"path":"` + p.work + `","remote":"origin","branch":"main"}`},
		{Text: "all done"},
	})
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"ringfence": map[string]any{
		"command": "ringfence",
		"args": []string{"mcp", "-w", p.work, "--agent", "claude", "--servers", p.servers(map[string]any{
			"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}},
			"git":        map[string]any{"ringfence": map[string]any{"builtin": "git", "paths": []string{filepath.Dir(remote)}}},
		}), "--policy", p.policy("may do anything in the workspace", "may read anything", "may write files in ~/remotes", "must ask before pushing")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	approved := p.approver()
	agent := exec.Command(filepath.Join(modules, ".bin", "claude"), "-p", "Read the word and push.",
		"--mcp-config", p.file(p.home+"/mcp.json", string(config)), "--strict-mcp-config",
		"--tools", "", "--allowedTools", "mcp__ringfence", "--output-format", "json")
	agent.Dir = p.work
	agent.Env = append(p.env,
		"ANTHROPIC_BASE_URL="+model.server.URL, "ANTHROPIC_API_KEY=test-key",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "IS_SANDBOX=1")
	out, err := agent.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all done") {
		t.Fatalf("claude: %v\n%s", err, out)
	}
	seen := model.results()
	if len(seen) != 3 || !strings.Contains(seen[0], "swordfish") || !strings.Contains(seen[1], "outside.txt") || !strings.Contains(seen[1], "denied") {
		t.Errorf("the model was told %q", seen)
	}
	if approved() != 1 {
		t.Errorf("a person was asked %d times", approved())
	}
	if got, want := p.calls(), []string{
		"filesystem.read_text_file allow", "filesystem.write_file deny policy", "asked", "git.git_push allow",
	}; !slices.Equal(got, want) {
		t.Errorf("on record: %q\nwant %q", got, want)
	}
	if _, err := os.Stat(p.home + "/outside.txt"); err == nil {
		t.Error("the file outside was written")
	}
	if out, err := git(remote, "rev-parse", "main"); err != nil {
		t.Errorf("nothing was pushed: %s", out)
	}
	p.ok("ledger", "verify")
}

// repository makes the workspace a repository with one commit and a bare remote,
// whose path it returns.
func (p *place) repository() string {
	p.t.Helper()
	remote := filepath.Join(p.home, "remotes", "r.git")
	for _, c := range [][]string{
		{p.home, "init", "-q", "--bare", remote},
		{p.work, "init", "-q", "-b", "main"},
		{p.work, "add", "."},
		{p.work, "-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-q", "-m", "first"},
		{p.work, "remote", "add", "origin", remote},
	} {
		if out, err := git(c[0], c[1:]...); err != nil {
			p.t.Fatalf("git %v: %v %s", c[1:], err, out)
		}
	}
	return remote
}

func git(dir string, args ...string) (string, error) {
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := c.CombinedOutput()
	return string(out), err
}
