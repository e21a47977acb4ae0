package mediator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act/strictjson"
)

// A talker is a server that answers by method, each nth request with the nth answer,
// the last one again and again. An answer is a result, "!" and an error, or "" for
// none; "end" ends the server. It notes what it hears.
type talker struct {
	mu      sync.Mutex
	heard   []string // methods
	lines   []string
	answers map[string][]string
}

func (k *talker) run(p *fakeProcess) {
	count := map[string]int{}
	for line := p.hear(); line != ""; line = p.hear() {
		m, err := readServer([]byte(line), len(line))
		if err != nil {
			continue
		}
		k.mu.Lock()
		k.heard, k.lines = append(k.heard, m.method), append(k.lines, line)
		k.mu.Unlock()
		all := k.answers[m.method]
		if len(all) == 0 {
			if m.request() {
				p.say(strings.TrimSuffix(string(fault(m.id(), codeMethod, "unknown")), "\n"))
			}
			continue
		}
		answer := all[min(count[m.method], len(all)-1)]
		count[m.method]++
		switch {
		case answer == "end":
			return
		case strings.HasPrefix(answer, "!"):
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.id(), answer[1:]))
		case answer != "" && m.request():
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.id(), answer))
		}
	}
}

// last returns the last line with a method, as it was heard.
func (k *talker) last(method string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, heard := range slices.Backward(k.heard) {
		if heard == method {
			return k.lines[i]
		}
	}
	return ""
}

func (k *talker) all() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.heard, " ")
}

const (
	sessionAnswer  = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}`
	discoverAnswer = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}`
	toolsAnswer    = `{"tools":[{"name":"a"}]}`
)

// speaking starts a conversation with a server whose era is found out.
func speaking(t *testing.T, d *fakeDecider, k *talker) *conversation {
	t.Helper()
	return converse(t, d, map[string][]fakeServer{"fs": {k.run}}, func(o *Options) {
		o.Starter.(*fakeStarter).probed = true
		o.StopGrace = 20 * time.Millisecond
	})
}

// TestEras: which era a server is spoken to in, whatever it says to being asked.
func TestEras(t *testing.T) {
	for name, c := range map[string]struct {
		discover, initialize []string
		want                 string // what it hears until its tools are listed
		era                  string
	}{
		"of requests":   {[]string{discoverAnswer}, []string{"!{}"}, "server/discover tools/list", "requests"},
		"agrees":        {[]string{`!{"code":-32022,"message":"x","data":{"supported":["2026-07-28"]}}`, discoverAnswer}, []string{"!{}"}, "server/discover server/discover tools/list", "requests"},
		"disagrees":     {[]string{`!{"code":-32022,"message":"x","data":{"supported":["2099-01-01"]}}`}, []string{sessionAnswer}, "server/discover initialize notifications/initialized tools/list", "sessions"},
		"refuses":       {[]string{`!{"code":-32601,"message":"x"}`}, []string{sessionAnswer}, "server/discover initialize notifications/initialized tools/list", "sessions"},
		"other version": {[]string{`{"supportedVersions":["2099-01-01"]}`}, []string{sessionAnswer}, "server/discover initialize notifications/initialized tools/list", "sessions"},
		"nonsense":      {[]string{`{"supportedVersions":7}`}, []string{sessionAnswer}, "server/discover initialize notifications/initialized tools/list", "sessions"},
		"ends":          {[]string{"end"}, []string{sessionAnswer}, "server/discover initialize notifications/initialized tools/list", "sessions"},
		"says nothing":  {[]string{""}, []string{sessionAnswer}, "server/discover initialize notifications/initialized tools/list", "sessions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &talker{answers: map[string][]string{"server/discover": c.discover, "initialize": c.initialize, "tools/list": {toolsAnswer}, "tools/call": {`{"x":1}`, "end", `{"x":2}`}}}
			conv := speaking(t, deciding(""), k)
			conv.open()
			conv.ask(callLine("1", "a", "{}"), `{"x":1}`)
			if got := strings.ReplaceAll(k.all(), " notifications/cancelled", ""); got != c.want+" tools/call" {
				t.Errorf("heard %q, want %q", got, c.want)
			}
			// What was found out holds for its next incarnation.
			conv.ask(callLine("2", "a", "{}"), "it ended")
			conv.ask(callLine("3", "a", "{}"), `{"x":1}`)
			if n := strings.Count(k.all(), "server/discover"); (n > len(c.discover)) != (c.era == "requests") {
				t.Errorf("heard %q", k.all())
			}
		})
	}
}

// TestErasOfClients: where servers may ask something, one that has both eras is spoken
// to in the era of the first client; one that has the other only, in that.
func TestErasOfClients(t *testing.T) {
	modern := strings.Replace(callLine("1", "a", "{}"), `"arguments":{}`, `"arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, 1)
	for name, c := range map[string]struct{ initialize, first, want string }{
		"session":                 {sessionAnswer, "", "initialize notifications/initialized tools/list tools/call"},
		"request":                 {sessionAnswer, modern, "server/discover tools/list tools/call"},
		"session, without server": {`!{"code":-32601}`, "", "initialize server/discover tools/list tools/call"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &talker{answers: map[string][]string{"server/discover": {discoverAnswer}, "initialize": {c.initialize}, "tools/list": {toolsAnswer}, "tools/call": {`{"x":1}`}}}
			conv := speaking(t, deciding("tools/list fs.asks/list allow"), k)
			if c.first == "" {
				conv.open()
				c.first = callLine("1", "a", "{}")
			}
			conv.ask(c.first, `"x":1`)
			if got := k.all(); got != c.want {
				t.Errorf("heard %q, want %q", got, c.want)
			}
		})
	}
}

// TestRequestsBehind: what a request says of its client in the era of requests, and
// what of that reaches servers of the other era.
func TestRequestsBehind(t *testing.T) {
	meta := `"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"extensions":{"x":{}}}}`
	modern := strings.Replace(callLine("1", "a", "{}"), `"arguments":{}`, `"arguments":{},`+meta, 1)
	for name, c := range map[string]struct{ discover, line, want string }{
		"sessions to requests": {discoverAnswer, callLine("1", "a", "{}"), `"params":{"name":"a","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"ringfence","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`},
		"requests to requests": {discoverAnswer, modern, `"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"ringfence","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{"x":{}}}}`},
		"requests to sessions": {`!{"code":-32601}`, modern, `"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`},
	} {
		t.Run(name, func(t *testing.T) {
			k := &talker{answers: map[string][]string{"server/discover": {c.discover}, "initialize": {sessionAnswer}, "tools/list": {toolsAnswer}, "tools/call": {`{"x":1}`}}}
			conv := speaking(t, deciding(""), k)
			conv.open()
			conv.ask(c.line, `"x":1`)
			if got := k.last("tools/call"); !strings.Contains(got, c.want) {
				t.Errorf("heard %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestFresh: a list of tools that its server calls stale is read again when a call comes,
// unless the server tells of changes.
func TestFresh(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		alone *alone
		tells bool
		body  string
		after time.Duration
		want  bool
	}{
		"at once":      {&alone{}, false, `{"ttlMs":0}`, time.Nanosecond, true},
		"later":        {&alone{}, false, `{"ttlMs":5000}`, 5 * time.Second, false},
		"then":         {&alone{}, false, `{"ttlMs":5000}`, 6 * time.Second, true},
		"never":        {&alone{}, false, `{"ttlMs":4294967295}`, 2 * time.Hour, true},
		"nothing said": {&alone{}, false, `{}`, 2 * time.Hour, false},
		"nonsense":     {&alone{}, false, `{"ttlMs":-1}`, 2 * time.Hour, false},
		"it tells":     {&alone{}, true, `{"ttlMs":0}`, time.Hour, false},
		"session":      {nil, false, `{"ttlMs":0}`, time.Hour, false},
	} {
		l := &link{alone: c.alone, tells: c.tells}
		l.date([]byte(c.body), now)
		if got := l.outdated(now.Add(c.after)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	k := &talker{answers: map[string][]string{
		"server/discover": {discoverAnswer}, "tools/call": {`{"x":1}`},
		"tools/list": {`{"tools":[{"name":"a"}],"ttlMs":0}`, `{"tools":[{"name":"a"},{"name":"b"}],"ttlMs":3600000}`},
	}}
	conv := speaking(t, deciding(""), k)
	conv.open()
	for id, got := 1, ""; !strings.Contains(got, `"name":"b"`); {
		if !strings.Contains(got, "list_changed") {
			conv.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, id))
			id++
		}
		got = conv.receive()
	}
	// A request that comes while the list is being read again may have it read once more.
	if n := strings.Count(k.all(), "tools/list"); n < 2 || n > 3 {
		t.Errorf("the list was read %d times", n)
	}
}

// TestInputRequired: what a server of the era of requests wants is asked of a client
// with a session, once for each thing, and the call is sent again with the answers.
func TestInputRequired(t *testing.T) {
	wants := `{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"s\u0041"}`
	k := &talker{answers: map[string][]string{
		"server/discover": {discoverAnswer}, "tools/list": {toolsAnswer},
		"tools/call": {wants, `{"resultType":"complete","done":1}`, wants, `{"resultType":"input_required","inputRequests":{"who":{"method":"x/y"}}}`},
	}}
	d := deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create allow")
	conv := speaking(t, d, k)
	conv.send(`{"jsonrpc":"2.0","id":"open","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{}}}}`)
	conv.receive()
	conv.ask(callLine("1", "a", `{"p":1}`), `"id":"ringfence-1","method":"elicitation/create","params":{"message":"m"}`)
	conv.ask(`{"jsonrpc":"2.0","id":"ringfence-1","result":{"action":"accept","content":{}}}`, `"id":1,"result":{"resultType":"complete","done":1}`)
	again := k.last("tools/call")
	for _, want := range []string{`"arguments":{"p":1}`, `"inputResponses":{"who":{"action":"accept","content":{}}},"requestState":"s\u0041"`, `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`} {
		if !strings.Contains(again, want) {
			t.Errorf("sent again is %s\nwithout %s", again, want)
		}
	}
	conv.ask(callLine("2", "a", `{"p":1}`), `"id":"ringfence-2"`)
	conv.ask(`{"jsonrpc":"2.0","id":"ringfence-2","error":{"code":-1,"message":"SECRET"}}`, `"id":2,"error":{"code":-32603,"message":"the server wants input: the client answered with an error"}`)
	conv.ask(callLine("3", "a", `{"p":1}`), `"id":3,"error":{"code":-32603`, `of an unknown kind: \"\\\"x/y\\\"\"`)
	if n := len(d.logged("decide tools/call fs.a ")); n != 3 {
		t.Errorf("the call was decided %d times", n)
	}
}

// A connected is an asker of one of several connections.
type connected string

func (c connected) connection() any { return c }
func (connected) offers() []byte    { return []byte(`{"roots":{}}`) }
func (connected) passes() bool      { return false }
func (c connected) asked(_ context.Context, method string, _ []byte) ([]byte, error) {
	if c == "refuses" {
		return nil, errors.New("no")
	}
	return []byte(`{"of":"` + string(c) + `"}`), nil
}

// TestMC14Tie: what a server asks belongs to the connection whose request it works on;
// where that is not one, it is refused.
func TestMC14Tie(t *testing.T) {
	for name, c := range map[string]struct {
		pending map[int64]asker
		about   func([]byte) int64
		want    string
	}{
		"no request":            {nil, nil, "no request of a client"},
		"our own":               {map[int64]asker{1: nil}, nil, "no request of a client"},
		"one":                   {map[int64]asker{1: nil, 2: connected("A")}, nil, `{"of":"A"}`},
		"two of one":            {map[int64]asker{1: connected("A"), 2: connected("A")}, nil, `{"of":"A"}`},
		"of two":                {map[int64]asker{1: connected("A"), 2: connected("B")}, nil, "several clients"},
		"its stream":            {map[int64]asker{1: connected("A"), 2: connected("B")}, func([]byte) int64 { return 2 }, `{"of":"B"}`},
		"stream of none":        {map[int64]asker{1: nil, 2: connected("B")}, func([]byte) int64 { return 1 }, "no request of a client"},
		"stream that is over":   {map[int64]asker{2: connected("B")}, func([]byte) int64 { return 1 }, "no request of a client"},
		"outside of streams":    {map[int64]asker{2: connected("B")}, func([]byte) int64 { return 0 }, `{"of":"B"}`},
		"the client refuses it": {map[int64]asker{2: connected("refuses")}, nil, "is refused: no"},
	} {
		t.Run(name, func(t *testing.T) {
			var out lockedBuffer
			box := newOutbox(&out, 8)
			l := &link{out: box, proc: &Process{About: c.about}, pending: map[int64]*flight{}, asking: map[string]*asking{}, declares: []byte(`{"roots":{}}`)}
			for id, a := range c.pending {
				l.pending[id] = &flight{ctx: t.Context(), errand: errand{asker: a}}
			}
			m, err := readServer([]byte(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`), 1<<10)
			if err != nil {
				t.Fatal(err)
			}
			l.asked(m)
			for out.String() == "" {
				select {
				case <-box.done:
				case <-time.After(time.Millisecond):
				}
			}
			box.close()
			<-box.done
			if got := out.String(); !strings.Contains(got, c.want) || !strings.Contains(got, `"id":"q"`) {
				t.Errorf("answered with %s, want %s", got, c.want)
			}
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestQuota: calls and bytes of a minute are bounded, and forgotten after it.
func TestQuota(t *testing.T) {
	m := &meter{quota: Quota{Calls: 3, Bytes: 100}}
	now := time.Unix(1_000_000, 0)
	for i := range 3 {
		if err := m.call(now.Add(time.Duration(i) * 10 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.call(now.Add(59 * time.Second)); err == nil || !strings.Contains(err.Error(), "3 calls") {
		t.Errorf("a fourth call: %v", err)
	}
	if err := m.call(now.Add(60 * time.Second)); err != nil { // the first is a minute ago
		t.Error(err)
	}
	m.came(now.Add(200*time.Second), 100)
	if err := m.call(now.Add(201 * time.Second)); err == nil || !strings.Contains(err.Error(), "100 bytes") {
		t.Errorf("after 100 bytes: %v", err)
	}
	if err := m.call(now.Add(24 * time.Hour)); err != nil {
		t.Error(err)
	}
	if err := m.call(now); err == nil { // a clock that goes back forgets nothing
		err = errors.Join(m.call(now), m.call(now))
		if err == nil || !strings.Contains(err.Error(), "3 calls") {
			t.Errorf("in the past: %v", err)
		}
	}
}

// A call beyond the quota is answered, and not sent.
func TestQuotaOfCalls(t *testing.T) {
	k := &talker{answers: map[string][]string{"server/discover": {`!{}`}, "initialize": {sessionAnswer}, "tools/list": {toolsAnswer}, "tools/call": {`{"x":1}`}}}
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {k.run}}, func(o *Options) { o.Servers[0].Ringfence.Quota.Calls = 2 })
	conv.open()
	for i := range 2 {
		conv.ask(callLine(fmt.Sprint(i), "a", "{}"), `{"x":1}`)
	}
	conv.ask(callLine("3", "a", "{}"), `"isError":true`, "quota of 2 calls in a minute is used up")
	if n := strings.Count(k.all(), "tools/call"); n != 2 {
		t.Errorf("%d calls were sent", n)
	}
}

// Property: members that are set are there, those that are taken out are not, others
// stay as they were, and the object is one.
func FuzzSetMembers(f *testing.F) {
	f.Add(`{"a":1, "b" : {"c":2} ,"d":null}`, "b", "e")
	f.Add(`{ }`, "a", "b")
	f.Add(`{} `, "0", "1")
	f.Add(`{"a":1}`, "a", "a")
	f.Fuzz(func(t *testing.T, raw, out, in string) {
		if strictjson.Check([]byte(raw)) != nil || raw[0] != '{' || out == in {
			return
		}
		if _, err := strictjson.Quote(in); err != nil { // no name that we set
			return
		}
		got, err := setMembers([]byte(raw), []pair{{out, nil}, {in, []byte(`7`)}})
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if err := strictjson.Check(got); err != nil {
			t.Fatalf("%q becomes %q: %v", raw, got, err)
		}
		before, _ := strictjson.Members([]byte(raw), strictjson.Limits{})
		after, _ := strictjson.Members(got, strictjson.Limits{})
		find := func(all []strictjson.Member, src []byte, name string) string {
			i := slices.IndexFunc(all, func(m strictjson.Member) bool { return m.Name == name })
			if i < 0 {
				return ""
			}
			return string(src[all[i].Start:all[i].End])
		}
		for _, m := range before {
			if m.Name != out && m.Name != in && find(after, got, m.Name) != raw[m.Start:m.End] {
				t.Fatalf("%q becomes %q", raw, got)
			}
		}
		if find(after, got, out) != "" || find(after, got, in) != "7" {
			t.Fatalf("%q without %q and with %q becomes %q", raw, out, in, got)
		}
	})
}
