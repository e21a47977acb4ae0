package toolset

import (
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestNew (TS1): a list and handlers that do not agree make no server.
func TestNew(t *testing.T) {
	run := func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil }
	const a, b = `{"name":"a","inputSchema":{"type":"object"}}`, `{"name":"b","inputSchema":{"type":"object"}}`
	for _, c := range []struct {
		list  string
		names string
		want  string // a part of the error
	}{
		{"[" + a + "," + b + "]", "a b", ""},
		{"[" + a + "]", "a b", `"b" is not listed`},
		{"[" + a + "," + b + "]", "a", `nothing runs "b"`},
		{"[" + a + "," + a + "]", "a", `nothing runs "a", or it is listed twice`},
		{"{", "a", "unexpected end"},
	} {
		handlers := map[string]mcp.ToolHandler{}
		for n := range strings.FieldsSeq(c.names) {
			handlers[n] = run
		}
		srv, err := New("x", []byte(c.list), handlers)
		if (err == nil) != (c.want == "") || err != nil && (srv != nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %s: %v, want %q", c.list, c.names, err, c.want)
		}
		if len(handlers) != len(strings.Fields(c.names)) {
			t.Errorf("%s: the handlers that were given are %d afterwards", c.list, len(handlers))
		}
	}
}
