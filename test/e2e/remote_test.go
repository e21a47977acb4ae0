//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/act"
	"ringfence/internal/mediator"
	"ringfence/internal/mediator/remote"
)

// freePort is a port of the loopback interface that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// serve starts c, and returns when it listens on port, which it says on standard error.
func serve(t *testing.T, c *exec.Cmd, port string) {
	t.Helper()
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	lines := bufio.NewScanner(errs)
	for lines.Scan() {
		if strings.Contains(lines.Text(), port) {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, errs) }()
	for until := time.Now().Add(20 * time.Second); ; { // some say it before they do
		conn, err := net.Dial("tcp", "localhost:"+port)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not serve: %v", c, err)
		}
	}
}

// TestRemoteNPM: the reference server of npm, over both transports that it has, lists
// and answers through ringfence as it does without it; that nothing holds it is on record.
func TestRemoteNPM(t *testing.T) {
	program := node(t) + "/@modelcontextprotocol/server-everything/dist/index.js"
	for mode, c := range map[string]struct {
		kind, path string
		direct     func(url string) mcp.Transport
	}{
		"streamableHttp": {"http", "/mcp", func(url string) mcp.Transport { return &mcp.StreamableClientTransport{Endpoint: url} }},
		"sse":            {"sse", "/sse", func(url string) mcp.Transport { return &mcp.SSEClientTransport{Endpoint: url} }},
	} {
		t.Run(mode, func(t *testing.T) {
			p := newPlace(t)
			port := freePort(t)
			server := p.plain([]string{"node", program, mode})
			server.Env = append(slices.Clone(server.Env), "PORT="+port)
			serve(t, server, port)
			url := "http://localhost:" + port + c.path
			s := p.mcp("--servers", p.servers(map[string]any{
				"far": map[string]any{"url": url, "type": c.kind, "ringfence": map[string]any{"annotations": "everything"}},
			}), "--policy", p.policy("may use far.*"))
			direct, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), c.direct(url), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer direct.Close()
			want, got := definitions(t, direct), definitions(t, s)
			for name, def := range got {
				if want[name] != def {
					t.Errorf("%s is listed as\n%s\nwithout us it is\n%s", name, def, want[name])
				}
			}
			if got["echo"] == "" || got["get-sum"] == "" {
				t.Errorf("listed are only %d tools", len(got))
			}
			for tool, args := range map[string]map[string]any{"echo": {"message": "ping ✓"}, "get-sum": {"a": 2, "b": 3}} {
				a, afailed := call(t, direct, tool, args)
				b, bfailed := call(t, s, tool, args)
				if a != b || afailed || bfailed {
					t.Errorf("%s: %q through us, %q without", tool, b, a)
				}
			}
			p.ok("servers", "restart", "far")
			if out := p.ok("servers", "list", "--json"); !strings.Contains(out, `"name":"far","up":true,"box":"`+remote.NotHeld) || !strings.Contains(out, `"starts":2`) {
				t.Errorf("after a restart: %s", out)
			}
			if text, failed := call(t, s, "echo", map[string]any{"message": "again"}); failed {
				t.Errorf("after a restart: %s", text)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if out := p.ok("servers", "list"); !strings.Contains(out, "No server runs") {
				t.Errorf("at the end: %s", out)
			}
			if out := p.ok("ledger", "show", "--json"); !strings.Contains(out, remote.NotHeld) {
				t.Errorf("that nothing holds it is not on record:\n%s", out)
			}
		})
	}
}

// TestRemoteElsewhere: a server on another machine is not reached where the policy has
// nothing of it, the others serve, and people read why.
func TestRemoteElsewhere(t *testing.T) {
	p := newPlace(t)
	list := p.servers(map[string]any{
		"far": map[string]any{"url": "https://example.com/mcp"}, "files": map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}},
	})
	var errs bytes.Buffer
	c := p.command("mcp", "-w", p.work, "--servers", list, "--ask", "never")
	c.Stderr = &errs
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: c}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	if text, failed := call(t, s, "far__anything", map[string]any{}); !failed || !strings.Contains(text, "could not be started") {
		t.Errorf("%v %s", failed, text)
	}
	if names := definitions(t, s); names["files__read_text_file"] == "" && names["files__read_file"] == "" {
		t.Errorf("the other server does not serve: %d tools", len(names))
	}
	_ = s.Close()
	if !strings.Contains(errs.String(), "denied: send https://example.com/mcp") {
		t.Errorf("why is not told:\n%s", errs.String())
	}
}

// An allower allows everything and replies what came.
type allower struct{}

func (allower) Decide(_ context.Context, r act.Request) (act.Ticket, error) {
	return act.Ticket{ID: "t", Verb: r.Verb, Tool: r.Tool, Verdict: act.Allow, Bytes: r.Args}, nil
}

func (allower) Finish(_ context.Context, _ act.Ticket, o act.Outcome) (act.Reply, error) {
	return act.Reply{Body: o.Body}, nil
}

// TestRemoteBytes: what the everything server of the Go SDK answers, with sessions and
// without, comes through byte for byte.
func TestRemoteBytes(t *testing.T) {
	program := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	calls := []string{
		`{"name":"test_simple_text","arguments":{}}`, `{"name":"test_image_content","arguments":{}}`, `{"name":"test_audio_content","arguments":{}}`,
		`{"name":"test_embedded_resource","arguments":{}}`, `{"name":"test_multiple_content_types","arguments":{}}`, `{"name":"test_error_handling","arguments":{}}`,
	}
	for mode, stateless := range map[string]string{"sessions": "false", "requests": "true"} {
		t.Run(mode, func(t *testing.T) {
			port := freePort(t)
			address := "127.0.0.1:" + port
			serve(t, exec.Command(program, "-http", address, "-stateless="+stateless), port)
			o := mediator.Options{
				Decider: allower{}, Starter: remote.New(remote.Options{}), Session: "s", Principal: "p/a",
				Servers: []mediator.Server{{Name: "far", URL: "http://" + address}},
				MayAsk:  []string{}, // or a server would be spoken to in the era of the first client
			}
			m, err := mediator.New(o)
			if err != nil {
				t.Fatal(err)
			}
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- m.Run(context.Background(), inR, outW); outW.Close() }()
			answers := bufio.NewReader(outR)
			ask := func(line string) string {
				_, _ = io.WriteString(inW, line+"\n")
				got, err := answers.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSuffix(got, "\n")
			}
			ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
			direct := newDirect(t, "http://"+address, stateless == "true")
			for i, params := range calls {
				got := ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, i+10, params))
				if want := direct.call(i+10, params); got != want {
					t.Errorf("%s\nthrough us %.300s\nwithout us %.300s", params, got, want)
				}
			}
			inW.Close()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// A direct speaks to a server without us.
type direct struct {
	t         *testing.T
	url       string
	session   string
	stateless bool
}

func newDirect(t *testing.T, url string, stateless bool) *direct {
	d := &direct{t: t, url: url, stateless: stateless}
	if !stateless {
		d.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		d.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return d
}

func (d *direct) call(id int, params string) string {
	if d.stateless {
		params = strings.TrimSuffix(params, "}") + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`
	}
	return d.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, id, params))
}

// post returns the message that answers line.
func (d *direct) post(line string) string {
	d.t.Helper()
	r, err := http.NewRequest(http.MethodPost, d.url, strings.NewReader(line))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if d.session != "" {
		r.Header.Set("Mcp-Session-Id", d.session)
	}
	if d.stateless {
		name, _, _ := strings.Cut(strings.SplitN(line, `"name":"`, 2)[1], `"`)
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", name)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" {
		d.session = s
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	text := string(body)
	if _, data, ok := strings.Cut(text, "data: "); ok {
		text = data
	}
	return strings.TrimSpace(text)
}
