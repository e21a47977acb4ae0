//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var atURL = regexp.MustCompile(`^MCP at (\S+/mcp), with the token in (\S+)$`)

// listen starts ringfence mcp at a loopback address, and returns the URL and the token.
func (p *place) listen(args ...string) (url, token string) {
	p.t.Helper()
	c := p.command(append([]string{"mcp", "-w", p.work, "--listen", "127.0.0.1:0"}, args...)...)
	errs, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			p.t.Error(err)
		}
		if err := c.Wait(); err != nil {
			p.t.Errorf("ringfence mcp --listen ended with %v", err)
		}
	})
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		p.t.Log(lines.Text())
		m := atURL.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		go func() {
			for lines.Scan() {
			}
		}()
		text, err := os.ReadFile(m[2])
		if err != nil {
			p.t.Fatal(err)
		}
		return m[1], strings.TrimSpace(string(text))
	}
	p.t.Fatal("ringfence does not listen")
	return "", ""
}

// TestClaudeCodeHTTP: Claude Code reaches ringfence over HTTP with the token, reads a file
// and is denied another; without the token it has no tools.
func TestClaudeCodeHTTP(t *testing.T) {
	modules := node(t)
	p := newPlace(t)
	p.file("a.txt", "the word is swordfish\n")
	servers := p.servers(map[string]any{"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}}})
	url, token := p.listen("--agent", "claude", "--servers", servers, "--policy", p.policy("may do anything in the workspace"), "--ask", "never")
	claude := func(token, says string, turns ...turn) *provider {
		model := newProvider(t, turns)
		config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"ringfence": map[string]any{
			"type": "http", "url": url, "headers": map[string]string{"Authorization": "Bearer " + token},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		agent := exec.Command(filepath.Join(modules, ".bin", "claude"), "-p", "Read the word.",
			"--mcp-config", p.file(p.home+"/mcp.json", string(config)), "--strict-mcp-config",
			"--tools", "", "--allowedTools", "mcp__ringfence", "--output-format", "json")
		agent.Dir = p.work
		agent.Env = append(p.env,
			"ANTHROPIC_BASE_URL="+model.server.URL, "ANTHROPIC_API_KEY=test-key",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "IS_SANDBOX=1")
		out, err := agent.CombinedOutput()
		if err != nil || !strings.Contains(string(out), says) {
			t.Fatalf("claude: %v\n%s", err, out)
		}
		return model
	}
	model := claude(token, "all done", turn{Tool: "read_text_file", Args: `{"path":"a.txt"}`},
		turn{Tool: "write_file", Args: `{"path":"` + p.home + `/outside.txt","content":"x"}`}, turn{Text: "all done"})
	if seen := model.results(); len(seen) != 2 || !strings.Contains(seen[0], "swordfish") || !strings.Contains(seen[1], "denied") {
		t.Errorf("the model was told %q", seen)
	}
	claude(strings.Repeat("x", len(token)), `"result":"ok"`, turn{Text: "there are tools"})
	if got, want := p.calls(), []string{"filesystem.read_text_file allow", "filesystem.write_file deny policy"}; !slices.Equal(got, want) {
		t.Errorf("on record: %q\nwant %q", got, want)
	}
	p.ok("ledger", "verify")
}
