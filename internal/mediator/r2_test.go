package mediator

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ringfence/internal/act/strictjson"
)

// eraAsks are what a server may ask while it works on a call, and what its client answers.
var eraAsks = []struct{ method, params, answer string }{
	{"elicitation/create", `{"message":"m","requestedSchema":{"type":"object"}}`, `{"action":"accept","content":{"age":"of R2"}}`},
	{"sampling/createMessage", `{"messages":[],"maxTokens":1}`, `{"role":"assistant","model":"m","content":{"type":"text","text":"of R2"}}`},
	{"roots/list", `{}`, `{"roots":[{"uri":"file:///r","name":"of R2"}]}`},
}

// eraServer is a server of one era. Its tool a answers, progress says how far it is first,
// and any other asks its client as the position in eraAsks says, and answers with the answer.
func eraServer(modern bool) fakeServer {
	return func(p *fakeProcess) {
		var waits json.RawMessage
		for line := p.hear(); line != ""; line = p.hear() {
			var m struct {
				ID     json.RawMessage
				Method string
				Result json.RawMessage
				Params struct {
					Name           string
					InputResponses map[string]json.RawMessage
					Meta           struct{ ProgressToken json.RawMessage } `json:"_meta"`
				}
			}
			if json.Unmarshal([]byte(line), &m) != nil {
				return
			}
			answer := func(body string) { p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, body)) }
			done := func(said string) string {
				kind := ""
				if modern {
					kind = `"resultType":"complete",`
				}
				text, _ := json.Marshal("said " + said)
				return `"result":{` + kind + `"content":[{"type":"text","text":` + string(text) + `}]}`
			}
			at := strings.Index("012", m.Params.Name)
			switch {
			case m.Method == "server/discover" && modern:
				answer(`"result":` + discoverAnswer)
			case m.Method == "initialize" && !modern:
				answer(`"result":` + sessionAnswer)
			case m.Method == "tools/list":
				answer(`"result":{"tools":[{"name":"a"},{"name":"progress"},{"name":"0"},{"name":"1"},{"name":"2"}]}`)
			case m.Method == "" && string(m.ID) == `"q"`:
				m.ID = waits
				answer(done(string(m.Result)))
			case m.Method != "tools/call":
				if m.ID != nil {
					answer(`"error":{"code":-32601,"message":"no"}`)
				}
			case m.Params.Name == "a":
				answer(done("nothing"))
			case m.Params.Name == "progress":
				p.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, m.Params.Meta.ProgressToken))
				answer(done("nothing"))
			case !modern:
				waits = m.ID
				p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q","method":%q,"params":%s}`, eraAsks[at].method, eraAsks[at].params))
			case m.Params.InputResponses != nil:
				answer(done(string(m.Params.InputResponses["k"])))
			default:
				answer(fmt.Sprintf(`"result":{"resultType":"input_required","inputRequests":{"k":{"method":%q,"params":%s}},"requestState":"s"}`, eraAsks[at].method, eraAsks[at].params))
			}
		}
	}
}

// TestR2 : clients and servers of both eras, each with each: a call, its progress, and what the
// server asks for come through, in the form of whoever reads it.
func TestR2(t *testing.T) {
	for _, modernClient := range []bool{false, true} {
		for _, modernServer := range []bool{false, true} {
			for _, tool := range []string{"a", "progress", "0", "1", "2"} {
				t.Run(fmt.Sprintf("client %v/server %v/%s", modernClient, modernServer, tool), func(t *testing.T) {
					d := deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create allow\ntools/call fs.sampling/createMessage allow\ntools/call fs.roots/list allow")
					c := converse(t, d, map[string][]fakeServer{"fs": {eraServer(modernServer)}}, func(o *Options) {
						o.Starter.(*fakeStarter).probed = true
						o.MayAsk = []string{"elicitation/create", "sampling/createMessage", "roots/list"}
					})
					got := c.r2(tool, modernClient)
					if _, ok, err := strictjson.Find([]byte(got), "/result/content"); err != nil || !ok || !strings.Contains(got, `"text":"said `) {
						t.Errorf("the answer is %s", got)
					}
					if asks := strings.Contains("012", tool); asks && !strings.Contains(got, "of R2") {
						t.Errorf("the answer of the client did not reach the server: %s", got)
					}
					if strings.Contains(got, `"resultType":"complete"`) != (modernClient || modernServer) {
						t.Errorf("the result is of another era: %s", got)
					}
				})
			}
		}
	}
}

// r2 calls a tool as a client of an era, which answers what it is asked, and returns the line
// of the answer.
func (c *conversation) r2(tool string, modern bool) string {
	c.t.Helper()
	const offers = `{"elicitation":{"form":{}},"sampling":{},"roots":{}}`
	meta := `"_meta":{"progressToken":"token"`
	if modern {
		meta += `,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + offers
	} else {
		c.send(`{"jsonrpc":"2.0","id":"open","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":` + offers + `}}`)
		c.receive()
	}
	line := func(id int, more string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{},%s%s}}}`, id, tool, more, meta)
	}
	got := c.ask(line(1, ""))
	if tool == "progress" {
		if !strings.Contains(got, `"progressToken":"token","progress":1`) {
			c.t.Errorf("instead of progress there is %s", got)
		}
		return c.receive()
	}
	at := strings.Index("012", tool)
	if at < 0 {
		return got
	}
	asked := eraAsks[at]
	var m struct {
		ID     json.RawMessage
		Method string
		Result struct {
			InputRequests map[string]struct{ Method string }
			RequestState  json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(got), &m); err != nil {
		c.t.Fatal(err)
	}
	if !modern {
		if m.Method != asked.method {
			c.t.Fatalf("asked is %s", got)
		}
		return c.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, asked.answer))
	}
	for key, q := range m.Result.InputRequests {
		if q.Method == asked.method {
			return c.ask(line(2, fmt.Sprintf(`"inputResponses":{%q:%s},"requestState":%s,`, key, asked.answer, m.Result.RequestState)))
		}
	}
	c.t.Fatalf("asked is %s", got)
	return ""
}
