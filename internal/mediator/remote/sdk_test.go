package remote

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/act"
	"ringfence/internal/mediator"
	"ringfence/internal/sandbox"
)

// An allower allows everything and replies what came.
type allower struct{}

func (allower) Decide(_ context.Context, r act.Request) (act.Ticket, error) {
	return act.Ticket{ID: "t", Verb: r.Verb, Tool: r.Tool, Verdict: act.Allow, Bytes: r.Args}, nil
}

func (allower) Finish(_ context.Context, _ act.Ticket, o act.Outcome) (act.Reply, error) {
	return act.Reply{Body: o.Body}, nil
}

// options are those of a mediator in front of the server at url.
func options(t *testing.T, url string, kind mediator.Transport, records *[]string) mediator.Options {
	return mediator.Options{
		Decider: allower{}, Session: "s", Principal: "p/a",
		Servers: []mediator.Server{{Name: "far", URL: url, Type: kind, Headers: map[string]string{"Authorization": "Bearer s3cret"}}},
		Log:     slog.New(slog.NewTextHandler(testWriter{t}, nil)),
		Starter: New(Options{Record: func(_ context.Context, server, line string, r sandbox.Report) error {
			if records != nil {
				*records = append(*records, server+" "+line+" "+r.Evidence["network"])
			}
			return nil
		}}),
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// through connects the client of the Go SDK through a mediator.
func through(t *testing.T, o mediator.Options) *mcp.ClientSession {
	t.Helper()
	m, err := mediator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(context.Background(), inR, outW); outW.Close() }()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		inW.Close()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s
}

type echoIn struct {
	Text   string `json:"text"`
	Region string `json:"region,omitempty"`
}

func echoServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	tool := &mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},"region":{"type":"string","x-mcp-header":"Region"}}}`)}
	mcp.AddTool(s, tool, func(_ context.Context, r *mcp.CallToolRequest, in echoIn) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text + in.Region}}}, nil, nil
	})
	return s
}

// TestSDK: servers of the Go SDK, of every transport and both eras, list and answer
// through us.
func TestSDK(t *testing.T) {
	get := func(*http.Request) *mcp.Server { return echoServer() }
	kept := echoServer()
	for name, c := range map[string]struct {
		handler http.Handler
		kind    mediator.Transport
	}{
		"stateful":  {mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return kept }, nil), ""},
		"stateless": {mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}), ""},
		"json":      {mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true}), mediator.TransportHTTP},
		"sse":       {mcp.NewSSEHandler(get, nil), mediator.TransportSSE},
		"sse found": {mcp.NewSSEHandler(get, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			authorized := true
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				authorized = authorized && r.Header.Get("Authorization") == "Bearer s3cret" && r.Header.Get("Accept-Encoding") == "identity"
				t.Log(r.Method, r.URL.Path, r.Header.Get(headerMethod), r.Header.Get(headerVersion), r.Header.Get("Mcp-Param-Region"))
				c.handler.ServeHTTP(w, r)
			}))
			defer srv.Close()
			defer srv.CloseClientConnections()
			var records []string
			s := through(t, options(t, srv.URL, c.kind, &records))
			list, err := s.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) != 1 {
				t.Fatalf("tools: %+v, %v", list, err)
			}
			for range 3 {
				r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hé ", "region": " œuf"}})
				if err != nil || r.IsError || r.Content[0].(*mcp.TextContent).Text != "hé  œuf" {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			if want := []string{"far " + NotHeld + " not held: it runs elsewhere and is reached at " + srv.URL}; !slices.Equal(records, want) {
				t.Errorf("records: %q", records)
			}
			if !authorized {
				t.Error("the header of the entry was not in every request")
			}
		})
	}
}
