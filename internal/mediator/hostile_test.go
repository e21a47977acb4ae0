package mediator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act"
)

const aTool = `{"name":"a"}`

// misbehave returns a server that opens, hears one call and then does what it
// should not; started again, it answers.
func misbehave(then func(p *fakeProcess)) []fakeServer {
	return []fakeServer{
		func(p *fakeProcess) {
			p.open(aTool)
			if p.hear() != "" {
				then(p)
			}
		},
		func(p *fakeProcess) {
			p.open(aTool)
			p.hear()
			p.say(`{"jsonrpc":"2.0","id":3,"result":{"well":true}}`)
			p.drain()
		},
	}
}

// TestMC22 : whatever a server writes, the client gets a clean error, and the
// next call a server that works.
func TestMC22(t *testing.T) {
	cases := map[string]struct {
		then func(p *fakeProcess)
		want string
	}{
		"dies": {func(*fakeProcess) {}, "it ended"},
		"half a message": {func(p *fakeProcess) {
			_, _ = io.WriteString(p.out, `{"jsonrpc":"2.0","id":3,"result":{"content":[`)
		}, "it ended"},
		"closes its output": {func(p *fakeProcess) {
			p.out.Close()
			<-p.killed
		}, "it closed its output"},
		"endless line": {func(p *fakeProcess) {
			chunk := bytes.Repeat([]byte("x"), 1<<16)
			for {
				if _, err := p.out.Write(chunk); err != nil {
					return
				}
			}
		}, "it wrote a line of more than 1048576 bytes"},
		"endless noise": {func(p *fakeProcess) {
			for range 1000 {
				p.say("Listening on port 3000", `{"level":"info"}`)
			}
			<-p.killed
		}, "lines that are not MCP"},
		"wrong ids": {func(p *fakeProcess) {
			for _, id := range []string{"0", "-3", "4", "3.0", `"3"`, "30e-1", "null", "99999999999999999999"} {
				p.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"stolen":true}}`)
			}
		}, "it ended"},
		"broken message": {func(p *fakeProcess) {
			p.say(`{"jsonrpc":"2.0","id":3,"result":{"a":`)
			<-p.killed
		}, "it wrote a message that cannot be read"},
		"not UTF-8": {func(p *fakeProcess) {
			p.say("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"a\":\"\xff\"}}")
			<-p.killed
		}, "it wrote a message that cannot be read"},
		"id twice": {func(p *fakeProcess) {
			p.say(`{"jsonrpc":"2.0","id":3,"id":4,"result":{}}`)
			<-p.killed
		}, "it wrote a message that cannot be read"},
		"deep nesting": {func(p *fakeProcess) {
			p.say(`{"jsonrpc":"2.0","id":3,"result":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`)
			<-p.killed
		}, "it wrote a message that cannot be read"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			conv := converse(t, deciding(""), map[string][]fakeServer{"fs": misbehave(c.then)}, func(o *Options) { o.MaxResult = 1 << 20 })
			conv.open()
			conv.ask(callLine("1", "a", "{}"), `"isError":true`, `"code":"unavailable"`, c.want)
			conv.ask(callLine("2", "a", "{}"), `{"well":true}`)
		})
	}
}

// TestMC22Tolerated : what is merely untidy does not hurt the call.
func TestMC22Tolerated(t *testing.T) {
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		p.hear()
		p.say("", "starting…", `{"level":"info"}`, `[1]`, `{"jsonrpc":"2.0","id":77,"result":{}}`, `{"jsonrpc":"2.0","method":"x/unknown"}`, `{"jsonrpc":"2.0","id":2,"result":{"again":1}}`)
		_, _ = io.WriteString(p.stderr, strings.Repeat("log\n", 100000))
		p.say(`{"jsonrpc":"2.0","id":3,"result":{"a":1,"a":"\u0000\ud800"}}` + "\r")
		p.drain()
	}}}, nil)
	conv.open()
	conv.ask(callLine("1", "a", "{}"), `"result":{"a":1,"a":"\u0000\ud800"}}`)
}

// A server that floods notifications of change has its tools read a few times,
// not once for each.
func TestFloodOfChanges(t *testing.T) {
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		p.hear()
		for range 5000 {
			p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		p.say(`{"jsonrpc":"2.0","id":3,"result":{"done":1}}`)
		if next := p.hear(); !strings.Contains(next, "tools/list") {
			t.Errorf("heard %q", next)
		}
		p.drain()
	}}}, func(o *Options) { o.RefreshEvery = time.Minute })
	conv.open()
	conv.ask(callLine("1", "a", "{}"), `{"done":1}`)
	if n := len(conv.d.logged("decide tools/list")); n != 1 {
		t.Errorf("the list was decided %d times", n)
	}
}

// A server that never answers is told to stop after the time of a call, and one
// that does not end is killed.
func TestHang(t *testing.T) {
	told := make(chan string, 1)
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		p.hear()
		told <- p.hear()
		<-p.terminated
		<-p.killed
	}}}, func(o *Options) {
		o.CallTimeout, o.StopGrace = 50*time.Millisecond, 10*time.Millisecond
	})
	conv.open()
	conv.ask(callLine("1", "a", "{}"), `"code":"timeout"`, "fs: sent, with unknown effect: the server did not answer in time")
	if got := <-told; got != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}` {
		t.Errorf("heard %q", got)
	}
	conv.close()
}

// A server that does not read gets what fits; the rest times out without having
// been sent.
func TestDoesNotRead(t *testing.T) {
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		<-p.killed
	}}}, func(o *Options) { o.CallTimeout, o.StopGrace = 100*time.Millisecond, 10*time.Millisecond })
	conv.open()
	big := `{"x":"` + strings.Repeat("x", 1<<20) + `"}`
	for i := range 4 {
		conv.ask(callLine(fmt.Sprint(i), "a", big), `"code":"timeout"`)
	}
}

// A server that closes its input is one that cannot be called.
func TestClosesInput(t *testing.T) {
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": misbehave(func(p *fakeProcess) {
		p.stdin.Close()
		p.say(`{"jsonrpc":"2.0","id":3,"result":{"first":true}}`)
		<-p.killed
	})}, nil)
	conv.open()
	conv.ask(callLine("1", "a", "{}"), `{"first":true}`)
	for i := 2; ; i++ {
		if got := conv.ask(callLine(fmt.Sprint(i), "a", "{}")); strings.Contains(got, `{"well":true}`) {
			return
		} else if !strings.Contains(got, `"isError":true`) || i > 1000 {
			t.Fatal(got)
		}
	}
}

// A server that cannot be started, or that cannot be opened, is tried again a
// few times and then left alone; what it says on the way reaches people only.
func TestNeverReady(t *testing.T) {
	bad := map[string]fakeServer{
		"ends":    func(*fakeProcess) {},
		"refuses": func(p *fakeProcess) { p.hear(); p.say(`{"jsonrpc":"2.0","id":1,"error":{"message":"SECRET"}}`) },
		"future": func(p *fakeProcess) {
			p.hear()
			p.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"SECRET"}}`)
		},
		"duplicate": func(p *fakeProcess) { p.open(`{"name":"a","name":"SECRET"}`); p.drain() },
		"no list":   func(p *fakeProcess) { p.open(`]],"SECRET":[[`); p.drain() },
	}
	for name, run := range bad {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {run}}, func(o *Options) {
				o.Log = slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil))
			})
			conv.open()
			for i := range 10 {
				got := conv.ask(callLine(fmt.Sprint(i), "a", "{}"), `"isError":true`)
				if strings.Contains(got, "SECRET") {
					t.Error("the client reads", got)
				}
			}
			conv.ask(callLine("11", "a", "{}"), "it failed too often")
			conv.ask(`{"jsonrpc":"2.0","id":12,"method":"tools/list"}`, `{"tools":[]}`)
			if n := conv.starter.starts["fs"]; n != 6 {
				t.Errorf("started %d times", n)
			}
			if calls := conv.d.logged("decide tools/call"); len(calls) > 0 {
				t.Errorf("a call of a server that is not up was decided: %q", calls)
			}
		})
	}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// Lists without end are refused.
func TestEndlessList(t *testing.T) {
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.hear()
		p.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}`)
		p.hear()
		for id := 2; p.hear() != ""; id++ {
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"tools":[],"nextCursor":"x"}}`, id))
		}
	}}}, func(o *Options) { o.MaxRestarts = 1 })
	conv.open()
	conv.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"tools":[]}`)
}

// TestMC07Client : lines without end and other floods of a client are refused,
// and the next request is served.
func TestMC07Client(t *testing.T) {
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) { p.open(aTool); p.drain() }}}, nil)
	conv.open()
	ping := func() { conv.ask(`{"jsonrpc":"2.0","id":"p","method":"ping"}`, `"id":"p","result":{}`) }
	conv.ask(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"`+strings.Repeat("x", 100<<20)+`"}}`, `"id":null`, "longer than 16 MiB")
	ping()
	for _, open := range []string{"[", `{"a":`} {
		conv.ask(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":`+strings.Repeat(open, 10000), `-32700`, "nested too deeply")
	}
	conv.ask(`[`+strings.Repeat(`{"id":1},`, 200000)+`{"id":1}]`, `"id":null`, "batches")
	conv.ask(string(bytes.Repeat([]byte{0}, 1000)), "U+0000")
	ping()
}

// A client has a bounded number of calls in flight, and an id once at a time.
func TestManyCalls(t *testing.T) {
	d := deciding("tools/call fs.a hold")
	conv := converse(t, d, map[string][]fakeServer{"fs": {func(p *fakeProcess) { p.open(aTool); p.drain() }}}, nil)
	conv.open()
	conv.send(callLine("0", "a", "{}"))
	conv.ask(callLine("0", "a", "{}"), `"id":0,"error":{"code":-32600,"message":"this id is in use"}`)
	for i := 1; i < maxCalls; i++ {
		conv.send(callLine(fmt.Sprint(i), "a", "{}"))
	}
	conv.ask(callLine("-1", "a", "{}"), `"id":-1,"error":{"code":-32000`)
	conv.ask(`{"jsonrpc":"2.0","id":"p","method":"ping"}`, `"id":"p","result":{}`)
}

// TestMC24 : calls are cancelled at any moment; each is sent at most once, each
// ticket finished once (converse checks that), and none is both answered and
// recorded as lost.
func TestMC24(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	d := deciding("")
	conv := converse(t, d, map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		for line := p.hear(); line != ""; line = p.hear() {
			m, err := readClient([]byte(line))
			if err != nil || m.method != "tools/call" {
				continue
			}
			parts, _ := readCall(m)
			mu.Lock()
			seen[string(parts.arguments.of(m.raw))]++
			mu.Unlock()
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.id()))
		}
	}}}, nil)
	conv.open()
	const n = 300
	for i := range n {
		conv.send(callLine(fmt.Sprint(i), "a", fmt.Sprintf(`{"n":%d}`, i)))
		for range i % 7 {
			runtime.Gosched()
		}
		conv.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i))
	}
	conv.close()
	mu.Lock()
	defer mu.Unlock()
	for args, times := range seen {
		if times != 1 {
			t.Errorf("%s was sent %d times", args, times)
		}
	}
	for _, l := range d.logged("finish fs.a not sent") {
		if len(seen) == n {
			t.Errorf("everything was sent, but %q", l)
		}
	}
}

// A call that was decided for one incarnation of the server, or one list of its
// tools, is not sent to another.
func TestReplacedWhileDeciding(t *testing.T) {
	release := make(chan struct{})
	d := &slowDecider{fakeDecider: deciding(""), release: release, asked: make(chan struct{}, 1)}
	var heard []string
	conv := converse(t, d.fakeDecider, map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		<-d.asked
		p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		p.hear()
		p.say(`{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"a","description":"other"}]}}`)
		heard = append(heard, p.hear())
	}}}, func(o *Options) { o.Decider = d })
	conv.open()
	conv.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, aTool)
	conv.send(callLine("2", "a", "{}"))
	if got := conv.receive(); !strings.Contains(got, "list_changed") {
		t.Fatal(got)
	}
	close(release)
	if got := conv.receive(); !strings.Contains(got, "changed while this call was decided") {
		t.Error(got)
	}
	conv.close()
	if !slices.Equal(heard, []string{""}) {
		t.Errorf("the server heard %q", heard)
	}
}

// A slowDecider decides calls when it is released.
type slowDecider struct {
	*fakeDecider
	asked   chan struct{}
	release chan struct{}
}

func (d *slowDecider) Decide(ctx context.Context, r act.Request) (act.Ticket, error) {
	if r.Verb == act.VerbCall {
		d.asked <- struct{}{}
		<-d.release
	}
	return d.fakeDecider.Decide(ctx, r)
}

// The end of the context ends everything, even while the client says nothing.
func TestContextEnds(t *testing.T) {
	d := deciding("tools/call fs.a hold")
	starter := starting(map[string][]fakeServer{"fs": {func(p *fakeProcess) { p.open(aTool); p.drain() }}})
	m, err := New(Options{Decider: d, Starter: starter, Servers: []Server{{Name: "fs", Command: "x"}}, StopGrace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	inR, inW, _ := os.Pipe()
	defer inR.Close()
	defer inW.Close()
	say(t, inW, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	say(t, inW, callLine("2", "a", "{}"))
	go func() { <-d.held; cancel() }()
	if err := m.Run(ctx, inR, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	starter.running.Wait()
	d.check(t)
	if err := m.Run(ctx, inR, io.Discard); !errors.Is(err, ErrRan) {
		t.Errorf("Run again: %v", err)
	}
	if s := m.States(); len(s) != 1 || s[0].Up || s[0].Report != "fake" {
		t.Errorf("States: %+v", s)
	}
}

// A client that reads no more is one that has gone, though it still writes.
func TestClientStopsReading(t *testing.T) {
	d := deciding("tools/call fs.a hold")
	m, err := New(Options{Decider: d, Starter: starting(map[string][]fakeServer{"fs": {func(p *fakeProcess) { p.open(aTool); p.drain() }}}), Servers: []Server{{Name: "fs", Command: "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(context.Background(), inR, outW) }()
	say(t, inW, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	_, _ = outR.Read(make([]byte, 4096))
	say(t, inW, callLine("2", "a", "{}"))
	<-d.held
	outR.Close()
	_, _ = fmt.Fprintln(inW, `{"jsonrpc":"2.0","id":3,"method":"ping"}`) // nobody may read any more
	if err := <-ended; !errors.Is(err, errGone) {
		t.Errorf("Run: %v", err)
	}
	d.check(t)
	inW.Close()
}

// A server that comes up after a list was shown without it is announced.
func TestLateServer(t *testing.T) {
	release := make(chan struct{})
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) { <-release; p.open(aTool); p.drain() }}}, func(o *Options) { o.ListWait = time.Millisecond })
	conv.open()
	conv.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"tools":[]}`)
	close(release)
	if got := conv.receive(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Error(got)
	}
}

func TestNewRefuses(t *testing.T) {
	d, s := deciding(""), starting(nil)
	for name, o := range map[string]Options{
		"nothing": {}, "no starter": {Decider: d}, "no decider": {Starter: s},
		"name":  {Decider: d, Starter: s, Servers: []Server{{Name: "a__b"}}},
		"twice": {Decider: d, Starter: s, Servers: []Server{{Name: "a"}, {Name: "a"}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: New succeeds", name)
		}
	}
}

func say(t *testing.T, w io.Writer, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(w, line); err != nil {
		t.Error(err)
	}
}

// A finishing decider tells of every outcome, and does not log its body.
type finishing struct {
	*fakeDecider
	done chan struct{}
}

func (f finishing) Finish(ctx context.Context, t act.Ticket, o act.Outcome) (act.Reply, error) {
	_, err := f.fakeDecider.Finish(ctx, t, act.Outcome{Error: o.Error})
	f.done <- struct{}{}
	return act.Reply{Body: o.Body}, err
}

// TestClientDoesNotRead: a client that calls and does not read its answers cannot
// make us keep more results than the bound.
func TestClientDoesNotRead(t *testing.T) {
	const calls, size = 40, 8 << 20
	d := finishing{deciding(""), make(chan struct{}, calls+1)}
	result := `,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}}`
	all := make(chan struct{})
	conv := converse(t, d.fakeDecider, map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		<-d.done // of the list
		for id := 3; id < calls+3; id++ {
			if p.hear() == "" {
				return
			}
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d%s`, id, result))
			<-d.done
		}
		close(all)
		p.drain()
	}}}, func(o *Options) { o.Decider = d })
	conv.open()
	for i := range calls {
		conv.send(callLine(fmt.Sprint(i), "a", "{}"))
	}
	<-all
	refused := 0
	for range calls {
		if strings.Contains(conv.receive(), "too many results at once") {
			refused++
		}
	}
	if kept := (calls - refused) * size; kept > maxHeld {
		t.Errorf("%d MiB of results were kept", kept>>20)
	}
}
