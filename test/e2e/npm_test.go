//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestNPMServers: servers from npm behind ringfence, driven by the SDK's client,
// list and answer as they do without it.
func TestNPMServers(t *testing.T) {
	modules := node(t)
	p := newPlace(t)
	p.file("a.txt", "hello\n")
	fs := []string{"node", modules + "/@modelcontextprotocol/server-filesystem/dist/index.js", p.home}
	everything := []string{"node", modules + "/@modelcontextprotocol/server-everything/dist/index.js", "stdio"}
	s := p.mcp("--servers", p.servers(map[string]any{
		"filesystem": map[string]any{"command": fs[0], "args": fs[1:]},
		"everything": map[string]any{"command": everything[0], "args": everything[1:]},
	}), "--policy", p.policy("may do anything in the workspace", "may use everything.*"))

	want := map[string]string{}
	for name, argv := range map[string][]string{"filesystem": fs, "everything": everything} {
		for tool, def := range definitions(t, connect(t, p.plain(argv))) {
			want[name+"__"+tool] = def
		}
	}
	got := definitions(t, s)
	for name, def := range got {
		if want[name] != def {
			t.Errorf("%s is listed as\n%s\nwithout us it is\n%s", name, def, want[name])
		}
	}
	for _, name := range []string{"filesystem__read_text_file", "filesystem__write_file", "everything__echo"} {
		if got[name] == "" {
			t.Errorf("%s is not listed", name)
		}
	}

	if text, failed := call(t, s, "filesystem__read_text_file", map[string]any{"path": "a.txt"}); failed || text != "hello\n" {
		t.Errorf("reading: %v %q", failed, text)
	}
	if text, failed := call(t, s, "filesystem__write_file", map[string]any{"path": p.work + "/b.txt", "content": "x"}); failed {
		t.Errorf("writing: %s", text)
	}
	if text, failed := call(t, s, "filesystem__write_file", map[string]any{"path": p.home + "/out.txt", "content": "x"}); !failed || !strings.Contains(text, p.home+"/out.txt") {
		t.Errorf("writing outside: %v %s", failed, text)
	}
	if text, failed := call(t, s, "everything__echo", map[string]any{"message": "ping"}); failed || !strings.Contains(text, "ping") {
		t.Errorf("echo: %v %s", failed, text)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got, want := p.calls(), []string{
		"filesystem.read_text_file allow", "filesystem.write_file allow", "filesystem.write_file deny policy", "everything.echo allow",
	}; !slices.Equal(got, want) {
		t.Errorf("on record: %q\nwant %q", got, want)
	}
	p.ok("ledger", "verify")
}

// plain is argv run as it is, where the servers of the place run.
func (p *place) plain(argv []string) *exec.Cmd {
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir, c.Env = p.work, p.env
	if found, err := exec.LookPath(argv[0]); err == nil {
		c.Path = found
	}
	return c
}

// definitions returns every tool as JSON, without its name, by name.
func definitions(t *testing.T, s *mcp.ClientSession) map[string]string {
	t.Helper()
	all := map[string]string{}
	for tool, err := range s.Tools(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		name := tool.Name
		tool.Name = ""
		data, err := json.Marshal(tool)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(data)
	}
	return all
}
