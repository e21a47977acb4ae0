package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/mediator"
	"ringfence/internal/sys/ipc"
)

type allower struct{}

func (allower) Decide(_ context.Context, r act.Request) (act.Ticket, error) {
	return act.Ticket{ID: "t", Verb: r.Verb, Tool: r.Tool, Verdict: act.Allow, Bytes: r.Args}, nil
}

func (allower) Finish(_ context.Context, _ act.Ticket, o act.Outcome) (act.Reply, error) {
	return act.Reply{Body: o.Body}, nil
}

// A starter starts servers that list one tool, answer pings and say what they hear on
// standard error; "broken" cannot be started.
type starter struct{}

func (starter) Start(_ context.Context, s mediator.Server) (*mediator.Process, error) {
	if s.Name == "broken" {
		return nil, errors.New("no such program")
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer outW.Close()
		defer errW.Close()
		lines := bufio.NewScanner(inR)
		for lines.Scan() {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.Unmarshal(lines.Bytes(), &m)
			result := `{}`
			switch m.Method {
			case "initialize":
				result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`
			case "tools/list":
				result = `{"tools":[{"name":"a"}]}`
			}
			_, _ = fmt.Fprintf(errW, "heard %s\n", m.Method)
			if m.ID != nil {
				_, _ = fmt.Fprintf(outW, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
			}
		}
	}()
	end := func() { _ = inR.Close() }
	return &mediator.Process{
		Stdin: inW, Stdout: outR, Stderr: errR, Terminate: end, Kill: end, Wait: func() error { <-ended; return nil }, Sessions: true,
	}, nil
}

// TestControl asks a running mediator everything that can be asked.
func TestControl(t *testing.T) {
	m, err := mediator.New(mediator.Options{
		Decider: allower{}, Starter: starter{}, MaxRestarts: 1, MayAsk: []string{}, Servers: []mediator.Server{{Name: "good", Command: "x"}, {Name: "broken", Command: "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	engine := filepath.Join(dir, "engine.sock")
	path := Path(engine, 4711)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	running := make(chan struct{})
	ran := make(chan error, 1)
	go func() {
		ran <- m.Serve(ctx, func(ctx context.Context) error { close(running); <-ctx.Done(); return nil })
	}()
	<-running
	go func() { served <- Serve(ctx, path, "s-1", m) }()
	ask := func(q Question) Answer {
		for {
			a, err := Ask(t.Context(), path, q)
			if err == nil {
				return a
			}
			if !notYet(err) {
				t.Fatal(err)
			}
		}
	}
	if a := ask(Question{What: Restart, Server: "good"}); a.Error != "" || a.Session != "s-1" {
		t.Errorf("restart: %+v", a)
	}
	a := ask(Question{What: List})
	if len(a.Servers) != 2 || !a.Servers[0].Up || a.Servers[0].Answers == 0 || a.Servers[0].Tools != 1 || a.Servers[0].Era != "sessions" {
		t.Errorf("list: %+v", a)
	}
	if b := a.Servers[1]; b.Up || !strings.Contains(b.Error, "no such program") {
		t.Errorf("list: %+v", b)
	}
	if a := ask(Question{What: Log, Server: "good"}); !strings.Contains(a.Log, "heard initialize\n") || !strings.Contains(a.Log, "heard ping\n") {
		t.Errorf("log: %+v", a)
	}
	for q, want := range map[Question]string{
		{What: Restart, Server: "broken"}: "no such program", {What: Log, Server: "god"}: `did you mean "good"?`,
		{What: Log, Server: "other"}: "there are good, broken", {What: "shutdown"}: "nobody knows",
	} {
		if a := ask(q); !strings.Contains(a.Error, want) {
			t.Errorf("%+v: %+v", q, a)
		}
	}
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: Path(engine, 4712), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	killed.SetUnlinkOnClose(false)
	if err := errors.Join(killed.Close(), SweepAll(engine)); err != nil { // the other is in use
		t.Error(err)
	}
	if got, err := Running(engine); err != nil || !slices.Equal(slices.Collect(maps.Keys(got)), []int{4711}) {
		t.Errorf("running: %v, %v", got, err)
	}
	ask(Question{What: List})
	cancel()
	if err := errors.Join(<-served, <-ran); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// notYet reports whether nobody listens yet.
func notYet(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// TestHostileQuestions: whatever is asked gets an answer or none, and the next is served.
func TestHostileQuestions(t *testing.T) {
	m, err := mediator.New(mediator.Options{Decider: allower{}, Starter: starter{}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m1")
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, path, "s", m) }()
	for _, raw := range []string{"", "{}", "[]", `{"What":"list","What":"log"}`, `{"What":"list","Other":1}`, strings.Repeat("[", 1<<20), `{"What":"restart"}`} {
		conn, err := ipc.Dial(t.Context(), path)
		for notYet(err) {
			conn, err = ipc.Dial(t.Context(), path)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, raw)
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		data, _ := io.ReadAll(conn)
		conn.Close()
		if len(data) > 0 && !strings.Contains(string(data), `"Error":"`) {
			t.Errorf("%.40q is answered with %s", raw, data)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
