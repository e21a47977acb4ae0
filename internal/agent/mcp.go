package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"ringfence/internal/llm"
)

// maxMessage bounds one message of the server, in bytes.
const maxMessage = 80 << 20

// MCP is [Tools] that an MCP server offers on a pair of streams, one request
// after the other. What it is connected to is the mediator, so it sees only
// what the gate lets through.
type MCP struct {
	in   *bufio.Scanner
	out  io.Writer
	next int
}

var _ Tools = (*MCP)(nil)

// NewMCP makes the handshake with the server that reads from out and writes to
// in.
func NewMCP(ctx context.Context, in io.Reader, out io.Writer) (*MCP, error) {
	m := &MCP{in: bufio.NewScanner(in), out: out}
	m.in.Buffer(nil, maxMessage)
	_, err := m.request(ctx, "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "ringfence-agent", "version": "1"},
	})
	if err != nil {
		return nil, err
	}
	return m, m.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

// List returns the tools that the server shows.
func (m *MCP) List(ctx context.Context) ([]llm.Tool, error) {
	raw, err := m.request(ctx, "tools/list", map[string]any{})
	if err != nil {
		return nil, err
	}
	var r struct {
		Tools []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("reading the list of tools: %w", err)
	}
	var tools []llm.Tool
	for _, t := range r.Tools {
		tools = append(tools, llm.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	return tools, nil
}

// Call runs one call. A refusal is a result that failed.
func (m *MCP) Call(ctx context.Context, c llm.Call) (llm.Result, error) {
	raw, err := m.request(ctx, "tools/call", map[string]any{"name": c.Tool, "arguments": c.Arguments})
	if refused, ok := errors.AsType[*rpcError](err); ok {
		return llm.Result{Text: refused.Message, Failed: true}, nil
	}
	if err != nil {
		return llm.Result{}, err
	}
	var r struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return llm.Result{}, fmt.Errorf("reading a result: %w", err)
	}
	var text []string
	for _, b := range r.Content {
		text = append(text, b.Text)
	}
	return llm.Result{Text: strings.Join(text, "\n"), Failed: r.IsError}, nil
}

// An rpcError is the server's answer that a request failed.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

// request sends one request and waits for its answer, passing over
// notifications.
func (m *MCP) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	m.next++
	err := m.send(map[string]any{"jsonrpc": "2.0", "id": m.next, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	for ctx.Err() == nil && m.in.Scan() {
		var r struct {
			ID     *int            `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  *rpcError       `json:"error"`
		}
		if err := json.Unmarshal(m.in.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("reading the answer to %s: %w", method, err)
		}
		switch {
		case r.ID == nil || *r.ID != m.next:
		case r.Error != nil:
			return nil, r.Error
		default:
			return r.Result, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("waiting for the answer to %s: %w", method, io.ErrUnexpectedEOF), ctx.Err(), m.in.Err())
}

func (m *MCP) send(message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	if _, err := m.out.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("sending a request: %w", err)
	}
	return nil
}
