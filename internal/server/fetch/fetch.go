// Package fetch is a tool server with one tool, http_fetch, which gets a page and
// returns it in a form that a model can read.
//
// It opens no connection. Requests go out through the [http.RoundTripper] of its
// [Options], which is where names are resolved, addresses are judged and rules
// apply; without one every call is an error. It runs no scripts, keeps no cookies
// and no cache.
//
// What a page says is untrusted; that it entered a session is recorded elsewhere.
//
// Invariants:
//
//	FE1  One call is one GET request to exactly the URL that was given. Redirects
//	     are reported, never followed: the new address was not decided on.
//	FE2  Only headers of a short list are sent and returned. No credential can be
//	     among them.
//	FE3  Bytes read, characters returned and time are bounded, and the work done on
//	     a page is linear in its size.
//	FE4  What a reader of the page would not see is not in the text: scripts,
//	     styles, comments and hidden elements.
package fetch

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/server/toolset"
)

// definitions is the tool list, as MCP has it, without the envelope.
//
//go:embed tools.json
var definitions []byte

// The bounds of FE3.
const (
	maxBody     = 10 << 20  // bytes read of a response, after decompression
	maxLength   = 1_000_000 // characters returned
	lengthUnset = 5000
	maxTime     = time.Minute
	timeUnset   = 30 * time.Second
)

// Options say how a server reaches the network.
type Options struct {
	// Transport sends requests. It must honour the context of a request, and must
	// not follow redirects. nil means that there is no way out.
	Transport http.RoundTripper
}

// errNoWayOut is the answer to every call of a server without a transport.
var errNoWayOut = errors.New("no network way out configured")

// Serve speaks MCP on in and out, one JSON message a line, until in ends or ctx
// does. It closes both. The error is nil when the client has gone.
func Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser, o Options) error {
	srv, err := newServer(o)
	if err != nil {
		return fmt.Errorf("serving fetch: %w", err)
	}
	err = srv.Run(ctx, &mcp.IOTransport{Reader: in, Writer: out})
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		return fmt.Errorf("serving fetch: %w", err)
	}
	return nil
}

func newServer(o Options) (*mcp.Server, error) {
	return toolset.New("fetch", definitions, map[string]mcp.ToolHandler{
		"http_fetch": func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return answer(call(ctx, o, req.Params.Arguments))
		},
	})
}

type arguments struct {
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers"`
	MaxLength *int              `json:"max_length"`
	Format    string            `json:"format"`
	Timeout   *float64          `json:"timeout"`
}

// A reply is the result of a call. Either Error is set or all of the first four.
type reply struct {
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	Truncated bool              `json:"truncated"`
	Note      string            `json:"note,omitempty"`
}

type failure struct {
	Error string `json:"error"`
}

func call(ctx context.Context, o Options, args json.RawMessage) (reply, error) {
	var in arguments
	if err := strictjson.Unmarshal(args, &in); err != nil {
		return reply{}, fmt.Errorf("reading arguments: %w", err)
	}
	q, err := in.query()
	if err != nil {
		return reply{}, err
	}
	if o.Transport == nil {
		return reply{}, errNoWayOut
	}
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	out, err := q.get(ctx, o.Transport)
	if errors.Is(err, context.DeadlineExceeded) {
		return reply{}, fmt.Errorf("no complete answer within %v", q.timeout)
	}
	return out, err
}

// answer puts a reply into both forms that MCP has.
func answer(out reply, err error) (*mcp.CallToolResult, error) {
	var v any = out
	if err != nil {
		v = failure{err.Error()}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("writing result: %w", err)
	}
	return &mcp.CallToolResult{
		IsError:           err != nil,
		Content:           []mcp.Content{&mcp.TextContent{Text: string(bytes.TrimSpace(text.Bytes()))}},
		StructuredContent: v,
	}, nil
}
