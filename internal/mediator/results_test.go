package mediator

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// rowsOf calls each with every row of a file of JSON lines.
func rowsOf[T any](t *testing.T, file string, each func(T)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var row T
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(n, err)
		}
		each(row)
	}
	if n == 0 {
		t.Fatal("no rows")
	}
}

// TestAnswers plays testdata/answers.jsonl: what a server answers to a call, "!" before an
// error, and what the client reads of it. Nothing reaches the client that says "theirs", and
// what it was asked was decided.
func TestAnswers(t *testing.T) {
	type row struct {
		Name, Answer, Want string
		Session            bool
		Asked              int
	}
	rowsOf(t, "testdata/answers.jsonl", func(r row) {
		t.Run(r.Name, func(t *testing.T) {
			k := &talker{answers: map[string][]string{"server/discover": {discoverAnswer}, "tools/list": {toolsAnswer}, "tools/call": {r.Answer}}}
			d := deciding("tools/list fs.asks/list allow")
			conv := speaking(t, d, k)
			call := modernLine(1, "tools/call", `"name":"a","arguments":{}`)
			if r.Session {
				conv.open()
				call = callLine("1", "a", "{}")
			}
			if got := conv.ask(call, r.Want); strings.Contains(got, "theirs") && !strings.Contains(r.Want, "theirs") {
				t.Errorf("reached the client: %s", got)
			}
			conv.close()
			if n := len(d.logged("decide tools/call fs.elicitation/create")); n != r.Asked {
				t.Errorf("%d questions were decided, want %d", n, r.Asked)
			}
		})
	})
}

// TestElicitations holds checkAsk against testdata/elicitations.jsonl.
func TestElicitations(t *testing.T) {
	type row struct {
		Name, Err string
		Params    json.RawMessage
	}
	rowsOf(t, "testdata/elicitations.jsonl", func(r row) {
		err := checkAsk(askElicitation, r.Params)
		if (err == nil) != (r.Err == "") || err != nil && !strings.Contains(err.Error(), r.Err) {
			t.Errorf("%s: %v, want %q", r.Name, err, r.Err)
		}
	})
}

// TestTasksHide: neither the result nor the error of a task carries what a call may not.
func TestTasksHide(t *testing.T) {
	for name, c := range map[string]struct{ state, want string }{
		"D1 complete":          {`"status":"working","inputRequests":{"q":{}}`, "cannot be read"},
		"D1 result that asks":  {`"status":"completed","result":{"resultType":"input\u005frequired","inputRequests":{}}`, "which it may not be here"},
		"D1 Status":            {`"status":"working","Status":"input_required"`, "may take for a known one"},
		"D2 error of a task":   {`"status":"failed","error":{"code":-32042.0,"message":"m","data":{"elicitations":[{"mode":"url","url":"http://a.org/"}]}}`, "which is denied"},
		"D2 ordinary error":    {`"status":"failed","error":{"code":-1, "message":"m"}`, `"error":{"code":-1, "message":"m"}`},
		"D1 ordinary progress": {`"status":"working","statusMessage":"m"`, `"status":"working"`},
	} {
		t.Run(name, func(t *testing.T) {
			conv := speaking(t, deciding("tools/list fs.asks/list allow"), &talker{answers: map[string][]string{
				"server/discover": {discoverAnswer}, "tools/list": {toolsAnswer},
				"tools/call": {`{"resultType":"task","taskId":"t1","status":"working"}`}, "tasks/get": {`{"resultType":"complete","taskId":"t1",` + c.state + `}`},
			}})
			made := conv.ask(modernLine(1, "tools/call", `"name":"a","arguments":{}`), `"resultType":"task"`)
			conv.ask(modernLine(2, "tasks/get", `"taskId":"`+newID.FindStringSubmatch(made)[1]+`"`), c.want)
		})
	}
}

// TestMeta: names of the protocol in _meta that another reader takes for ours are refused.
func TestMeta(t *testing.T) {
	k := &talker{answers: map[string][]string{"server/discover": {discoverAnswer}, "tools/list": {toolsAnswer}, "tools/call": {`{"content":[]}`}}}
	conv := speaking(t, deciding(""), k)
	conv.open()
	for name, meta := range map[string]string{
		"D16 another case":         `"_meta":{"IO.modelcontextprotocol/clientCapabilities":{"sampling":{}}}`,
		"D16 case behind it":       `"_meta":{"io.modelcontextprotocol/ClientCapabilities":{"sampling":{}}}`,
		"D16 Kelvin and long s":    `"_meta":{"io.modelcontextprotocol/clientCapabilitieſ":{}}`,
		"D16 escaped":              `"_meta":{"io.modelcontextprotocol\u002fprotocolVersion":"2026-07-28","io.modelcontextprotocol\u002fclientCapabilities":{}}`,
		"D16 escaped, of others":   `"_meta":{"io.modelcontextprotoco\u006c/more":1}`,
		"D16 _Meta":                `"_Meta":{"io.modelcontextprotocol/clientCapabilities":{}}`,
		"D16 _meta with an escape": `"\u005fmeta":{"io.modelcontextprotocol/clientCapabilities":{}}`,
	} {
		conv.ask(`{"jsonrpc":"2.0","id":"`+name+`","method":"tools/call","params":{"name":"a",`+meta+`}}`, `"`+name+`","error":{"code":-32602`, "may take for a known one")
		conv.ask(`{"jsonrpc":"2.0","id":"`+name+`","method":"tools/list","params":{`+meta+`}}`, `"`+name+`","error":{"code":-32602`, "may take for a known one")
	}
	conv.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"org.example\u002fx":1}}}`, `"content":[]`)
	if got := k.last("tools/call"); !strings.Contains(got, `"_meta":{"io.modelcontextprotocol/protocolVersion"`) {
		t.Errorf("the server heard %s", got)
	}
}
