package listen

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/act"
	"ringfence/internal/mediator"
)

// allowing allows everything.
type allowing struct{}

func (allowing) Decide(_ context.Context, r act.Request) (act.Ticket, error) {
	return act.Ticket{ID: "s/1", Session: r.Session, Verb: r.Verb, Tool: r.Tool, Verdict: act.Allow}, nil
}

func (allowing) Finish(_ context.Context, _ act.Ticket, o act.Outcome) (act.Reply, error) {
	return act.Reply{Body: o.Body}, nil
}

// inProcess starts servers of the SDK in this process.
type inProcess struct{ add func(*mcp.Server) }

func (p inProcess) Start(_ context.Context, _ mediator.Server) (*mediator.Process, error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	p.add(s)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := s.Run(ctx, &mcp.IOTransport{Reader: inR, Writer: outW})
		outW.Close()
		ended <- err
	}()
	kill := func() { cancel(); inR.Close(); outW.Close() }
	return &mediator.Process{
		Stdin: inW, Stdout: outR, Stderr: io.NopCloser(strings.NewReader("")), Terminate: kill, Kill: kill,
		Wait: func() error { return <-ended }, Report: "none",
	}, nil
}

type said struct {
	Text string `json:"text"`
}

// tools are what the server behind offers: echo says what it is told, with progress on
// the way; wait never answers; late answers when the test says so; large is large.
func tools(late <-chan struct{}, cancelled chan<- string) func(*mcp.Server) {
	return func(s *mcp.Server) {
		text := func(t string) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}, nil, nil
		}
		mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(ctx context.Context, r *mcp.CallToolRequest, a said) (*mcp.CallToolResult, any, error) {
			if token := r.Params.GetProgressToken(); token != nil {
				_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(len(a.Text))})
			}
			return text(a.Text)
		})
		mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, r *mcp.CallToolRequest, a said) (*mcp.CallToolResult, any, error) {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
			<-ctx.Done()
			cancelled <- a.Text
			return nil, nil, ctx.Err()
		})
		mcp.AddTool(s, &mcp.Tool{Name: "late"}, func(ctx context.Context, r *mcp.CallToolRequest, a said) (*mcp.CallToolResult, any, error) {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1})
			select {
			case <-late:
			case <-ctx.Done():
			}
			return text(a.Text)
		})
		mcp.AddTool(s, &mcp.Tool{Name: "large"}, func(context.Context, *mcp.CallToolRequest, said) (*mcp.CallToolResult, any, error) {
			return text(strings.Repeat("x", 32<<20))
		})
		mcp.AddTool(s, &mcp.Tool{Name: "mirror", InputSchema: json.RawMessage(`{"type":"object","properties":{
			"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},
			"deep":{"type":"object","properties":{"flag":{"type":"boolean","x-mcp-header":"Flag"}}}}}`)},
			func(context.Context, *mcp.CallToolRequest, map[string]any) (*mcp.CallToolResult, any, error) {
				return text("mirrored")
			})
	}
}

// A stage is a handler that serves on a loopback address.
type stage struct {
	t         testing.TB
	h         *Handler
	url       string
	late      chan struct{}
	cancelled chan string
}

const secret = "0123456789abcdefghij"

func newStage(t testing.TB, change func(*Options)) *stage {
	t.Helper()
	s := &stage{t: t, late: make(chan struct{}), cancelled: make(chan string, 64)}
	m, err := mediator.New(mediator.Options{
		Decider: allowing{}, Starter: inProcess{tools(s.late, s.cancelled)}, Servers: []mediator.Server{{Name: "s", Command: "s"}},
		StopGrace: 100 * time.Millisecond, MayAsk: []string{},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Token: secret, Hosts: []string{l.Addr().String()}}
	if change != nil {
		change(&o)
	}
	s.h, s.url = New(m, o), "http://"+l.Addr().String()+Path
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	ready := make(chan struct{})
	served.Go(func() {
		if err := m.Serve(ctx, func(ctx context.Context) error { close(ready); return s.h.Serve(ctx, l) }); err != nil {
			t.Error(err)
		}
	})
	<-ready
	t.Cleanup(func() {
		cancel()
		served.Wait()
		if len(s.h.sessions) != 0 || s.h.bodies != 0 || len(s.h.requests) != 0 {
			t.Errorf("left over: %d sessions, %d bytes, %v", len(s.h.sessions), s.h.bodies, s.h.requests)
		}
	})
	return s
}

// A reply is the answer to one request of HTTP.
type reply struct {
	status int
	header http.Header
	body   string
}

// do sends a request of HTTP with the headers that a good client sends, changed by
// header; "" removes one.
func (s *stage) do(ctx context.Context, method, body string, header map[string]string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, all := range []map[string]string{{
		"Authorization": "Bearer " + secret, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
	}, header} {
		for k, v := range all {
			switch {
			case k == "Host":
				r.Host = v
			case k == "Path":
				r.URL.Path = v
			case v == "":
				r.Header.Del(k)
			default:
				r.Header.Set(k, v)
			}
		}
	}
	return http.DefaultClient.Do(r)
}

func (s *stage) send(method, body string, header map[string]string) reply {
	s.t.Helper()
	resp, err := s.do(context.Background(), method, body, header)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// open opens a session and returns its name.
func (s *stage) open() string {
	s.t.Helper()
	r := s.send("POST", initialize, nil)
	id := r.header.Get(headerSession)
	if r.status != 200 || len(id) != 32 {
		s.t.Fatalf("initialize: %d %q %s", r.status, id, r.body)
	}
	return id
}

func callOf(id, tool, text, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q}%s}}`, id, tool, text, more)
}

// alone is the _meta of a request that stands alone, and the headers for it.
const alone = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`

func headers(method, name string) map[string]string {
	return map[string]string{headerVersion: "2026-07-28", headerMethod: method, headerName: name}
}

// TestSDKClients: the SDK's client lists and calls in both eras, and hears of progress.
func TestSDKClients(t *testing.T) {
	s := newStage(t, nil)
	client := &http.Client{Transport: shows{}}
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		progress := make(chan float64, 1)
		c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
		})
		session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: client}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		list, err := session.ListTools(t.Context(), nil)
		if err != nil || len(list.Tools) != 5 {
			t.Errorf("%s: %v, %v", version, list, err)
		}
		p := &mcp.CallToolParams{Name: "echo", Arguments: said{"hello"}}
		p.SetProgressToken("t")
		r, err := session.CallTool(t.Context(), p)
		if err != nil || r.Content[0].(*mcp.TextContent).Text != "hello" || <-progress != 5 {
			t.Errorf("%s: %+v, %v", version, r, err)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	}
}

// shows is a transport that shows the token.
type shows struct{}

func (shows) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+secret)
	return http.DefaultTransport.RoundTrip(r)
}

// TestRefused plays testdata/refused.jsonl: what is refused, with which status.
func TestRefused(t *testing.T) {
	s := newStage(t, nil)
	session := s.open()
	f, err := os.Open("testdata/refused.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var c struct {
			Name, Method, Body, Has string
			Header                  map[string]string
			Status                  int
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(lines.Text(), err)
		}
		fill := strings.NewReplacer("SESSION", session, "HOST", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), Path), "ALONE", alone)
		for k, v := range c.Header {
			c.Header[k] = fill.Replace(v)
		}
		if c.Method == "" {
			c.Method = "POST"
		}
		r := s.send(c.Method, fill.Replace(c.Body), c.Header)
		if r.status != c.Status || !strings.Contains(r.body, c.Has) {
			t.Errorf("%s: %d %s, want %d %s", c.Name, r.status, r.body, c.Status, c.Has)
		}
	}
}

// TestLongBody: a body above the bound is refused, whether its length is said or not.
func TestLongBody(t *testing.T) {
	s := newStage(t, nil)
	long := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", maxBody) + `"}}`
	if r := s.send("POST", long, nil); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body: %d", r.status)
	}
	r, err := http.NewRequest("POST", s.url, io.MultiReader(strings.NewReader(long))) // which has no length
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + secret}, "Content-Type": {"application/json"}, "Accept": {"*/*"}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body in pieces: %d", resp.StatusCode)
	}
}

// TestOthersSession: for another user a session does not exist, whatever he does.
func TestOthersSession(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Users = []uint32{1, 2} })
	as := func(id uint32, method, session, body string) reply {
		ctx := context.WithValue(t.Context(), peerKey{}, user{id, true, true})
		r, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, headerSession: {session}}
		if session == "" {
			r.Header.Del(headerSession)
		}
		w := &recorder{reply: reply{header: http.Header{}}}
		s.h.ServeHTTP(w, r)
		return w.reply
	}
	session := as(1, "POST", "", initialize).header.Get(headerSession)
	if r := as(1, "POST", session, callOf("1", "echo", "mine", "")); r.status != 200 || !strings.Contains(r.body, "mine") {
		t.Errorf("its own: %d %s", r.status, r.body)
	}
	for _, method := range []string{"POST", "GET", "DELETE"} {
		if r := as(2, method, session, callOf("2", "echo", "x", "")); r.status != http.StatusNotFound {
			t.Errorf("%s by another user: %d %s", method, r.status, r.body)
		}
	}
	if r := as(3, "POST", session, initialize); r.status != http.StatusForbidden {
		t.Errorf("a user who may not connect: %d", r.status)
	}
	if r := as(1, "DELETE", session, ""); r.status != http.StatusNoContent {
		t.Errorf("ending it: %d", r.status)
	}
	if r := as(1, "POST", session, callOf("1", "echo", "x", "")); r.status != http.StatusNotFound {
		t.Errorf("after its end: %d", r.status)
	}
}

// A recorder is a connection that takes everything in.
type recorder struct{ reply }

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}
func (r *recorder) Write(b []byte) (int, error)      { r.body += string(b); return len(b), nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }
func (r *recorder) Flush()                           {}

// nextEvent reads the next event of a stream: its id and data.
func nextEvent(t *testing.T, in *bufio.Reader) (id, data string) {
	t.Helper()
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		if v, ok := strings.CutPrefix(line, "id: "); ok {
			id = v
		}
		if v, ok := strings.CutPrefix(line, "data: "); ok {
			data = v
		}
		if line == "" && id+data != "" {
			return id, data
		}
	}
}

// TestResume: a stream that breaks is gone on with, by its client, from where it broke.
func TestResume(t *testing.T) {
	s := newStage(t, nil)
	session := map[string]string{headerSession: s.open()}
	ctx, breaks := context.WithCancel(t.Context())
	resp, err := s.do(ctx, "POST", callOf("7", "late", "at last", `,"_meta":{"progressToken":1}`), session)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(resp.Body)
	id, data := nextEvent(t, in)
	if id == "" || data != "" {
		t.Errorf("the stream begins with %q %q", id, data)
	}
	id, data = nextEvent(t, in)
	if !strings.Contains(data, "notifications/progress") {
		t.Errorf("then comes %q", data)
	}
	breaks()
	resp.Body.Close()
	close(s.late)
	session[headerLast] = id
	r := s.send("GET", "", session)
	if r.status != 200 || !strings.Contains(r.body, "at last") || !strings.Contains(r.body, `"id":7`) || strings.Contains(r.body, "progress") {
		t.Errorf("the rest: %d %s", r.status, r.body)
	}
	session[headerLast] = id + "0"
	if r := s.send("GET", "", session); r.status != 200 || strings.Contains(r.body, "at last") {
		t.Errorf("behind its end: %d %s", r.status, r.body)
	}
	session[headerLast] = "99-1"
	if r := s.send("GET", "", session); r.status != http.StatusNotFound {
		t.Errorf("a stream that is not there: %d", r.status)
	}
}

// TestPolls: a client of 2025-11-25 is asked to come back for the rest of a stream that
// lasts, and one of a revision before is not.
func TestPolls(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Poll, o.Quiet = time.Millisecond, time.Millisecond })
	session := map[string]string{headerSession: s.open()}
	r := s.send("POST", callOf("7", "late", "at last", ""), session)
	if r.status != 200 || !strings.Contains(r.body, "retry: 1000\n") || strings.Contains(r.body, "at last") {
		t.Fatalf("%d %q", r.status, r.body)
	}
	id, _ := nextEvent(t, bufio.NewReader(strings.NewReader(r.body)))
	close(s.late)
	session[headerLast] = id
	for !strings.Contains(r.body, "at last") { // it is asked to come back again, perhaps
		r = s.send("GET", "", session)
	}
	old := s.send("POST", strings.Replace(initialize, "2025-11-25", "2025-06-18", 1), nil).header.Get(headerSession)
	if r := s.send("POST", callOf("8", "late", "at once", ""), map[string]string{headerSession: old}); !strings.Contains(r.body, "at once") {
		t.Errorf("of 2025-06-18: %q", r.body)
	}
}

// TestClosedIsCancelled: the end of the connection cancels a request that stands alone.
func TestClosedIsCancelled(t *testing.T) {
	s := newStage(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := s.do(ctx, "POST", callOf("1", "wait", "me", ","+alone+`,"progressToken":1}`), headers("tools/call", "wait"))
	if err != nil {
		t.Fatal(err)
	}
	nextEvent(t, bufio.NewReader(resp.Body)) // it is under way
	cancel()
	resp.Body.Close()
	if got := <-s.cancelled; got != "me" {
		t.Errorf("cancelled: %q", got)
	}
}

// TestIdle: a session that nobody uses ends, one that is used does not.
func TestIdle(t *testing.T) {
	s := newStage(t, nil)
	idle, used := s.open(), s.open()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := s.do(ctx, "GET", "", map[string]string{headerSession: used})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.h.expire(time.Now().Add(s.h.o.Idle))
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if r := s.send("POST", ping, map[string]string{headerSession: idle}); r.status != http.StatusNotFound {
		t.Errorf("idle: %d", r.status)
	}
	if r := s.send("POST", ping, map[string]string{headerSession: used}); r.status != http.StatusOK {
		t.Errorf("used: %d", r.status)
	}
}
