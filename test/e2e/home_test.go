//go:build unix

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A place is one person's machine: a home, ringfence's own home, a workspace.
type place struct {
	t         *testing.T
	home, own string
	work      string
	env       []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "rf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := endHome(dir); err != nil {
			t.Error(err)
		}
	})
	p := &place{t: t, home: dir + "/person", own: dir + "/home", work: dir + "/person/work"}
	if err := os.MkdirAll(p.work, 0o700); err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	if node := os.Getenv("RINGFENCE_TEST_NODE_DIR"); node != "" {
		path = filepath.Join(node, "node_modules", ".bin") + ":" + path
	}
	p.env = []string{"HOME=" + p.home, "RINGFENCE_HOME=" + p.own, "PATH=" + path, "TMPDIR=" + os.TempDir()}
	return p
}

// node returns the folder of npm packages, or skips the test where a person has
// not installed them. In CI they must be there.
func node(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("RINGFENCE_TEST_NODE_DIR")
	if dir == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("RINGFENCE_TEST_NODE_DIR is not set; run make test")
		}
		t.Skip("needs node and npm packages: run make test")
	}
	return filepath.Join(dir, "node_modules")
}

// file writes a file of the place; a relative name is in the workspace.
func (p *place) file(name, content string) string {
	p.t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(p.work, name)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return name
}

// command is ringfence with args, in a POSIX session of its own, as if typed on
// another terminal.
func (p *place) command(args ...string) *exec.Cmd {
	c := exec.Command("ringfence", args...)
	c.Env, c.Dir = p.env, p.work
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c
}

// run runs ringfence and returns its output and status.
func (p *place) run(args ...string) (string, int) {
	p.t.Helper()
	var out, errs bytes.Buffer
	c := p.command(args...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if c.ProcessState == nil {
		p.t.Fatal(err)
	}
	return out.String() + errs.String(), c.ProcessState.ExitCode()
}

// ok is run for what must end with status 0.
func (p *place) ok(args ...string) string {
	p.t.Helper()
	out, status := p.run(args...)
	if status != 0 {
		p.t.Fatalf("ringfence %s: status %d\n%s", strings.Join(args, " "), status, out)
	}
	return out
}

// policy compiles a constitution and returns the bundle's directory.
func (p *place) policy(lines ...string) string {
	p.t.Helper()
	text := p.file(p.home+"/constitution.md", "- "+strings.Join(lines, "\n- ")+"\n")
	p.ok("constitution", "compile", text, "-o", p.home+"/bundle")
	return p.home + "/bundle"
}

// servers writes an mcpServers file.
func (p *place) servers(list map[string]any) string {
	p.t.Helper()
	data, err := json.Marshal(map[string]any{"mcpServers": list})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.file(p.home+"/servers.json", string(data))
}

// mcp starts ringfence mcp and connects to it.
func (p *place) mcp(args ...string) *mcp.ClientSession {
	p.t.Helper()
	return connect(p.t, p.command(append([]string{"mcp", "-w", p.work}, args...)...))
}

func connect(t *testing.T, c *exec.Cmd) *mcp.ClientSession {
	t.Helper()
	c.Stderr = logger{t}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := client.Connect(ctx, &mcp.CommandTransport{Command: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

type logger struct{ t *testing.T }

func (l logger) Write(b []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}

// call calls a tool and returns its text and whether it failed.
func call(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) (string, bool) {
	t.Helper()
	r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("calling %s: %v", tool, err)
	}
	var text []string
	for _, c := range r.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text = append(text, c.Text)
		}
	}
	return strings.Join(text, "\n"), r.IsError
}

// A fact is what a test wants to know of an entry.
type fact struct {
	Session string `json:"session"`
	Type    string `json:"type"`
	Body    struct {
		Verb    string `json:"verb"`
		Tool    string `json:"tool"`
		Verdict string `json:"verdict"`
		Code    string `json:"code"`
		Box     any    `json:"box"`
		Effects []struct {
			Kind     string `json:"kind"`
			Resource struct {
				Text string `json:"text"`
			} `json:"resource"`
		} `json:"effects"`
		Approved any `json:"approved"`
	} `json:"body"`
}

// calls returns "tool verdict code" of every call on record, and "asked" for
// each question in between.
func (p *place) calls() []string {
	p.t.Helper()
	var out []string
	tool, verb := "", ""
	for line := range strings.Lines(p.ok("ledger", "show", "--json")) {
		var f fact
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			p.t.Fatal(err)
		}
		switch f.Type {
		case "request":
			tool, verb = f.Body.Tool, f.Body.Verb
		case "question":
			out = append(out, "asked")
		case "decision":
			if verb == "tools/call" {
				out = append(out, strings.TrimSpace(tool+" "+f.Body.Verdict+" "+f.Body.Code))
			}
		}
	}
	return out
}

// approver answers every question with yes, from another POSIX session, until
// the test ends. It returns a function that says how many it answered.
func (p *place) approver() func() int {
	p.t.Helper()
	watch := p.command("approvals", "watch", "--json")
	out, err := watch.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		p.t.Fatal(err)
	}
	answered := make(chan int, 1)
	answered <- 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		dec := json.NewDecoder(out)
		for {
			var ev struct {
				Kind     string `json:"kind"`
				Question struct {
					ID string `json:"id"`
				} `json:"question"`
			}
			if dec.Decode(&ev) != nil {
				return
			}
			if ev.Kind == "asked" {
				answered <- <-answered + 1 // before who waits goes on
				if out, status := p.run("approvals", "approve", ev.Question.ID); status != 0 {
					p.t.Errorf("approving: %d %s", status, out)
				}
			}
		}
	}()
	p.t.Cleanup(func() {
		_ = watch.Process.Kill() // it has nothing to lose
		<-done
		_ = watch.Wait()
	})
	return func() int {
		n := <-answered
		answered <- n
		return n
	}
}
