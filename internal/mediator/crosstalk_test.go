package mediator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A mailbox is the stream of a client: what it is told, in order.
type mailbox chan string

func (b mailbox) Answer(_ context.Context, a Answer) error {
	b <- string(a.Line)
	if a.Written != nil {
		a.Written()
	}
	return nil
}
func (b mailbox) Ask(_ context.Context, line []byte) error { b <- string(line); return nil }
func (b mailbox) Tell(line []byte)                         { b <- string(line) }

// TestR8Crosstalk: of what a server says, asks and keeps for one connection, nothing
// reaches another: texts, questions, updates, tasks, levels.
func TestR8Crosstalk(t *testing.T) {
	d := deciding("")
	starter := starting(map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		for line := p.hear(); line != ""; line = p.hear() {
			m, err := readClient([]byte(line))
			if err != nil || !m.request() {
				continue
			}
			result := `{}`
			switch m.method {
			case "initialize":
				result = `{"protocolVersion":"2025-11-25","capabilities":` + everything + `}`
			case "tools/list":
				result = `{"tools":[{"name":"a"}]}`
			case "tools/call":
				p.say(
					`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"whose is it"}}`,
					`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:1"}}`)
				result = `{"task":{"taskId":"1","status":"working"}}`
			case "resources/read": // idle talk comes behind it
				p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.id()),
					`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"for nobody"}}`)
				continue
			}
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.id(), result))
		}
	}}})
	m, err := New(Options{Decider: d, Starter: starter, Servers: []Server{{Name: "fs", Command: "x"}}, StopGrace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Serve(t.Context(), func(context.Context) error {
		boxes := map[string]mailbox{}
		clients := map[string]*Client{}
		for _, name := range []string{"ann", "bob"} {
			boxes[name] = make(mailbox, 64)
			c, err := m.Connect(name, boxes[name])
			if err != nil {
				return err
			}
			defer c.Close()
			clients[name] = c
		}
		say := func(name, line string) { clients[name].Take(Read([]byte(line)), false, boxes[name]) }
		hears := func(name, want string) string {
			got := <-boxes[name]
			if !strings.Contains(got, want) {
				t.Errorf("%s hears %s, want %s", name, got, want)
			}
			return got
		}
		for name := range clients {
			say(name, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
			hears(name, `"id":0`)
		}
		say("bob", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"x:1"}}`)
		hears("bob", `"id":1,"result"`)
		say("bob", `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}`)
		hears("bob", `"id":2,"result"`)
		say("ann", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","task":{}}}`)
		made := hears("ann", `"taskId"`)
		hears("bob", "resources/updated")
		id := taskID.FindStringSubmatch(made)[1]
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			say("bob", `{"jsonrpc":"2.0","id":3,"method":"`+method+`","params":{"taskId":"`+id+`"}}`)
			hears("bob", "there is no task of this id")
		}
		say("bob", `{"jsonrpc":"2.0","id":4,"method":"tasks/list"}`)
		hears("bob", `{"tasks":[]}`)
		say("ann", `{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"x:1"}}`)
		hears("ann", `"id":2,"result"`)
		for name := range clients { // what comes next is the answer to this, so nothing came between
			say(name, `{"jsonrpc":"2.0","id":9,"method":"logging/setLevel","params":{"level":"info"}}`)
			hears(name, `"id":9`)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	d.check(t)
}

// TestFloodOfTexts: a server that never stops talking costs a bounded number of decisions,
// and its calls are answered.
func TestFloodOfTexts(t *testing.T) {
	d := deciding("")
	c := converse(t, d, map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(`{"name":"a"}`)
		p.hear()
		for range 5000 {
			p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":3,"progress":1,"message":"x"}}`)
		}
		p.say(`{"jsonrpc":"2.0","id":3,"result":{"done":true}}`)
		p.drain()
	}}}, nil)
	c.open()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}`)
	for !strings.Contains(c.receive(), `"done":true`) {
		continue
	}
	if n := len(d.logged("decide tools/call fs.notifications/")); n == 0 || n > saidBurst+50*saidRate {
		t.Errorf("%d texts were decided", n)
	}
}

// TestR8SaidWithin: what a server says in the answer to a request is for who made that one,
// also while others have requests under way; in an answer that is over it is for nobody.
func TestR8SaidWithin(t *testing.T) {
	s := &server{}
	l := &link{pending: map[int64]*flight{1: {}}}
	says := map[int64]*saying{}
	for id := int64(2); id <= 3; id++ {
		f := &front{}
		says[id] = newSaying(s, f, message{})
		l.pending[id] = &flight{errand: errand{asker: &call{s: s, f: f, says: says[id]}}}
	}
	for in, want := range map[int64]*saying{0: nil, 1: nil, 2: says[2], 3: says[3], 4: nil} {
		if got := s.hearer(l, in); got != want {
			t.Errorf("what is said in %d is heard by %p, want %p", in, got, want)
		}
	}
}
