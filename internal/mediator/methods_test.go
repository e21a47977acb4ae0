package mediator

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act/strictjson"
)

// A heard is a server that offers everything, answers everything, and notes what it was
// asked.
type heard struct {
	mu      sync.Mutex
	methods []string
}

const everything = `{"tools":{},"prompts":{},"resources":{"subscribe":true},"completions":{},"logging":{},"tasks":{"requests":{"tools":{"call":{}}}}}`

func (h *heard) serve(p *fakeProcess) {
	for line := p.hear(); line != ""; line = p.hear() {
		m, err := readClient([]byte(line))
		if err != nil || !m.request() {
			continue
		}
		h.mu.Lock()
		h.methods = append(h.methods, m.method)
		h.mu.Unlock()
		result := `{}`
		switch m.method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":` + everything + `}`
		case "tools/list":
			result = `{"tools":[{"name":"a"}]}`
		case "prompts/list":
			result = `{"prompts":[{"name":"p"}]}`
		case "tools/call":
			result = `{"task":{"taskId":"1","status":"working"}}`
		case "tasks/get", "tasks/cancel":
			result = `{"taskId":"1","status":"working"}`
		}
		p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.id(), result))
	}
}

func (h *heard) of(method string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, m := range h.methods {
		if m == method {
			n++
		}
	}
	return n
}

// requestFor is a request that its method can answer.
var requestFor = map[string]string{
	"tools/call":            `{"name":"a","task":{}}`,
	"prompts/get":           `{"name":"p"}`,
	"resources/read":        `{"uri":"x:1"}`,
	"resources/subscribe":   `{"uri":"x:1"}`,
	"resources/unsubscribe": `{"uri":"x:1"}`,
	"completion/complete":   `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}`,
	"logging/setLevel":      `{"level":"error"}`,
	"tasks/get":             `{"taskId":"$TASK"}`,
	"tasks/result":          `{"taskId":"$TASK"}`,
	"tasks/cancel":          `{"taskId":"$TASK"}`,
	"tasks/update":          `{"taskId":"$TASK","inputResponses":{}}`,
}

// TestR8Table: every method of the table is decided exactly once before a server hears of
// it, and a server hears nothing of what is denied.
func TestR8Table(t *testing.T) {
	for _, row := range methods {
		if row.eras&inSessions == 0 || row.place == placeEra || row.place == placeHere {
			continue
		}
		name, verb := "fs."+row.name, "tools/call"
		switch {
		case row.name == "tools/call":
			name = "fs.a"
		case row.name == "tools/list":
			name, verb = "fs", "tools/list"
		case row.place == placeAll:
			verb = "tools/list"
		}
		for _, denied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", row.name, denied), func(t *testing.T) {
				table := ""
				if denied {
					table = verb + " " + name + " deny policy no"
				}
				h, d := &heard{}, deciding(table)
				c := converse(t, d, map[string][]fakeServer{"fs": {h.serve}}, nil)
				c.open()
				params := requestFor[row.name]
				if strings.Contains(params, "$TASK") {
					made := c.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","task":{}}}`, `"taskId"`)
					params = strings.ReplaceAll(params, "$TASK", taskID.FindStringSubmatch(made)[1])
				}
				if params == "" {
					params = `{}`
				}
				c.ask(`{"jsonrpc":"2.0","id":2,"method":"`+row.name+`","params":`+params+`}`, `"id":2`)
				if n := len(d.logged("decide " + verb + " " + name + " ")); n != 1 {
					t.Errorf("decided %d times", n)
				}
				want := 1
				if denied && verb == "tools/call" {
					want = 0
				}
				if n := h.of(row.name); n != want {
					t.Errorf("the server heard it %d times", n)
				}
			})
		}
	}
}

// TestR8NoOther: no method that is not in the table reaches a server, however it is spelt.
func TestR8NoOther(t *testing.T) {
	h := &heard{}
	c := converse(t, deciding(""), map[string][]fakeServer{"fs": {h.serve}}, nil)
	c.open()
	c.ask(`{"jsonrpc":"2.0","id":0,"method":"tools/list"}`, `"a"`)
	var known []string
	for _, m := range methods {
		known = append(known, m.name)
	}
	spelt := rapid.OneOf(
		rapid.StringMatching(`[a-z]{1,8}/[a-zA-Z/]{1,12}`),
		rapid.Map(rapid.SampledFrom(known), strings.ToUpper),
		rapid.Map(rapid.SampledFrom(known), func(s string) string { return s + "/" }),
		rapid.Map(rapid.SampledFrom(known), func(s string) string { return " " + s }),
		rapid.SampledFrom([]string{askSampling, askElicitation, askRoots, tellMessage, "tasks/update", "server/discover", "subscriptions/listen"}),
	)
	rapid.Check(t, func(t *rapid.T) {
		name := spelt.Draw(t, "method")
		if row, ok := methodOf(name, inSessions); ok && row.name == name {
			return
		}
		before := len(h.methods)
		quoted, err := strictjson.Quote(name)
		if err != nil {
			t.Fatal(err)
		}
		got := c.ask(`{"jsonrpc":"2.0","id":1,"method":`+string(quoted)+`,"params":{"uri":"x:1","name":"a"}}`, `"id":1`)
		if !strings.Contains(got, `"code":-32601`) && name != "server/discover" && name != "subscriptions/listen" && !strings.Contains(got, `-32602`) {
			t.Errorf("%q: %s", name, got)
		}
		if len(h.methods) != before {
			t.Errorf("%q reached the server as %q", name, h.methods[before:])
		}
	})
}

// TestFits: a URI is of a template only where all its fixed parts are there.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		uri, template string
		want          bool
	}{
		{"a:1", "a:{x}", true},
		{"a:1/end", "a:{x}/end", true},
		{"a:1/mid/2", "a:{x}/mid/{y}", true},
		{"a:", "a:{x}", true},
		{"b:a:1", "a:{x}", false},
		{"a:1/ends", "a:{x}/end", false},
		{"a:1", "a:1", true},
		{"a:12", "a:1", false},
		{"a:1", "a:{x", false},
	} {
		if got := fits(c.uri, c.template); got != c.want {
			t.Errorf("%s of %s: %v", c.uri, c.template, got)
		}
	}
}

// TestPages: a list comes in pages that together are the list, each element once.
func TestPages(t *testing.T) {
	var all []tool
	for i := range 2*pageEntries + 7 {
		all = append(all, tool{def: fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	all[3].def = append([]byte(`{"n":"`+strings.Repeat("x", pageBytes)), `"}`...)
	var got []string
	cursor, pages := "", 0
	for ; ; pages++ {
		body, err := page("tools", cursor, all)
		if err != nil {
			t.Fatal(err)
		}
		values, err := strictjson.ValuesLimits(body, strictjson.Limits{}, "/tools/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			got = append(got, string(v.Raw))
		}
		next, ok, err := strictjson.Find(body, "/nextCursor")
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if cursor, err = next.Text(); err != nil {
			t.Fatal(err)
		}
	}
	same := slices.EqualFunc(got, all, func(s string, e tool) bool { return s == string(e.def) })
	if !same || pages < 3 {
		t.Errorf("%d elements on %d pages", len(got), pages+1)
	}
	for _, bad := range []string{"x", "-1", cursor[:len(cursor)-1] + "x", strings.Repeat("0", 16) + "-1"} {
		if _, err := page("tools", bad, all); err == nil {
			t.Errorf("the cursor %q is taken", bad)
		}
	}
	if _, err := page("tools", cursor, all[1:]); err == nil {
		t.Error("the cursor of another list is taken")
	}
}

// FuzzParams: what is spliced into a request for a server is what was decided, and nothing
// else is there (D4).
func FuzzParams(f *testing.F) {
	f.Add(`{"uri":"x:1","_meta":{"progressToken":"t","k":[1]},"z":{"uri":2}}`, `{"uri":"y:2"}`)
	f.Add(`{"_meta":{},"uri":"x"}`, `{"uri":"x","level":"debug"}`)
	f.Add(`{}`, `{"uri":"x"}`)
	f.Fuzz(func(t *testing.T, params, args string) {
		m, err := readClient([]byte(`{"jsonrpc":"2.0","id":"a","method":"resources/read","params":` + params + `}`))
		if err != nil || !m.request() {
			return
		}
		p, err := readParams(m, method{known: []string{"uri", "level"}})
		if err != nil {
			return
		}
		if err := strictjson.Check(p.decided(m)); err != nil {
			t.Fatalf("what is decided is no JSON: %s: %v", p.decided(m), err)
		}
		members, err := strictjson.Members([]byte(args), strictjson.Limits{})
		if err != nil || slices.ContainsFunc(members, func(v strictjson.Member) bool { return v.Name != "uri" && v.Name != "level" }) {
			return
		}
		line, err := p.toServer(m, 7, []byte(args))
		if err != nil {
			t.Fatal(err)
		}
		out, err := readClient(line[:len(line)-1])
		if err != nil || string(out.id()) != "7" || out.method != "resources/read" {
			t.Fatalf("%s: %v", line, err)
		}
		for _, v := range members {
			got, ok, err := strictjson.Find(out.params.of(out.raw), "/"+v.Name)
			if err != nil || !ok || string(got.Raw) != string(oneLine([]byte(args[v.Start:v.End]))) {
				t.Fatalf("%s is not in %s", args, line)
			}
		}
		all, _ := strictjson.Members(out.params.of(out.raw), strictjson.Limits{})
		for _, v := range all {
			if v.Name != "uri" && v.Name != "level" && v.Name != "_meta" {
				t.Fatalf("%q reaches the server: %s", v.Name, line)
			}
		}
	})
}
