// Package toolset makes an MCP server of a tool list that is kept as a file, and of what
// runs each tool. It is not where tools are: those are in the packages beside it.
//
// Invariants:
//
//	TS1  Every tool of the list has a handler, and every handler a tool: there is no
//	     server otherwise.
//	TS2  What is listed is what the file says, byte for byte in its schemas.
package toolset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// version is that of every server here, as they say it of themselves.
const version = "1.0.0"

// New returns the server "ringfence-NAME". The list is the JSON array of tools, as the
// answer to tools/list has it, without the envelope; a handler's key is its tool's name.
func New(name string, list []byte, handlers map[string]mcp.ToolHandler) (*mcp.Server, error) {
	var tools []definition
	if err := json.Unmarshal(list, &tools); err != nil {
		return nil, fmt.Errorf("reading the tools of %s: %w", name, err)
	}
	srv := mcp.NewServer(&mcp.Implementation{Name: "ringfence-" + name, Version: version},
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	left := maps.Clone(handlers)
	for _, t := range tools {
		h := left[t.Name]
		if h == nil {
			return nil, fmt.Errorf("reading the tools of %s: nothing runs %q, or it is listed twice", name, t.Name)
		}
		delete(left, t.Name)
		srv.AddTool(t.tool(), h)
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("reading the tools of %s: %q is not listed", name, slices.Min(slices.Collect(maps.Keys(left))))
	}
	return srv, nil
}

// A definition is one tool of the list. Schemas stay as they are written: decoding
// them would take most of the time that a start takes.
type definition struct {
	Name         string               `json:"name"`
	Title        string               `json:"title"`
	Description  string               `json:"description"`
	InputSchema  json.RawMessage      `json:"inputSchema"`
	OutputSchema json.RawMessage      `json:"outputSchema"`
	Annotations  *mcp.ToolAnnotations `json:"annotations"`
}

func (d definition) tool() *mcp.Tool {
	t := &mcp.Tool{Name: d.Name, Title: d.Title, Description: d.Description, InputSchema: d.InputSchema, Annotations: d.Annotations}
	if d.OutputSchema != nil {
		t.OutputSchema = d.OutputSchema
	}
	return t
}
