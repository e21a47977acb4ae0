package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/sys/ipc"
)

// A world is an engine that can be killed and clients that dial it.
type world struct {
	t      *testing.T
	engine *fake
	server *Server
	mu     sync.Mutex
	conns  []net.Conn // the engine's ends; nil: nobody listens
	down   bool
}

func newWorld(t *testing.T, o ServerOptions) *world {
	w := &world{t: t, engine: newFake()}
	w.server = NewServer(w.engine, o)
	return w
}

func (w *world) dial(context.Context) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, syscall.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	w.conns = append(w.conns, theirs)
	go w.server.ServeConn(context.Background(), theirs, ipc.Peer{PID: len(w.conns)})
	return ours, nil
}

// cut ends every connection, as when the engine is killed.
func (w *world) cut(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

func (w *world) connect(o Options) *Client {
	w.t.Helper()
	o.Dial = w.dial
	c, err := Connect(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) open(c *Client) *Session {
	w.t.Helper()
	s, err := c.OpenSession(w.t.Context(), OpenRequest{Principal: "p/a"})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// in runs f in a bubble with a world that is gone at its end.
func in(t *testing.T, o ServerOptions, f func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, o)
		f(t, w)
		w.cut(true)
	})
}

func TestSessionDecides(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		s := w.open(w.connect(Options{}))
		var d act.Decider = s
		args := []byte(`{"a": 1.50}`)
		r := act.Request{
			Session: "forged", Principal: "forged", Verb: act.VerbCall, Tool: "fs.read", Args: args,
			Direct: []act.Effect{{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: "/w/\"é\"", Facts: map[string]any{"exists": true, "n": int64(1) << 60, "s": "x", "l": []string{"a"}}}, Tree: true}},
		}
		ticket, err := d.Decide(t.Context(), r)
		if err != nil || ticket.Verdict != act.Allow || !bytes.Equal(ticket.Bytes, args) {
			t.Fatalf("%+v, %v", ticket, err)
		}
		got := w.engine.requests[0]
		if got.Session != "s-1" || got.Principal != "" || got.Tool != r.Tool || !bytes.Equal(got.Args, args) || fmt.Sprint(got.Direct[0].Resource.Facts) != fmt.Sprint(r.Direct[0].Resource.Facts) {
			t.Errorf("the engine got %+v", got)
		}
		reply, err := d.Finish(t.Context(), ticket, act.Outcome{Body: []byte("body"), Error: "none"})
		if err != nil || string(reply.Body) != "BODY" || reply.Redacted != 1 || reply.Note != "none" || reply.Labels[0] != act.LabelUntrusted {
			t.Errorf("%+v, %v", reply, err)
		}
		bad := act.Request{Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: "/w/\xff"}}}}
		if _, err := d.Decide(t.Context(), bad); err == nil || len(w.engine.requests) != 1 {
			t.Errorf("a path that is not UTF-8 was sent as another: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tk, err := d.Decide(t.Context(), r); !errors.Is(err, ErrNoSession) || tk.Verdict != act.Deny {
			t.Errorf("after Close: %+v, %v", tk, err)
		}
	})
}

// TestOutOfOrder: a decision that waits for a person holds up no other.
func TestOutOfOrder(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		release := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
		w.engine.decide = func(_ context.Context, r act.Request) (act.Ticket, error) {
			<-release[r.Tool]
			return act.Ticket{Tool: r.Tool, Verdict: act.Allow}, nil
		}
		s := w.open(w.connect(Options{}))
		done := make(chan string, 2)
		for _, tool := range []string{"a", "b"} {
			go func() {
				tk, err := s.Decide(t.Context(), act.Request{Tool: tool})
				done <- fmt.Sprint(tk.Tool, err)
			}()
			synctest.Wait()
		}
		close(release["b"])
		if got := <-done; got != "b<nil>" {
			t.Errorf("first came %s", got)
		}
		close(release["a"])
		if got := <-done; got != "a<nil>" {
			t.Errorf("then came %s", got)
		}
	})
}

// TestCancel: a client that waits no longer ends the work in the engine.
func TestCancel(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		ended := make(chan error, 1)
		w.engine.decide = func(ctx context.Context, _ act.Request) (act.Ticket, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return act.Ticket{Verdict: act.Allow}, nil
		}
		s := w.open(w.connect(Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		tk, err := s.Decide(ctx, act.Request{})
		if !errors.Is(err, context.Canceled) || tk.Verdict != act.Deny {
			t.Errorf("%+v, %v", tk, err)
		}
		if err := <-ended; !errors.Is(err, errCancelled) {
			t.Errorf("the engine saw %v", err)
		}
		w.engine.decide = nil
		if tk, err := s.Decide(t.Context(), act.Request{}); err != nil || tk.Verdict != act.Allow {
			t.Errorf("the next call: %+v, %v", tk, err)
		}
	})
}

// TestLost: what was in flight is denied and not sent again; the next call
// resumes; while nobody listens every call is denied (P1, P2).
func TestLost(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		decided := 0
		w.engine.decide = func(ctx context.Context, _ act.Request) (act.Ticket, error) {
			if decided++; decided == 1 {
				<-ctx.Done()
				return act.Ticket{}, ctx.Err()
			}
			return act.Ticket{Verdict: act.Allow}, nil
		}
		s := w.open(w.connect(Options{}))
		done := make(chan error, 1)
		go func() {
			tk, err := s.Decide(t.Context(), act.Request{})
			if tk.Verdict != act.Deny {
				t.Error("allowed without an answer")
			}
			done <- err
		}()
		synctest.Wait()
		w.cut(true)
		if err := <-done; !errors.Is(err, ErrUnreachable) {
			t.Errorf("in flight: %v", err)
		}
		for range 3 {
			if tk, err := s.Decide(t.Context(), act.Request{}); !errors.Is(err, ErrNotRunning) || tk.Verdict != act.Deny {
				t.Errorf("nobody listens: %+v, %v", tk, err)
			}
		}
		synctest.Wait() // the engine has seen the end of the first connection
		w.cut(false)
		if tk, err := s.Decide(t.Context(), act.Request{}); err != nil || tk.Verdict != act.Allow || decided != 2 {
			t.Errorf("resumed: %+v, %v, decided %d", tk, err, decided)
		}
		synctest.Wait()
		if !slices.EqualFunc(w.engine.gone, [][]string{{"s-1"}}, slices.Equal) {
			t.Errorf("the engine was told %q", w.engine.gone)
		}
		w.cut(false)
		synctest.Wait()
		delete(w.engine.sessions, "s-1")
		if tk, err := s.Decide(t.Context(), act.Request{}); !errors.Is(err, ErrNoSession) || tk.Verdict != act.Deny {
			t.Errorf("the session is gone: %+v, %v", tk, err)
		}
	})
}

// TestOwner is P3.
func TestOwner(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		first, second := w.connect(Options{}), w.connect(Options{})
		s := w.open(first)
		id := s.Opened().Session
		if _, err := second.ResumeSession(t.Context(), id, "guess"); !errors.Is(err, ErrNoSession) {
			t.Errorf("resumed with a guess: %v", err)
		}
		thief := &Session{client: second, opened: Opened{Session: id}, link: second.link}
		if _, err := thief.Decide(t.Context(), act.Request{}); !errors.Is(err, ErrNoSession) {
			t.Errorf("decided for another's session: %v", err)
		}
		if _, err := thief.Finish(t.Context(), act.Ticket{ID: id + "/1"}, act.Outcome{}); !errors.Is(err, ErrNoSession) {
			t.Errorf("finished for another's session: %v", err)
		}
		if err := thief.Close(t.Context()); !errors.Is(err, ErrNoSession) {
			t.Errorf("closed another's session: %v", err)
		}
		heir, err := second.ResumeSession(t.Context(), id, s.Opened().Token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := heir.Decide(t.Context(), act.Request{}); err != nil {
			t.Errorf("the new owner: %v", err)
		}
		if _, err := s.Decide(t.Context(), act.Request{}); !errors.Is(err, ErrNoSession) {
			t.Errorf("the former owner: %v", err)
		}
		first.Close()
		synctest.Wait()
		if len(w.engine.gone) != 1 || len(w.engine.gone[0]) != 0 {
			t.Errorf("the engine was told %q", w.engine.gone)
		}
	})
}

func TestBounds(t *testing.T) {
	in(t, ServerOptions{MaxInFlight: 3, MaxBytes: 100}, func(t *testing.T, w *world) {
		w.engine.decide = func(ctx context.Context, _ act.Request) (act.Ticket, error) {
			<-ctx.Done()
			return act.Ticket{}, ctx.Err()
		}
		s := w.open(w.connect(Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		try := func(bytes int) chan error {
			ch := make(chan error, 1)
			go func() {
				_, err := s.Decide(ctx, act.Request{Args: make([]byte, bytes)})
				ch <- err
			}()
			synctest.Wait()
			return ch
		}
		busy := &Error{Code: CodeBusy}
		pending := []chan error{try(60)}
		if err := <-try(41); !errors.Is(err, busy) {
			t.Errorf("101 bytes in flight: %v", err)
		}
		pending = append(pending, try(40), try(0))
		if err := <-try(0); !errors.Is(err, busy) {
			t.Errorf("four in flight: %v", err)
		}
		cancel()
		for _, ch := range pending {
			if err := <-ch; !errors.Is(err, context.Canceled) {
				t.Errorf("pending: %v", err)
			}
		}
		if _, err := s.Decide(t.Context(), act.Request{Args: make([]byte, maxBody+1)}); !errors.Is(err, &Error{Code: CodeTooLarge}) {
			t.Errorf("too large: %v", err)
		}
	})
}

func TestCalls(t *testing.T) {
	in(t, ServerOptions{Home: "/h", Program: "1.2"}, func(t *testing.T, w *world) {
		c, ctx := w.connect(Options{}), t.Context()
		if h := c.Hello(); h.Home != "/h" || h.Program != "1.2" || h.Version != Version {
			t.Errorf("hello %+v", h)
		}
		check := func(what string, ok bool, err error) {
			t.Helper()
			if !ok || err != nil {
				t.Errorf("%s: %v, %v", what, ok, err)
			}
		}
		qs, err := c.Questions(ctx)
		check("questions", len(qs) == 2, err)
		q, err := c.Question(ctx, "q1")
		check("question", q.Mark == 7, err)
		_, err = c.Question(ctx, "q9")
		check("no question", errors.Is(err, ErrNotFound) && strings.Contains(err.Error(), "looking"), nil)
		err = c.Answer(ctx, "q1", Choice{Yes: true, Mark: 7})
		check("answer", w.engine.answered["q1"] == Choice{Yes: true, Mark: 7}, err)
		ps, err := c.ToolsList(ctx, ToolQuery{Server: "fs"})
		check("tools", ps[0].Server == "fs" && ps[0].Status == "proposed", err)
		ps, err = c.ToolsReview(ctx, ToolQuery{Server: "fs"})
		check("review", ps[0].Diff == "+x", err)
		p, err := c.ToolsPin(ctx, PinRequest{Server: "fs", Tool: "read", Hash: "h", Approve: true})
		check("pin", p.Hash == "h" && p.Tool == "read", err)
		err = c.Admit(ctx, AdmitRequest{Server: "fs"}, []byte(`{"tools":[]}`))
		check("admit", errors.Is(c.Admit(ctx, AdmitRequest{}, nil), ErrRefused), err)
		v, err := c.LedgerVerify(ctx)
		check("verify", v.Status == "valid" && v.Entries == 3, err)
		ss, err := c.LedgerSessions(ctx)
		check("sessions", ss[0].ID == "s-1", err)
		st, err := c.Status(ctx)
		check("status", st.Sessions == 2, err)
		check("stop", errors.Is(c.Stop(ctx, false), ErrRefused), c.Stop(ctx, true))
		_, err = c.OpenSession(ctx, OpenRequest{})
		check("bad open", errors.Is(err, &Error{Code: CodeBadRequest}), nil)
	})
}

func TestGrants(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		c := w.connect(Options{})
		all, err := c.Grants(t.Context(), "s-1")
		if err != nil || len(all) != 1 || all[0] != (Grant{Session: "s-1", Host: "a.test:443"}) {
			t.Errorf("%v, %v", all, err)
		}
		if err := c.RevokeGrant(t.Context(), all[0]); err != nil {
			t.Error(err)
		}
		if err := c.RevokeGrant(t.Context(), Grant{Session: "s-1", Host: "b.test:443"}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestStreams(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		c := w.connect(Options{})
		w.engine.entries = 1000
		n := 0
		each := func(entry json.RawMessage) error {
			if string(entry) != fmt.Sprintf(`{"n":%d}`, n) {
				t.Errorf("entry %d is %s", n, entry)
			}
			n++
			return nil
		}
		if err := c.LedgerEntries(t.Context(), LedgerQuery{}, each); err != nil || n != 1000 {
			t.Errorf("%d entries, %v", n, err)
		}
		n = 0
		if err := c.LedgerEntries(t.Context(), LedgerQuery{Kind: "broken"}, each); !errors.Is(err, &Error{Code: CodeUnavailable}) || n != 1000 {
			t.Errorf("%d entries, then %v", n, err)
		}
		enough := errors.New("enough")
		if err := c.LedgerEntries(t.Context(), LedgerQuery{}, func(json.RawMessage) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("stopped: %v", err)
		}
		w.engine.export = bytes.Repeat([]byte("0123456789"), 100_000)
		var out bytes.Buffer
		if err := c.LedgerExport(t.Context(), "s-1", &out); err != nil || !bytes.Equal(out.Bytes(), w.engine.export) {
			t.Errorf("%d bytes, %v", out.Len(), err)
		}
		if err := c.LedgerExport(t.Context(), "s-1", brokenPipe{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("export to nowhere: %v", err)
		}
		w.engine.events = []QuestionEvent{{Kind: "asked"}, {Kind: "expired"}}
		ctx, cancel := context.WithCancel(t.Context())
		var kinds []string
		err := c.WatchQuestions(ctx, func(e QuestionEvent) error {
			if kinds = append(kinds, e.Kind); len(kinds) == 2 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) || !slices.Equal(kinds, []string{"asked", "expired"}) {
			t.Errorf("%q, %v", kinds, err)
		}
		// All those connections are gone, and the first still works.
		synctest.Wait()
		if _, err := c.Status(t.Context()); err != nil || len(w.engine.gone) != 6 {
			t.Errorf("%v; %d connections ended", err, len(w.engine.gone))
		}
	})
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestStart: an engine is started on first need, and again if the first start
// found one on its way out.
func TestStart(t *testing.T) {
	for _, starts := range []int{1, 2} {
		in(t, ServerOptions{}, func(t *testing.T, w *world) {
			w.cut(true)
			n := 0
			c := w.connect(Options{Start: func(context.Context) error {
				if n++; n == starts {
					w.cut(false)
				}
				return nil
			}})
			if _, err := c.Status(t.Context()); err != nil || n != starts {
				t.Errorf("%v after %d starts", err, n)
			}
		})
	}
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		w.cut(true)
		broken := errors.New("no binary")
		for _, c := range []struct {
			start func(context.Context) error
			err   error
		}{{nil, ErrNotRunning}, {func(context.Context) error { return broken }, broken}, {func(context.Context) error { return nil }, ErrNotRunning}} {
			if _, err := Connect(t.Context(), Options{Dial: w.dial, Start: c.start}); !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
		}
	})
}

// raw is a client that speaks frames and nothing else.
func raw(t *testing.T, w *world, frames ...string) []string {
	t.Helper()
	nc, err := w.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	go func() {
		for _, f := range frames {
			head, body, _ := strings.Cut(f, "|")
			if ipc.WriteFrame(nc, []byte(head), []byte(body)) != nil {
				return
			}
		}
	}()
	var replies []string
	for range frames {
		if err := nc.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return append(replies, err.Error())
		}
		head, body, err := ipc.ReadFrame(nc, maxReply, maxBody)
		if err != nil {
			return append(replies, "ended")
		}
		replies = append(replies, string(head)+string(body))
	}
	return replies
}

func helloLine() string {
	return fmt.Sprintf(`{"id":1,"method":"hello","params":{"version":%d}}`, Version)
}

// TestProtocol is what a client that is not ours can say.
func TestProtocol(t *testing.T) {
	hello := helloLine()
	for name, c := range map[string]struct {
		say  []string
		last string // is in the last reply
	}{
		"no hello":          {[]string{`{"id":1,"method":"status"}`}, `"code":"bad-request"`},
		"another version":   {[]string{`{"id":1,"method":"hello","params":{"version":9,"more":"x"}}`}, `"code":"version"`},
		"after that, over":  {[]string{`{"id":1,"method":"hello","params":{"version":9}}`, `{"id":2,"method":"status"}`}, "ended"},
		"unknown method":    {[]string{hello, `{"id":2,"method":"ledger.erase"}`}, `"code":"method"`},
		"unknown parameter": {[]string{hello, `{"id":2,"method":"stop","params":{"now":true}}`}, `"code":"bad-request"`},
		"unknown in decide": {[]string{hello, `{"id":2,"method":"decide","params":{"principal":"root/root"}}`}, `"code":"bad-request"`},
		"wrong type":        {[]string{hello, `{"id":2,"method":"decide","params":[1]}`}, `"code":"bad-request"`},
		"trailing":          {[]string{hello, `{"id":2,"method":"stop","params":{} {}}`}, "ended"},
		"not JSON":          {[]string{hello, `}{`}, "ended"},
		"unknown member":    {[]string{hello, `{"id":2,"method":"status","extra":1}`}, "ended"},
		"negative id":       {[]string{hello, `{"id":-2,"method":"status"}`}, "ended"},
		"whose session":     {[]string{hello, `{"id":2,"method":"decide","params":{"session":"s-1","verb":"tools/call"}}|{}`}, `"code":"no-session"`},
		"cancel of nothing": {[]string{hello, `{"id":9,"method":"cancel"}`, `{"id":2,"method":"status"}`}, "ended"},
		"works":             {[]string{hello, `{"id":2,"method":"status","params":null}`}, `"sessions":2`},
	} {
		in(t, ServerOptions{}, func(t *testing.T, w *world) {
			got := raw(t, w, c.say...)
			if last := got[len(got)-1]; !strings.Contains(last, c.last) {
				t.Errorf("%s: %q", name, got)
			}
		})
	}
}

// TestStall: a client that reads nothing loses its connection and holds up
// nobody (P4).
func TestStall(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		nc, err := w.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for _, f := range []string{helloLine(), `{"id":2,"method":"status"}`} {
			go func() { _ = ipc.WriteFrame(nc, []byte(f), nil) }() // the other side may hang up
			synctest.Wait()
		}
		if _, err := w.connect(Options{}).Status(t.Context()); err != nil {
			t.Error(err)
		}
		<-time.After(writeStall)
		synctest.Wait()
		if _, err := nc.Write([]byte{0}); err == nil {
			t.Error("still connected")
		}
	})
}

// TestServe is the real socket: peers are known, connections are bounded, and
// the end of the context ends everything.
func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.sock")
	l, err := ipc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, 1)
	s := NewServer(newFake(), ServerOptions{MaxConns: 1, Log: func(err error) { refused <- err }})
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	o := Options{Home: filepath.Dir(path)}
	c, err := Connect(t.Context(), o)
	if err != nil || s.Connections() != 1 {
		t.Fatal(err, s.Connections())
	}
	if _, err := Connect(t.Context(), o); !errors.Is(err, ErrNotRunning) || !strings.Contains((<-refused).Error(), "too many") {
		t.Errorf("a second connection: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := c.Status(t.Context()); err == nil {
		t.Error("answered after the end")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("after Close: %v", err)
	}
}

// TestDiskFull: of a call that could not be recorded the caller has the code, and a
// ticket that denies.
func TestDiskFull(t *testing.T) {
	w := newWorld(t, ServerOptions{})
	s, err := w.connect(Options{}).OpenSession(t.Context(), OpenRequest{Principal: "p/a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		want act.Code
	}{
		{Errorf(CodeUnavailable, "disk full"), act.CodeEvidence},
		{Errorf(CodeNoSession, "ended"), act.CodeSession},
		{Errorf(CodeInternal, "odd"), ""},
		{errors.New("odd"), ""},
	} {
		w.engine.decide = func(context.Context, act.Request) (act.Ticket, error) { return act.Ticket{Verdict: act.Allow}, c.err }
		got, err := s.Decide(t.Context(), act.Request{Verb: act.VerbCall})
		if err == nil || got.Verdict != act.Deny || got.Code != c.want {
			t.Errorf("%v: ticket %+v, %v, want code %q", c.err, got, err, c.want)
		}
	}
}
