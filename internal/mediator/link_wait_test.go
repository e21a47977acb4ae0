package mediator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// TestD21Share: who never answers keeps no other client of a server from being asked, nor
// itself.
func TestD21Share(t *testing.T) {
	l := &link{asking: map[string]*asking{}}
	now := time.Unix(1000, 0)
	n := 0
	ask := func(client string) bool {
		n++
		a := &asking{cancel: func(error) {}, client: client, since: now.Add(time.Duration(n))}
		return l.admitAsk(fmt.Sprint(n), a)
	}
	live := func(client string) (n int) {
		for _, a := range l.asking {
			if !a.gone && a.client == client {
				n++
			}
		}
		return n
	}
	for range maxClientAsks + 1 {
		if !ask("never answers") {
			t.Fatal("refused")
		}
	}
	if live("never answers") != maxClientAsks || !l.asking["1"].gone || l.asking["2"].gone {
		t.Error("the oldest does not give way")
	}
	for i := range 2 * maxClientAsks {
		if !ask(fmt.Sprint("other", i%2)) {
			t.Fatalf("another is refused after %d", i)
		}
	}
	if a, b, c := live("never answers"), live("other0"), live("other1"); a+b+c != maxServerAsks || a > b || a > c {
		t.Errorf("%d, %d and %d wait", a, b, c)
	}
	if l.admitAsk("9", &asking{}) {
		t.Error("an id in use is taken again")
	}
	for range 2 * maxServerAsks {
		ask("flood")
	}
	if len(l.asking) != 2*maxServerAsks {
		t.Errorf("%d are under way", len(l.asking))
	}
}

// asksOften is a server with sessions that asks on every call, and answers with what it was
// told.
func asksOften(p *fakeProcess) {
	p.open(`{"name":"a"}`)
	for line := p.hear(); line != ""; line = p.hear() {
		m, err := readServer([]byte(line), len(line))
		switch {
		case err != nil:
		case m.method == "tools/call":
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q%s","method":"elicitation/create","params":{"message":"age?"}}`, m.id()))
		case m.response():
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, strings.Trim(string(m.id()), `"q`)))
		}
	}
}

// TestD21GivesWay: a server hears that its oldest question is refused, and goes on.
func TestD21GivesWay(t *testing.T) {
	d := deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create allow")
	c := converse(t, d, map[string][]fakeServer{"fs": {asksOften}}, func(o *Options) { o.MayAsk, o.InFlight = []string{askElicitation}, 4*maxClientAsks })
	for id := range maxClientAsks + 1 {
		c.ask(modernLine(id, "tools/call", `"name":"a","arguments":{"n":`+fmt.Sprint(id)+`}`), `"resultType":"input_required"`)
	}
}

// TestD17Turns: for a while after anybody's request, what is said may be about it; also if
// that ended long after others had begun, and its connection is closed.
func TestD17Turns(t *testing.T) {
	var s turns
	at := func(second int) time.Time { return time.Unix(int64(1000+second), 0) }
	check := func(who string, second int, want bool) {
		t.Helper()
		if got := s.unsure(who, at(second)); got != want {
			t.Errorf("%s at %d: %v", who, second, got)
		}
	}
	check("A", 0, false)
	s.took("A", at(0))
	check("A", 1, false)
	check("B", 1, true)
	s.took("B", at(2))
	check("A", 3, true)
	check("B", 4, true)
	check("B", 5, false)
	s.took("A", at(20)) // its request ends
	check("B", 21, true)
	check("A", 21, false)
	s.took("A", at(22))
	s.took("B", at(23))
	check("B", 26, true)
	check("B", 27, false)
}

// TestD17LateText: what a server says, or asks, of a request that has ended reaches no other
// connection, even where the transport knows both by one name.
func TestD17LateText(t *testing.T) {
	d := deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create allow")
	refused := make(chan string, 4)
	starter := starting(map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		for line := p.hear(); line != ""; line = p.hear() {
			m, err := readServer([]byte(line), len(line))
			result := `{}`
			switch {
			case err != nil:
				continue
			case m.response():
				refused <- line
				continue
			case !m.request():
				continue
			case m.method == "initialize":
				result = `{"protocolVersion":"2025-11-25","capabilities":` + everything + `}`
			case m.method == "prompts/list":
				result = `{"prompts":[{"name":"p"}]}`
			case m.method == "prompts/get": // of the second; it is about the first
				p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"late, of x:secret"}}`,
					`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"late, of x:secret"}}`)
				refused <- p.hear()
			}
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.id(), result))
		}
	}}})
	m, err := New(Options{Decider: d, Starter: starter, Servers: []Server{{Name: "fs", Command: "x"}}, MayAsk: []string{askElicitation}, StopGrace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Serve(t.Context(), func(context.Context) error {
		boxes := []mailbox{make(mailbox, 64), make(mailbox, 64)}
		lines := []string{
			`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"x:secret"}}`,
			`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}`,
		}
		for i, line := range lines {
			c, err := m.Connect("token", boxes[i])
			if err != nil {
				return err
			}
			defer c.Close()
			c.Take(Read([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}}`)), false, boxes[i])
			<-boxes[i]
			c.Take(Read([]byte(line)), false, boxes[i])
			for got := ""; !strings.Contains(got, `"id":1,"result"`); {
				if got = <-boxes[i]; strings.Contains(got, "secret") {
					t.Errorf("connection %d hears %s", i, got)
				}
				if strings.Contains(got, "elicitation/create") || strings.Contains(got, `"error"`) {
					return fmt.Errorf("connection %d is sent %s", i, got)
				}
			}
		}
		if got := <-refused; !strings.Contains(got, errLateAsk.Error()) {
			t.Errorf("the server heard %s", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	d.check(t)
}

// TestSentToTheDead: what is said of a server that takes nothing more is what became of
// it, whichever of its streams was seen to end first.
func TestSentToTheDead(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	l := &link{out: newOutbox(w, 1), down: make(chan struct{}), pending: map[int64]*flight{}}
	if err := l.out.send(t.Context(), []byte("\n")); err != nil {
		t.Fatal(err)
	}
	<-l.out.done
	go l.fail(errors.New("it ended"))
	_, err := l.send(t.Context(), errand{}, func(int64) ([]byte, error) { return []byte("\n"), nil })
	if err == nil || err.Error() != "not sent: it ended" || plainly(err).Error() != "it ended" {
		t.Error(err)
	}
	if err := l.tell(t.Context(), []byte("\n")); err == nil || err.Error() != "it ended" {
		t.Error(err)
	}
}
