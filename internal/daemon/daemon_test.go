package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/ipc"
)

// An engine under test, on a home of its own.
type fixture struct {
	t                *testing.T
	home, user, work string
	stop             context.CancelFunc
	ended            chan error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	// A short path: the name of a socket in it may have about 100 bytes.
	dir, err := os.MkdirTemp("", "rf")
	if err != nil {
		t.Fatal(err)
	}
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, home: dir + "/home", user: dir + "/user", work: dir + "/user/work"}
	for _, d := range []string{f.home, f.work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		f.end()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return f
}

// start runs an engine until end.
func (f *fixture) start(o Options) *fixture {
	f.t.Helper()
	o.Home, o.UserHome, o.Program = f.home, f.user, "test"
	ready := make(chan struct{})
	o.Ready = func() { close(ready) }
	ctx, stop := context.WithCancel(context.Background())
	f.stop, f.ended = stop, make(chan error, 1)
	go func() { f.ended <- Run(ctx, o) }()
	select {
	case <-ready:
	case err := <-f.ended:
		f.ended = nil
		f.t.Fatalf("the engine ended at once: %v", err)
	}
	return f
}

func (f *fixture) end() {
	if f.ended == nil {
		return
	}
	f.stop()
	if err := <-f.ended; err != nil {
		f.t.Errorf("the engine ended with %v", err)
	}
	f.ended = nil
}

func (f *fixture) client() *api.Client {
	f.t.Helper()
	c, err := api.Connect(context.Background(), api.Options{Home: f.home})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

func (f *fixture) request() api.OpenRequest {
	return api.OpenRequest{
		Principal: "default/test", Workspace: f.work, Ask: api.AskNever,
		Servers: []api.ServerInfo{{Name: "files", Argv: []string{"/bin/false"}, Annotations: "filesystem"}},
	}
}

func (f *fixture) open(c *api.Client) *api.Session {
	f.t.Helper()
	s, err := c.OpenSession(context.Background(), f.request())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// entries returns the types of the entries of a session, in order.
func (f *fixture) entries(c *api.Client, session string) []string {
	f.t.Helper()
	var types []string
	err := c.LedgerEntries(context.Background(), api.LedgerQuery{Session: session}, func(raw json.RawMessage) error {
		var e struct {
			Type string `json:"type"`
			Body struct {
				Error string `json:"error"`
			} `json:"body"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		word, _, _ := strings.Cut(e.Body.Error, ":")
		types = append(types, strings.TrimSpace(e.Type+" "+word))
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return types
}

// look asks to list the workspace, which the default constitution allows.
func glance(t *testing.T, s *api.Session) act.Ticket {
	t.Helper()
	ticket, err := s.Decide(context.Background(), act.Request{
		Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.List, Resource: act.Resource{Text: "."}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if ticket.Verdict != act.Allow {
		t.Fatalf("looking is denied: %s", ticket.Reason)
	}
	return ticket
}

// TestE1OneEngine: a home has one engine.
func TestE1OneEngine(t *testing.T) {
	f := newFixture(t).start(Options{})
	err := Run(context.Background(), Options{Home: f.home, UserHome: f.user})
	if !errors.Is(err, ipc.ErrLocked) {
		t.Errorf("a second engine: %v, want ErrLocked", err)
	}
}

// TestE2Session: what is on record of a session from its start to its end.
func TestE2Session(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	s := f.open(c)
	if _, err := s.Finish(context.Background(), glance(t, s), act.Outcome{Body: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	glance(t, s)
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"session-start", "request", "decision", "result", "request", "decision", "result orphaned", "session-end",
	}
	if got := f.entries(c, s.Opened().Session); !slices.Equal(got, want) {
		t.Errorf("on record: %q\nwant %q", got, want)
	}
	if _, err := s.Decide(context.Background(), act.Request{Verb: act.VerbEffect}); err == nil {
		t.Error("a closed session decides")
	}
	v, err := c.LedgerVerify(context.Background())
	if err != nil || v.Status != "valid" {
		t.Errorf("%v %+v", err, v)
	}
}

// TestE2Token: only the token resumes.
func TestE2Token(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	s := f.open(c)
	for _, token := range []string{"", s.Opened().Token + "x", s.Opened().Session} {
		if _, err := c.ResumeSession(context.Background(), s.Opened().Session, token); !errors.Is(err, api.ErrNoSession) {
			t.Errorf("resuming with %q: %v", token, err)
		}
	}
	again, err := f.client().ResumeSession(context.Background(), s.Opened().Session, s.Opened().Token)
	if err != nil {
		t.Fatal(err)
	}
	glance(t, again)
}

// TestE3Restart: a session goes on under the next engine. What was under way is
// recorded as orphaned, what it has touched is not forgotten.
func TestE3Restart(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	s := f.open(c)
	reply, err := s.Finish(context.Background(), glance(t, s), act.Outcome{Body: []byte(`{"t":"ghp_16C7e42F292c6912E7710c838347Ae178B4a"}`)})
	if err != nil || !slices.Contains(reply.Labels, act.LabelSecret) {
		t.Fatalf("%v %+v", err, reply)
	}
	ticket := glance(t, s)
	f.end()
	f.start(Options{})
	if _, err := s.Finish(context.Background(), ticket, act.Outcome{}); err == nil {
		t.Error("an outcome was taken in by an engine that did not decide it")
	}
	ticket = glance(t, s)
	reply, err = s.Finish(context.Background(), ticket, act.Outcome{Body: []byte(`{"t":"ghp_16C7e42F292c6912E7710c838347Ae178B4a"}`)})
	if err != nil || len(reply.Labels) != 0 {
		t.Errorf("the label is new again: %v %+v", err, reply)
	}
	if got := f.entries(f.client(), s.Opened().Session); !slices.Contains(got, "result orphaned") {
		t.Errorf("on record: %q", got)
	}
}

// TestE4Idle: an engine ends when nobody needs it, and not before.
func TestE4Idle(t *testing.T) {
	f := newFixture(t).start(Options{Idle: time.Millisecond, Grace: time.Millisecond})
	// It may end before we connect; that is what it is for.
	c, err := api.Connect(context.Background(), api.Options{Home: f.home})
	if err == nil {
		if s, err := c.OpenSession(context.Background(), f.request()); err == nil {
			glance(t, s)
		}
		c.Close()
	}
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
	f.ended = nil
}

// TestHeapRoom: an engine in which little lives does not collect garbage all the time.
func TestHeapRoom(t *testing.T) {
	newFixture(t).start(Options{})
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.NextGC < 2*heapRoom {
		t.Errorf("garbage is collected at %d bytes", m.NextGC)
	}
}

// TestBadOpen: what a client may not ask for.
func TestBadOpen(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	file := filepath.Join(f.work, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*api.OpenRequest){
		"principal without agent": func(r *api.OpenRequest) { r.Principal = "default" },
		"principal in capitals":   func(r *api.OpenRequest) { r.Principal = "Default/Test" },
		"relative workspace":      func(r *api.OpenRequest) { r.Workspace = "work" },
		"workspace is a file":     func(r *api.OpenRequest) { r.Workspace = file },
		"no workspace":            func(r *api.OpenRequest) { r.Workspace = f.work + "/none" },
		"asks whom?":              func(r *api.OpenRequest) { r.Ask = "agent" },
		"no such policy":          func(r *api.OpenRequest) { r.PolicyDir = f.work },
		"no such annotations":     func(r *api.OpenRequest) { r.Servers[0].Annotations = "nothing" },
		"server with a dot":       func(r *api.OpenRequest) { r.Servers[0].Name = "a.b" },
		"server twice":            func(r *api.OpenRequest) { r.Servers = append(r.Servers, r.Servers[0]) },
	} {
		r := f.request()
		change(&r)
		var e *api.Error
		if _, err := c.OpenSession(context.Background(), r); !errors.As(err, &e) || e.Code != api.CodeBadRequest {
			t.Errorf("%s: %v, want a bad request", name, err)
		}
	}
	sessions, err := c.LedgerSessions(context.Background())
	if err != nil || len(sessions) != 0 {
		t.Errorf("refused sessions are on record: %v %+v", err, sessions)
	}
}

// TestAnnotationByPackage: the package in a command selects the annotation.
func TestAnnotationByPackage(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want bool
	}{
		{[]string{"npx", "-y", "@modelcontextprotocol/server-memory"}, true},
		{[]string{"npx", "-y", "@modelcontextprotocol/server-memory@2026.1.1"}, true},
		{[]string{"node", "/x/node_modules/@modelcontextprotocol/server-memory/dist/index.js"}, true},
		{[]string{"/usr/bin/npx", "--yes", "--package=@modelcontextprotocol/server-memory", "mcp-server-memory"}, true},
		{[]string{"npx", "-p", "@modelcontextprotocol/server-memory", "x"}, true},
		{[]string{"npx", "--registry", "https://r.example", "@modelcontextprotocol/server-memory"}, true},
		{[]string{"pnpm", "dlx", "@modelcontextprotocol/server-memory"}, true},
		{[]string{"bun", "x", "@modelcontextprotocol/server-memory"}, true},
		{[]string{"cmd", "/c", "npx.cmd", "-y", "@modelcontextprotocol/server-memory"}, true},
		{[]string{"env", "A=1", "npx", "@modelcontextprotocol/server-memory"}, true},
		{[]string{"docker", "run", "-i", "-e", "A", "@modelcontextprotocol/server-memory:1"}, true},
		{[]string{"node", "--inspect", "/x/node_modules/@modelcontextprotocol/server-memory/dist/index.js", "/data"}, true},
		{[]string{"/x/node_modules/@modelcontextprotocol/server-memory/bin"}, true},
		{[]string{"npx", "-y", "@evil/wrapper", "@modelcontextprotocol/server-memory"}, false},
		{[]string{"npx", "-p", "@evil/wrapper", "x", "@modelcontextprotocol/server-memory"}, false},
		{[]string{"node", "evil.js", "@modelcontextprotocol/server-memory"}, false},
		{[]string{"node", "evil.js", "/x/node_modules/@modelcontextprotocol/server-memory/dist/index.js"}, false},
		{[]string{"/opt/evil", "--like", "@modelcontextprotocol/server-memory"}, false},
		{[]string{"npm", "install", "@modelcontextprotocol/server-memory"}, false},
		{[]string{"npx", "@modelcontextprotocol/server-memory@"}, false},
		{[]string{"bun"}, false},
		{nil, false},
		{[]string{"npx", "@evil/server-memory"}, false},
		{[]string{"npx", "@modelcontextprotocol/server-memory-evil"}, false},
		{[]string{"node", "/x/@modelcontextprotocol/server-memory.js"}, false},
	} {
		if got := runsPackage(c.argv, "@modelcontextprotocol/server-memory"); got != c.want {
			t.Errorf("%q: %v, want %v", c.argv, got, c.want)
		}
	}
}

// TestSelfApprovalOnRecord: whoever waits cannot approve, and that it was tried is
// on record.
func TestSelfApprovalOnRecord(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	r := f.request()
	r.Ask = api.AskDesk
	s, err := c.OpenSession(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	decided := make(chan error, 1)
	go func() {
		_, err := s.Decide(ctx, act.Request{
			Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Create, Resource: act.Resource{Text: "a"}}},
		})
		decided <- err
	}()
	watching, stop := context.WithCancel(context.Background())
	err = c.WatchQuestions(watching, func(ev api.QuestionEvent) error {
		defer stop()
		err := c.Answer(context.Background(), ev.Question.ID, api.Choice{Yes: true, Mark: ev.Question.Mark})
		if !errors.Is(err, api.ErrRefused) {
			t.Errorf("approving one's own question: %v", err)
		}
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := f.entries(c, s.Opened().Session); !slices.Contains(got, "answer-refused") {
		t.Errorf("on record: %q", got)
	}
	cancel()
	if err := <-decided; err == nil {
		t.Error("a call that nobody answered was decided without an error")
	}
}
