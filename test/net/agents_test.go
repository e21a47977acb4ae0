//go:build linux

package net_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/test/rig"
)

// An agent is one from npm, as it is started in a box.
type agent struct {
	name, provider string
	variable, key  string
	over           string // what it says when a budget is used up
	streams        bool   // it shows what it gets at once
	kept           bool   // its key is in the vault, and in no environment
	argv           func(p *place, at string) []string
}

var agents = []agent{
	{"claude", "anthropic", "ANTHROPIC_API_KEY", "sk-ant-api03-From7The8Environment9Of0The1Client2Only3", "is used up", true, false, func(p *place, at string) []string {
		return []string{
			"--env", "ANTHROPIC_BASE_URL=" + at, "--env", "IS_SANDBOX=1", "--",
			filepath.Join(p.node, ".bin", "claude"), "-p", "Look around.", "--dangerously-skip-permissions",
			"--output-format", "stream-json", "--include-partial-messages", "--verbose",
		}
	}},
	{"codex", "openai", "OPENAI_API_KEY", "sk-proj-Of4The5Other6Provider7From8The9Environment0Too", "Quota exceeded", false, true, func(p *place, at string) []string {
		script := `mkdir -p "$CODEX_HOME" && exec "$0" "$@"`
		return []string{
			"--env", "CODEX_HOME=/tmp/codex", "--", "/bin/sh", "-c", script,
			filepath.Join(p.node, ".bin", "node"), filepath.Join(p.node, "@openai", "codex", "bin", "codex.js"), "exec", "--skip-git-repo-check",
			"--dangerously-bypass-approvals-and-sandbox", "--json", "-c", "model_provider=scripted", "-c", "model=scripted",
			"-c", `model_providers.scripted={name="scripted",base_url="` + at + `/v1",wire_api="responses",env_key="OPENAI_API_KEY"}`, "Look around.",
		}
	}},
}

// working is what the policy allows an agent.
func working(a agent) []string {
	return []string{"The agent may do anything in the workspace.", "The agent may run any command.", "The agent may read any file.", "The agent may use the models " + a.provider + "/*."}
}

// agentPlace is a place whose models are at a server of its own, and what the policy allows
// there.
func agentPlace(t *testing.T, a agent, command string) (*place, *model, string) {
	t.Helper()
	p := newPlace(t)
	if p.node == "" {
		p.need(t, reachCase{needs: []string{"newer-node"}})
	}
	m, port := newModel(t, p.world, command)
	at := "https://" + modelsAt + ":" + port
	path := ""
	if a.provider == "openai" {
		path = "/v1"
	}
	config, err := json.Marshal(object{
		"network": object{"resolver": p.world.resolver, "private": []string{"127.0.0.0/8", "::1/128"}, "ca": []string{p.world.ca}},
		"models":  object{"providers": []object{{"name": a.provider, "url": at + path}}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Own, "config.json"), config, 0o600)
	}
	if err == nil {
		p.policy, err = p.Policy(t.Context(), working(a)...)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a.kept {
		set := p.Command(t.Context(), "secret", "set", a.provider)
		set.Stdin = strings.NewReader(a.key + "\n")
		if out, err := set.CombinedOutput(); err != nil || !strings.Contains(string(out), modelsAt+":"+port) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return p, m, at
}

// boxed is ringfence with args and a, in a box that has a network and a's key on loan.
func (p *place) boxed(ctx context.Context, a agent, at string, args ...string) *exec.Cmd {
	cmd := p.Command(ctx, slices.Concat([]string{"run", "--ask", "never", "--net", "policy", "--policy", p.policy, "--ro", p.node}, args, a.argv(p, at))...)
	if !a.kept {
		cmd.Env = append(cmd.Env, a.variable+"="+a.key)
	}
	return cmd
}

// TestAgents: agents from npm work in a box with a key that they do not have. What they ask
// of models is decided and metered, and comes as it is said.
func TestAgents(t *testing.T) {
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			p, m, at := agentPlace(t, a, "env >environment; cat /proc/[0-9]*/environ | tr '\\0' '\\n' >of-others; echo looked")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := p.boxed(ctx, a, at)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			searched := make(chan struct{})
			go func() {
				defer close(searched)
				select {
				case <-m.reached:
				case <-ctx.Done():
					return
				}
				if found, looked, err := rig.InBoxes(cmd.Process.Pid, rig.Forms(a.key)); err != nil || looked == 0 || len(found) > 0 {
					t.Errorf("looked at %d processes, and found the key in %q, %v", looked, found, err)
				}
				if !a.streams {
					close(m.seen)
				}
			}()
			said := m.watch(out, func() {
				<-searched
				if a.streams {
					close(m.seen)
				}
			})
			if err := cmd.Wait(); err != nil || !strings.Contains(said, "all done") {
				t.Fatalf("%v\n%s\n%s", err, said, errs.Bytes())
			}
			p.kept(t, a, m)
		})
	}
}

// kept checks that nobody but the model has the key of a, and that what was asked is on
// record.
func (p *place) kept(t *testing.T, a agent, m *model) {
	t.Helper()
	asked, keys, sent := m.heard()
	if !m.held || len(asked) != 1 || len(keys) != 1 || strings.TrimPrefix(keys[0], "Bearer ") != a.key || !strings.Contains(sent, "looked") {
		t.Errorf("held %v, asked %q, with the keys %q", m.held, asked, keys)
	}
	var sentinel string
	for _, name := range []string{"environment", "of-others"} {
		text, err := os.ReadFile(filepath.Join(p.Work, name))
		_, after, ok := strings.Cut("\n"+string(text), "\n"+a.variable+"=")
		if sentinel, _, _ = strings.Cut(after, "\n"); err != nil || !ok || len(sentinel) != len(a.key) || sentinel == a.key {
			t.Errorf("%s has %q for the key, %v", name, sentinel, err)
		}
	}
	if strings.Contains(sent, sentinel) {
		t.Error("what stands for the key went to the service")
	}
	if found, err := p.InFiles(rig.Forms(a.key)); err != nil || len(found) > 0 {
		t.Errorf("found the key in %q, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(p.Own, "control"), []byte("x"+sentinel+"x"), 0o600); err != nil {
		t.Error(err)
	}
	if found, err := p.InFiles([][]byte{[]byte(sentinel)}); err != nil || len(found) == 0 {
		t.Errorf("a search that finds nothing: %q, %v", found, err)
	}
	record, err := p.Run(t.Context(), "ledger", "show", "--json")
	for _, want := range []string{`"infer"`, a.provider + "/", `"use-secret"`, `"usage":{"input":100,"output":20`} {
		if err != nil || !strings.Contains(string(record), want) {
			t.Errorf("no %s on record, %v", want, err)
		}
	}
	if t.Failed() {
		t.Logf("%s", record)
	}
}

// TestBudgetOfAgents: a budget that is used up ends an answer, and what is asked after it.
func TestBudgetOfAgents(t *testing.T) {
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			p, m, at := agentPlace(t, a, "echo looked")
			close(m.seen)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out, err := p.boxed(ctx, a, at, "--budget-tokens", "150").CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(string(out), a.over) {
				t.Errorf("%v\n%s", err, out)
			}
			record, err := p.Run(ctx, "net", "log")
			if err != nil || !strings.Contains(string(record), ": the budget is used up\n") || len(m.bodies) > 2 {
				t.Errorf("asked %d times, %v\n%s", len(m.bodies), err, record)
			}
		})
	}
}

// TestModelsByHand: what a program asks of a service is held to the list of what may be
// asked, to the key on loan, and to what the service does not do by itself.
func TestModelsByHand(t *testing.T) {
	a := agents[0]
	p, m, at := agentPlace(t, a, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a.argv = func(*place, string) []string {
		return []string{"--env", "AT=" + at, "--", "/bin/sh", "-c", `
ask() { path=$1; shift; curl -sS -w ' %{http_code}\n' -H 'content-type: application/json' "$@" "$AT$path"; }
body='{"model":"m","stream":true,"messages":[],"tools":[{"name":"mine","input_schema":{}},{"type":"web_search_20250305","name":"web_search"}],"mcp_servers":[]}'
echo "foreign $(ask /v1/messages -H 'x-api-key: sk-ant-api03-Of5Somebody6Else7Who8Is9Not0Here1' -d "$body")"
echo "both $(ask /v1/messages -H "x-api-key: $ANTHROPIC_API_KEY" -H 'authorization: Bearer other' -d "$body")"
echo "elsewhere $(ask /v1/files -H "x-api-key: $ANTHROPIC_API_KEY" -d "$body")"
echo "misplaced $(ask /v1/messages -H "x-other: $ANTHROPIC_API_KEY" -d "$body")"
echo "fetches $(ask /v1/messages -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://x.example/"}}]}]}')"
echo "head $(curl -sSI -o /dev/null -w '%{http_code}' "$AT/")"
echo "telemetry $(ask /api/event_logging/batch -d '{}')"
echo "counted $(ask /v1/messages/count_tokens -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"model":"m","messages":[]}')"
ask /v1/messages -N -H "x-api-key: $ANTHROPIC_API_KEY" -d "$body"`}
	}
	cmd := p.boxed(ctx, a, at)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := m.watch(out, func() { close(m.seen) })
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, errs.Bytes())
	}
	for _, want := range []string{
		`foreign {"error":{"message":"the request has a key of its own`, `both {"error":{"message":"the request has a key of its own`,
		`elsewhere {"error":`, `misplaced {"error":{"message":"denied: what stands for the secret anthropic is not in the place`,
		`fetches {"error":{"message":"it has the service fetch https://x.example/`, "head 403\n", "telemetry {} 200\n", `counted {"input_tokens":1} 200`, ", all done",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %s in\n%s%s", want, said, errs.Bytes())
		}
	}
	asked, keys, sent := m.heard()
	if want := []string{"POST /v1/messages/count_tokens", "POST /v1/messages"}; !slices.Equal(asked, want) || !slices.Equal(keys, []string{a.key}) || !m.held {
		t.Errorf("asked %q with %q, held %v", asked, keys, m.held)
	}
	if strings.Contains(sent, "web_search") || strings.Contains(sent, "mcp_servers") || !strings.Contains(sent, `"mine"`) {
		t.Errorf("the service was sent %s", sent)
	}
}

// watch returns what out says, and calls seen once the first half of an answer is there.
func (m *model) watch(out io.Reader, seen func()) string {
	var said strings.Builder
	for in := bufio.NewReader(out); ; {
		line, err := in.ReadString('\n')
		said.WriteString(line)
		if seen != nil && strings.Contains(line, "the first half") {
			seen()
			seen = nil
		}
		if err != nil {
			return said.String()
		}
	}
}
