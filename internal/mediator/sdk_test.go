package mediator

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/act"
)

// sdkServer runs a server of the Go SDK on the streams of a fakeProcess.
func sdkServer(t *testing.T, add func(*mcp.Server)) fakeServer {
	return func(p *fakeProcess) {
		s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
		add(s)
		r, w := io.Pipe()
		go func() {
			for line := p.hear(); line != ""; line = p.hear() {
				if _, err := io.WriteString(w, line+"\n"); err != nil {
					return
				}
			}
			w.Close()
		}()
		session, err := s.Connect(context.Background(), &mcp.IOTransport{Reader: r, Writer: p.out}, nil)
		if err != nil {
			t.Error(err)
			return
		}
		_ = session.Wait() // ends when the mediator stops the server
	}
}

// The client of the Go SDK, through the mediator, and servers of the Go SDK.
func TestSDK(t *testing.T) {
	type in struct {
		Path string `json:"path"`
	}
	type out struct {
		Size int `json:"size"`
	}
	more := make(chan *mcp.Server, 1)
	one := sdkServer(t, func(s *mcp.Server) {
		mcp.AddTool(s, &mcp.Tool{Name: "stat", Description: "says how large a file is"}, func(ctx context.Context, r *mcp.CallToolRequest, a in) (*mcp.CallToolResult, out, error) {
			if token := r.Params.GetProgressToken(); token != nil {
				_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 2, Message: "half"})
			}
			return nil, out{len(a.Path)}, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, out, error) {
			<-ctx.Done()
			return nil, out{}, ctx.Err()
		})
		more <- s
	})
	two := sdkServer(t, func(s *mcp.Server) {
		mcp.AddTool(s, &mcp.Tool{Name: "stat"}, func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, out, error) {
			return nil, out{-1}, nil
		})
	})
	d := deciding("tools/call two.stat deny policy not this one")
	m, err := New(Options{
		Decider: d, Starter: starting(map[string][]fakeServer{"one": {one}, "two": {two}}),
		Servers: []Server{{Name: "one", Command: "x"}, {Name: "two", Command: "x"}}, RefreshEvery: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(t.Context(), inR, outW); outW.Close() }()

	progress, changed := make(chan float64, 1), make(chan struct{}, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	})
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := listed(t, session); !slices.Equal(got, []string{"one__stat", "one__wait", "two__stat"}) {
		t.Errorf("tools: %q", got)
	}
	call := func(ctx context.Context, name string, token any) (*mcp.CallToolResult, error) {
		p := &mcp.CallToolParams{Name: name, Arguments: map[string]any{"path": "/etc"}}
		if token != nil {
			p.SetProgressToken(token)
		}
		return session.CallTool(ctx, p)
	}
	r, err := call(t.Context(), "one__stat", "tok")
	if err != nil || r.IsError {
		t.Fatalf("%+v, %v", r, err)
	}
	if j, _ := json.Marshal(r.StructuredContent); string(j) != `{"size":4}` || <-progress != 1 {
		t.Errorf("result %s", j)
	}
	if r, err = call(t.Context(), "two__stat", nil); err != nil || !r.IsError || r.Content[0].(*mcp.TextContent).Text != "not this one" {
		t.Errorf("denied: %+v, %v", r, err)
	}
	if note, ok := r.Meta["ringfence"].(map[string]any); !ok || note["code"] != string(act.CodePolicy) {
		t.Errorf("_meta: %v", r.Meta)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, "one__wait", nil); err == nil {
		t.Error("a cancelled call returns")
	}
	mcp.AddTool(<-more, &mcp.Tool{Name: "new"}, func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, out, error) {
		return nil, out{}, nil
	})
	<-changed
	if got := strings.Join(listed(t, session), " "); got != "one__new one__stat one__wait two__stat" {
		t.Errorf("tools after a change: %q", got)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	inW.Close()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	d.check(t)
}

func listed(t *testing.T, s *mcp.ClientSession) []string {
	t.Helper()
	r, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	return names
}
