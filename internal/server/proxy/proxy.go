// Package proxy is a tool server by which an agent asks for connections that its policy
// does not allow.
//
// It opens nothing, asks nobody and remembers nothing: the gate decides about each call,
// asks a person, and keeps what was granted. What arrives here was carried out, and the
// arguments that arrive are what the agent is told.
//
// Invariants:
//
//	PX1  A result holds the arguments as they were dispatched, and nothing else.
package proxy

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/server/toolset"
)

// definitions is the tool list, as MCP has it, without the envelope.
//
//go:embed tools.json
var definitions []byte

// Serve speaks MCP on in and out, one JSON message a line, until in ends or ctx does. It
// closes both. The error is nil when the client has gone.
func Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	srv, err := toolset.New("proxy", definitions, map[string]mcp.ToolHandler{
		"add_proxy_domain": said, "remove_proxy_domain": said, "list_proxy_domains": said,
	})
	if err != nil {
		return fmt.Errorf("serving grants: %w", err)
	}
	if err := srv.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out}); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("serving grants: %w", err)
	}
	return nil
}

// said returns the arguments of a call.
func said(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args := req.Params.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(args)}},
		StructuredContent: args,
	}, nil
}
