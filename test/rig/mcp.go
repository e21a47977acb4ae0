package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// ErrGone says that the process at the other end ended.
var ErrGone = errors.New("the process has ended")

// An MCP is a client of an MCP server that is a child process. It does as little
// as a client can, so that what is measured is the server. Its methods may be
// called from any goroutine.
type MCP struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	write sync.Mutex
	done  chan struct{} // closed when the process was waited for

	mu      sync.Mutex
	next    int64
	pending map[int64]chan answer // nil: the process has ended
}

// A Result is the answer to a tools/call.
type Result struct {
	IsError bool
	Text    string // of the first block
	Code    string // of a denial, or of a failure of ours
	Ticket  string // the entry of the decision, as far as a failure names it
}

type answer struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// MCP starts the program in front of the servers of a file. It is killed when ctx
// ends.
func (h *Home) MCP(ctx context.Context, policy, servers string, more ...string) (*MCP, error) {
	args := []string{"mcp", "--servers", servers, "-w", h.Work, "--ask", "never"}
	if policy != "" {
		args = append(args, "--policy", policy)
	}
	return h.Start(ctx, h.Command(ctx, append(args, more...)...))
}

// Start starts an MCP server and greets it.
func (h *Home) Start(ctx context.Context, cmd *exec.Cmd) (*MCP, error) {
	log, err := os.OpenFile(h.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of clients: %w", err)
	}
	defer log.Close()
	cmd.Stderr = log
	m := &MCP{cmd: cmd, done: make(chan struct{}), pending: map[int64]chan answer{}}
	if m.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting an MCP server: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting an MCP server: %w", err)
	}
	go m.read(out)
	if err := m.greet(ctx); err != nil {
		m.Kill()
		return nil, fmt.Errorf("greeting an MCP server: %w", err)
	}
	return m, nil
}

// Log is the file that gets the standard error of every MCP server.
func (h *Home) Log() string { return filepath.Join(h.dir, "clients.log") }

func (m *MCP) greet(ctx context.Context) error {
	hello := json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}`)
	if _, err := m.ask(ctx, "initialize", hello); err != nil {
		return err
	}
	return m.send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

func (m *MCP) read(out io.Reader) {
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		var a answer
		if json.Unmarshal(line, &a) != nil || a.Result == nil && a.Error == nil {
			continue // a notification
		}
		m.mu.Lock()
		ch := m.pending[a.ID]
		delete(m.pending, a.ID)
		m.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
	_ = m.cmd.Wait() // how it ended is of no interest
	m.mu.Lock()
	for _, ch := range m.pending {
		close(ch)
	}
	m.pending = nil
	m.mu.Unlock()
	close(m.done)
}

func (m *MCP) send(line []byte) error {
	m.write.Lock()
	defer m.write.Unlock()
	if _, err := m.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// ask sends one request and returns its result.
func (m *MCP) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	ch := make(chan answer, 1)
	m.mu.Lock()
	if m.pending == nil {
		m.mu.Unlock()
		return nil, ErrGone
	}
	m.next++
	id := m.next
	m.pending[id] = ch
	m.mu.Unlock()
	if err := m.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)); err != nil {
		return nil, err
	}
	select {
	case a, ok := <-ch:
		switch {
		case !ok:
			return nil, ErrGone
		case a.Error != nil:
			return nil, fmt.Errorf("%s: %s", method, a.Error)
		}
		return a.Result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

// Tools returns the result of tools/list: {"tools":[…]}.
func (m *MCP) Tools(ctx context.Context) (json.RawMessage, error) {
	return m.ask(ctx, "tools/list", json.RawMessage(`{}`))
}

// Call calls a tool. The error is ErrGone if no answer can come any more.
func (m *MCP) Call(ctx context.Context, tool string, args json.RawMessage) (Result, error) {
	raw, err := m.ask(ctx, "tools/call", fmt.Appendf(nil, `{"name":%q,"arguments":%s}`, tool, args))
	if err != nil {
		return Result{}, err
	}
	if !bytes.Contains(raw, []byte(`"isError":true`)) {
		return Result{}, nil
	}
	var r struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Meta struct {
			Ringfence struct {
				Code   string `json:"code"`
				Ticket string `json:"ticket"`
			} `json:"ringfence"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return Result{}, fmt.Errorf("reading the result of %s: %w", tool, err)
	}
	out := Result{IsError: r.IsError, Code: r.Meta.Ringfence.Code, Ticket: r.Meta.Ringfence.Ticket}
	if len(r.Content) > 0 {
		out.Text = r.Content[0].Text
	}
	return out, nil
}

// Kill ends the process with SIGKILL and waits for it.
func (m *MCP) Kill() {
	_ = m.cmd.Process.Kill() // it has ended already, which is as well
	<-m.done
}

// Close ends the process as a client does: by closing its standard input.
func (m *MCP) Close() error {
	m.write.Lock()
	_ = m.in.Close() // it is closed already if the process has ended
	m.write.Unlock()
	select {
	case <-m.done:
		return nil
	case <-time.After(30 * time.Second):
		m.Kill()
		return errors.New("an MCP server did not end when its input did")
	}
}
