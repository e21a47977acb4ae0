//go:build unix

package e2e

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMC20RepositoryServers: a list of servers that lies in the workspace is not
// read, and nothing in it is started.
func TestMC20RepositoryServers(t *testing.T) {
	p := newPlace(t)
	canary := p.home + "/started"
	evil := `{"mcpServers":{"evil":{"command":"/usr/bin/touch","args":["` + canary + `"]}}}`
	for _, name := range []string{".mcp.json", "mcp.json", "servers.json", ".ringfence/config.json", ".env"} {
		p.file(name, evil)
	}
	s := p.mcp("--servers", p.servers(map[string]any{"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}}}))
	for name := range definitions(t, s) {
		if strings.Contains(name, "evil") {
			t.Errorf("%s is listed", name)
		}
	}
	if _, failed := call(t, s, "list_directory", map[string]any{"path": "."}); failed {
		t.Error("listing the workspace failed")
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("a server of the repository was started")
	}
}

// TestMC23BeyondTools: what is not decided is not there: resources and prompts are
// refused, and none is listed.
func TestMC23BeyondTools(t *testing.T) {
	p := newPlace(t)
	s := p.mcp("--servers", p.servers(map[string]any{"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}}}))
	ctx := context.Background()
	if _, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///etc/passwd"}); err == nil {
		t.Error("a resource was read")
	}
	if _, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: "x"}); err == nil {
		t.Error("a prompt was given")
	}
	if list, err := s.ListResources(ctx, nil); err == nil && len(list.Resources) > 0 {
		t.Errorf("resources are listed: %+v", list.Resources)
	}
}

// TestBuiltinsNeedNoReview: the definitions of our own servers are those that were
// shipped, so that all their tools are there at once.
func TestBuiltinsNeedNoReview(t *testing.T) {
	p := newPlace(t)
	servers := map[string]any{}
	for _, name := range []string{"filesystem", "git", "fetch"} {
		servers[name] = map[string]any{"ringfence": map[string]any{"builtin": name}}
	}
	s := p.mcp("--servers", p.servers(servers))
	count := map[string]int{}
	for name := range definitions(t, s) {
		server, _, _ := strings.Cut(name, "__")
		count[server]++
	}
	for server, want := range map[string]int{"filesystem": 15, "git": 28, "fetch": 1} {
		if count[server] != want {
			t.Errorf("%d tools of %s are listed, want %d", count[server], server, want)
		}
	}
	if out := p.ok("tools", "list"); !strings.Contains(out, "No definition waits") {
		t.Errorf("definitions of ours wait for review:\n%s", out)
	}
	if got := p.calls(); !slices.Equal(got, nil) {
		t.Errorf("calls on record: %q", got)
	}
}
