package mediator

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/act"
)

// asksOnce is a server with sessions that, when it is called, asks for an age and then
// answers with what it was told.
func asksOnce(p *fakeProcess) {
	calls := ""
	for line := p.hear(); line != ""; line = p.hear() {
		var m struct {
			ID     json.RawMessage
			Method string
			Result json.RawMessage
		}
		if json.Unmarshal([]byte(line), &m) != nil {
			return
		}
		switch {
		case m.Method == "initialize":
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`, m.ID))
		case m.Method == "tools/list":
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"a"}]}}`, m.ID))
		case m.Method == "tools/call":
			calls = string(m.ID)
			p.say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"age?"}}`)
		case m.Method == "" && string(m.ID) == `"q"`:
			said, _ := json.Marshal(string(m.Result))
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, calls, said))
		case m.ID != nil:
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID))
		}
	}
}

// TestSuspended: to a client whose requests stand alone, the question of a server with
// sessions is an answer, and the request goes on when the client comes back: once, for
// the same request, with the state as it was given, and with what was asked for.
func TestSuspended(t *testing.T) {
	d := deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create allow")
	c := converse(t, d, map[string][]fakeServer{"fs": {asksOnce}}, func(o *Options) { o.MayAsk = []string{askElicitation} })
	call := `"name":"a","arguments":{"x":1}`
	first := c.ask(modernLine(1, "tools/call", call), `"resultType":"input_required"`, `{"method":"elicitation/create","params":{"message":"age?"}}`)
	state := field(t, first, "/requestState")
	answer := `,"inputResponses":{"question":{"action":"accept","content":{"age":7}}},"requestState":`
	for id, wrong := range []string{
		`"name":"a","arguments":{"x":2}` + answer + state,             // another request
		`"name":"b","arguments":{"x":1}` + answer + state,             // another tool
		call + answer + strings.Replace(state, state[10:12], "__", 1), // another state
		call + answer + `"` + strings.Repeat("A", 3*maxState) + `"`,   // a long one
		call + answer + `{}`, // none
		call + `,"inputResponses":{},"requestState":` + state + `,"more":"params"`, // more than was asked
	} {
		c.ask(modernLine(10+id, "tools/call", wrong), `"code":-32602`, "none that was given for this request")
	}
	// Without what was asked for, the client is asked again.
	again := c.ask(modernLine(2, "tools/call", call+`,"inputResponses":{"other":{}},"requestState":`+state), `"resultType":"input_required"`, "age?")
	last := field(t, again, "/requestState")
	c.ask(modernLine(3, "tools/call", `"arguments":{"x":1},"name":"a"`+answer+last), `{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete"`, `\"age\":7`)
	for id, old := range []string{state, last} {
		c.ask(modernLine(20+id, "tools/call", call+answer+old), `"code":-32602`)
	}
	c.close()
	if got := d.logged("decide tools/call fs.a"); len(got) != 1 {
		t.Errorf("decided %q", got)
	}
}

// TestNobodyToAsk: a server that was told that clients can be asked goes on when this one
// cannot, and hears that nobody answered.
func TestNobodyToAsk(t *testing.T) {
	d := deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create allow")
	c := converse(t, d, map[string][]fakeServer{"fs": {asksOnce}}, func(o *Options) { o.MayAsk = []string{askElicitation} })
	c.ask(modernLine(1, "tools/list", ""), `"id":1,"result"`)
	alone := strings.Replace(modernLine(2, "tools/call", `"name":"a","arguments":{}`), `"elicitation"`, `"other"`, 1)
	c.ask(alone, `"id":2,"result"`, `\"action\":\"cancel\"`)
	if nobody[askRoots] != `{"roots":[]}` || nobody[askSampling] != "" {
		t.Error("there is an answer of a model that nobody asked, or none about roots")
	}
	c.close()
	if got := d.logged("finish fs.elicitation/create"); len(got) != 1 || !strings.Contains(got[0], "does not offer that") {
		t.Errorf("on record: %q", got)
	}
}

// TestSuspendedIsCancelled: a call whose client does not come back ends with the
// mediator, and is on record (conversation.close checks the tickets).
func TestSuspendedIsCancelled(t *testing.T) {
	d := deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create allow")
	c := converse(t, d, map[string][]fakeServer{"fs": {asksOnce}}, func(o *Options) { o.MayAsk = []string{askElicitation} })
	c.ask(modernLine(1, "tools/call", `"name":"a","arguments":{}`), `"resultType":"input_required"`)
}

// TestD21ManySuspended: one client cannot keep more than its share of calls waiting, nor all
// of them together more than there is room for; the oldest of the same client gives way.
func TestD21ManySuspended(t *testing.T) {
	m, err := New(Options{Decider: deciding(""), Starter: starting(nil)})
	if err != nil {
		t.Fatal(err)
	}
	var gone []string
	for who := range maxSuspended / maxSuspendedEach {
		for i := range maxSuspendedEach + 1 {
			ticket := fmt.Sprint(who, ".", i)
			x := &exchange{done: make(chan parcel, 1), cancel: func(error) { gone = append(gone, ticket) }}
			if err := m.keep(ticket, &suspension{x: x, who: fmt.Sprint(who)}); err != nil {
				t.Fatalf("client %d is refused call %d: %v", who, i, err)
			}
			defer m.takeUp(ticket)
		}
		if want := fmt.Sprint(who, ".0"); len(gone) != who+1 || gone[who] != want || m.takeUp(want) != nil {
			t.Errorf("%q gave way", gone)
		}
	}
	if m.keep("more", &suspension{who: "another"}) == nil || m.takeUp("none") != nil {
		t.Error("more are kept than there is room for")
	}
}

// TestManyPassed: neither can one client keep more than its share of results that wait for
// it; the tickets of its oldest are finished, and nobody else's.
func TestManyPassed(t *testing.T) {
	d := deciding("")
	m, err := New(Options{Decider: d, Starter: starting(nil)})
	if err != nil {
		t.Fatal(err)
	}
	m.ctx = t.Context()
	defer m.forgetPassed("")
	keep := func(who, i int) (string, error) {
		ticket := act.Ticket{ID: fmt.Sprint(who, ".", i)}
		return m.keepPassed(&passed{who: fmt.Sprint(who), tickets: map[string]act.Ticket{"q": ticket}})
	}
	for who := range maxPassed / maxPassedEach {
		first, err := keep(who, 0)
		for i := range maxPassedEach {
			if _, kerr := keep(who, 1+i); err != nil || kerr != nil {
				t.Fatalf("client %d is refused call %d: %v, %v", who, 1+i, err, kerr)
			}
		}
		if m.takePassed(first, fmt.Sprint(who)) != nil || d.finished[fmt.Sprint(who, ".0")] != 1 || len(d.finished) != who+1 {
			t.Errorf("client %d: finished are %v", who, d.finished)
		}
	}
	if _, err := keep(99, 0); err == nil {
		t.Error("more are kept than there is room for")
	}
}

// asksEach is a server with sessions that asks on every call of a tool, and answers it with
// what it was told, refusals too; those of the other tool it answers at once.
func asksEach(p *fakeProcess) {
	p.open(`{"name":"a"},{"name":"b"}`)
	for line := p.hear(); line != ""; line = p.hear() {
		var m struct {
			ID            json.RawMessage
			Method        string
			Params        struct{ Name string }
			Result, Error json.RawMessage
		}
		if json.Unmarshal([]byte(line), &m) != nil {
			return
		}
		switch said, _ := json.Marshal(string(m.Result) + string(m.Error)); {
		case m.Method == "tools/call" && m.Params.Name == "a":
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q%s","method":"elicitation/create","params":{"message":"age?"}}`, m.ID))
		case m.Method == "tools/call":
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID))
		case m.Method == "":
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, strings.Trim(string(m.ID), `"q`), said))
		}
	}
}

// TestSuspendedFillNoServer: of the places of a server, a client that does not answer what
// it is asked keeps half at most. The call that would keep one more goes on without an
// answer, and calls of others are served.
func TestSuspendedFillNoServer(t *testing.T) {
	d := deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create allow")
	c := converse(t, d, map[string][]fakeServer{"fs": {asksEach}}, func(o *Options) { o.MayAsk, o.InFlight = []string{askElicitation}, 4 })
	c.send(`{"jsonrpc":"2.0","id":"open","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`)
	c.receive()
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	var first string
	for id := range 2 {
		if first = c.ask(callLine(fmt.Sprint(id), "a", "{}"), "elicitation/create", "age?"); t.Failed() {
			return
		}
	}
	for id := 10; id < 15; id++ {
		c.ask(callLine(fmt.Sprint(id), "a", "{}"), fmt.Sprintf(`"id":%d`, id), errSuspended.Error())
		if t.Failed() {
			return
		}
		c.ask(callLine(fmt.Sprint(id), "b", "{}"), fmt.Sprintf(`"id":%d`, id), `"content":[]`)
	}
	var asked struct{ ID string }
	if err := json.Unmarshal([]byte(first), &asked); err != nil {
		t.Fatal(err)
	}
	c.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"action":"decline"}}`, asked.ID), "decline")
	c.ask(callLine("20", "a", "{}"), "elicitation/create") // there is room again
}

// TestSealProperty: a state opens for its client, its request and its time, and for
// nothing else; whatever is changed in it, it does not.
func TestSealProperty(t *testing.T) {
	s, err := newSeals()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newSeals()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		who := rapid.SampledFrom([]string{"token", "uid:1", "uid:10", ""}).Draw(t, "who")
		digest := sha256.Sum256(rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "request"))
		payload := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")
		text, err := s.seal(stateServer, who, digest, payload, now)
		if err != nil {
			t.Fatal(err)
		}
		if kind, got, err := s.open(text, who, digest, now); err != nil || kind != stateServer || string(got) != string(payload) {
			t.Fatalf("%v %q %v", kind, got, err)
		}
		changed := []byte(text)
		at := rapid.IntRange(0, len(changed)-1).Draw(t, "at")
		changed[at] = rapid.SampledFrom([]byte("ABab01-_")).Draw(t, "byte")
		for what, open := range map[string]func() error{
			"another client":  func() error { _, _, err := s.open(text, who+"x", digest, now); return err },
			"another request": func() error { _, _, err := s.open(text, who, sha256.Sum256([]byte("other request")), now); return err },
			"later":           func() error { _, _, err := s.open(text, who, digest, now.Add(time.Second)); return err },
			"another key":     func() error { _, _, err := other.open(text, who, digest, now); return err },
			"shorter":         func() error { _, _, err := s.open(text[:at], who, digest, now); return err },
			"changed": func() error {
				_, got, err := s.open(string(changed), who, digest, now)
				if string(changed) == text || err == nil && string(got) == string(payload) && sameBits(string(changed), text) {
					return errState // it is the same state
				}
				return err
			},
		} {
			if open() == nil {
				t.Fatalf("%s: it opens", what)
			}
		}
	})
}

// sameBits reports whether two texts decode to the same bytes: the last letter may hold
// bits that mean nothing.
func sameBits(a, b string) bool {
	x, err := encodeState.DecodeString(a)
	y, yerr := encodeState.DecodeString(b)
	return err == nil && yerr == nil && string(x) == string(y)
}

// FuzzRead: what is read as a message has one era, and what is not is refused with a line
// of JSON.
func FuzzRead(f *testing.F) {
	f.Add([]byte(modernLine(1, "tools/call", `"name":"a"`)))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}}`))
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\n\"id\":1,\r\n\"result\":{}}"))
	f.Add([]byte(`[{"id":1}]`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m := Read(line)
		if refusal := m.Refusal(codeRequest, "no"); !json.Valid(refusal) {
			t.Fatalf("%q is refused with %q", line, refusal)
		}
		if m.Err() != nil {
			if m.Method() != "" || m.Stateless() || m.Response() || !m.Request() {
				t.Fatalf("%q has no reading, and is something", line)
			}
			return
		}
		if strings.Contains(string(m.m.raw), "\n") || len(m.m.raw) != len(line) {
			t.Fatalf("%q became %q", line, m.m.raw)
		}
		again := Read(m.m.raw)
		if again.Err() != nil || again.Stateless() != m.Stateless() || again.Method() != m.Method() || again.Version() != m.Version() {
			t.Fatalf("%q and %q read differently", line, m.m.raw)
		}
	})
}
