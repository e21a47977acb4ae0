package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"ringfence/internal/daemon/api"
	"ringfence/test/rig"
)

// A mediating is one of us that listens, in front of our own filesystem server.
type mediating struct {
	*httpClient
	cmd   *exec.Cmd
	ended sync.WaitGroup
}

// mediates starts one; its client has a session.
func mediates(ctx context.Context, h *rig.Home) (*mediating, error) {
	servers, err := h.Servers(rig.Filesystem())
	if err != nil {
		return nil, err
	}
	policy, err := h.Policy(ctx, "may do anything in the workspace")
	if err != nil {
		return nil, err
	}
	m := &mediating{cmd: h.Command(ctx, "mcp", "--servers", servers, "--policy", policy, "--ask", "never", "--listen", "127.0.0.1:0", "-w", h.Work)}
	errs, err := m.cmd.StderrPipe()
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(errs)
	for m.httpClient == nil && lines.Scan() {
		if found := listensAt.FindStringSubmatch(lines.Text()); found != nil {
			token, err := os.ReadFile(found[2])
			if err != nil {
				return m, err
			}
			m.httpClient = newHTTPClient(found[1], strings.TrimSpace(string(token)))
		}
	}
	m.ended.Go(func() {
		_, _ = io.Copy(io.Discard, errs)
		_ = m.cmd.Wait() // it is interrupted
	})
	if m.httpClient == nil {
		return m, errors.New("it does not listen")
	}
	return m, m.session(ctx)
}

// session opens another session, which the client then is in.
func (m *mediating) session(ctx context.Context) error {
	m.header.Del("Mcp-Session-Id")
	m.header.Del("MCP-Protocol-Version")
	header, _, err := m.post(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`))
	if err != nil {
		return err
	}
	m.header.Set("Mcp-Session-Id", header.Get("Mcp-Session-Id"))
	m.header.Set("MCP-Protocol-Version", "2025-11-25")
	return nil
}

// read calls a tool that reads a small file.
func (m *mediating) read(ctx context.Context, file string) error {
	args, err := json.Marshal(map[string]string{"path": file})
	if err != nil {
		return err
	}
	_, text, err := m.post(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_text_file","arguments":%s}}`, 2+m.calls.Add(1), args))
	if err == nil && !strings.Contains(string(text), "one line of text") {
		err = fmt.Errorf("unexpected answer %s", text)
	}
	return err
}

func (m *mediating) close() {
	if m == nil {
		return
	}
	_ = m.cmd.Process.Signal(os.Interrupt) // it has ended already, which is as well
	m.ended.Wait()
}

// heldMemory measures what mediator and engine hold after much of what comes and goes, beside a
// Go program that does nothing.
func heldMemory(ctx context.Context, b *bench) error {
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	m, err := mediates(ctx, h)
	if err == nil {
		err = holdRows(ctx, b, h, m)
	}
	m.close()
	return errors.Join(err, h.Close())
}

func holdRows(ctx context.Context, b *bench, h *rig.Home, m *mediating) error {
	idle, err := idleMemory(ctx, b)
	if err != nil {
		return err
	}
	file := filepath.Join(h.Work, "small.txt")
	if err := os.WriteFile(file, []byte("one line of text\n"), 0o600); err != nil {
		return err
	}
	conn, err := h.Connect(ctx)
	if err != nil {
		return err
	}
	engine := conn.Hello().PID
	if err := conn.Close(); err != nil {
		return err
	}
	both := func(when string, n int) error {
		if n > 0 {
			when = fmt.Sprintf("after %s %s", grouped(float64(n)), when)
		}
		err := b.addMemory("memory of the mediator, "+when, m.cmd.Process.Pid, idle, 40)
		if err == nil && n > 0 { // the idle engine has a row
			err = b.addMemory("memory of the engine behind it, "+when, engine, idle, 60)
		}
		return err
	}
	if err := both("idle, its server in a box", 0); err != nil {
		return err
	}
	for _, c := range []struct {
		what string
		n    int
		do   func(n int) error
	}{
		{"calls", b.times(100_000), func(n int) error {
			var w crowd
			return w.window(many, n/many+1, func(int) error { return m.read(ctx, file) })
		}},
		{"sessions of clients", b.times(10_000), func(n int) error {
			for range n {
				if err := errors.Join(m.session(ctx), m.read(ctx, file)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"restarts of its server", b.times(100), func(n int) error {
			for range n {
				if _, err := h.Run(ctx, "servers", "restart", "filesystem"); err != nil {
					return err
				}
			}
			return m.read(ctx, file)
		}},
		{"sessions of the engine", b.times(10_000), func(n int) error { return sessionsOf(ctx, h, n) }},
	} {
		if err := c.do(c.n); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		if err := both(c.what, c.n); err != nil {
			return err
		}
	}
	return nil
}

// sessionsOf opens and closes n sessions of the engine.
func sessionsOf(ctx context.Context, h *rig.Home, n int) (err error) {
	c, err := h.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for range n {
		s, err := c.OpenSession(ctx, api.OpenRequest{Principal: "default/bench", Workspace: h.Work, Ask: api.AskNever})
		if err == nil {
			err = s.Close(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// coldRow measures us from nothing, the engine included, until initialize is answered.
func coldRow(ctx context.Context, b *bench) (err error) {
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	policy, err := h.Policy(ctx, "may do anything in the workspace")
	if err != nil {
		return err
	}
	servers, err := h.Servers(rig.Filesystem())
	if err != nil {
		return err
	}
	ours := func() (func() error, error) {
		m, err := h.MCP(ctx, policy, servers)
		if err != nil {
			return nil, err
		}
		return func() error {
			err := m.Close()
			_, stopped := h.Run(ctx, "engine", "stop", "--force")
			return errors.Join(err, stopped)
		}, nil
	}
	beside := func() (func() error, error) {
		m, err := h.Start(ctx, h.Command(ctx, "server", "filesystem", "--root", h.Work))
		if err != nil {
			return nil, err
		}
		return m.Close, nil
	}
	mine, theirs, err := startsInTurn(ctx, b.times(30), ours, beside)
	if err != nil {
		return err
	}
	b.add(latency("mediator from nothing, no engine runs yet: initialize is answered", mine, "the server started directly, no box", theirs))
	return nil
}
