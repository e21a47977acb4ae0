//go:build unix

package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// A talk is a client that writes lines and compares bytes. It answers what it is asked.
type talk struct {
	t       *testing.T
	in      io.WriteCloser
	lines   chan string
	next    int
	answers map[string]string // results by method
	asked   []string          // methods, with their params
	notes   []string          // notifications
}

func talkTo(t *testing.T, c *exec.Cmd, capabilities string, answers map[string]string) *talk {
	t.Helper()
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = logger{t}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	k := &talk{t: t, in: in, lines: make(chan string, 1000), answers: answers}
	go func() {
		defer close(k.lines)
		for s := bufio.NewReaderSize(out, 1<<20); ; {
			line, err := s.ReadString('\n')
			if err != nil {
				return
			}
			k.lines <- line
		}
	}()
	t.Cleanup(func() {
		in.Close()
		ended := time.AfterFunc(5*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait() // some servers do not end by themselves
		ended.Stop()
	})
	k.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"clientInfo":{"name":"talk","version":"1"}}`)
	k.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return k
}

func (k *talk) send(line string) {
	k.t.Helper()
	if _, err := io.WriteString(k.in, line+"\n"); err != nil {
		k.t.Fatal(err)
	}
}

// ask returns the bytes of the result, or of the error.
func (k *talk) ask(method, params string) string {
	k.t.Helper()
	k.next++
	id := json.Number(strings.Repeat("1", k.next%7+1) + "0" + string(rune('0'+k.next/7%10)))
	k.send(`{"jsonrpc":"2.0","id":` + id.String() + `,"method":"` + method + `","params":` + params + `}`)
	deadline := time.After(time.Minute)
	for {
		var line string
		select {
		case line = <-k.lines:
		case <-deadline:
		}
		if line == "" {
			k.t.Fatalf("no answer to %s", method)
		}
		var m struct {
			ID            json.RawMessage
			Method        string
			Params        json.RawMessage
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			k.t.Fatalf("%v: %s", err, line)
		}
		switch {
		case m.Method != "" && m.ID != nil:
			k.asked = append(k.asked, m.Method+" "+string(m.Params))
			if answer, ok := k.answers[m.Method]; ok {
				k.send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + answer + `}`)
			} else {
				k.send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"no"}}`)
			}
		case m.Method != "":
			k.notes = append(k.notes, m.Method)
		case string(m.ID) == id.String() && m.Result != nil:
			return string(m.Result)
		case string(m.ID) == id.String():
			return string(m.Error)
		}
	}
}

// offers are requests to servers of npm; the answers must be the same bytes with us and
// without.
var offers = map[string][]string{
	"everything": {
		`tools/list {}`, `prompts/list {}`, `resources/list {}`, `resources/templates/list {}`,
		`resources/read {"uri":"demo://resource/static/document/features.md"}`,
		`resources/read {"uri":"demo://resource/none"}`,
		`resources/subscribe {"uri":"demo://resource/static/document/features.md"}`,
		`resources/unsubscribe {"uri":"demo://resource/static/document/features.md"}`,
		`prompts/get {"name":"simple-prompt"}`,
		`prompts/get {"name":"args-prompt","arguments":{"city":"Ghent","state":"x"}}`,
		`prompts/get {"name":"args-prompt","arguments":{}}`,
		`prompts/get {"name":"resource-prompt","arguments":{"resourceType":"Text","resourceId":"1"},"_meta":{"k":1}}`,
		`completion/complete {"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":"E"}}`,
		`completion/complete {"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},"argument":{"name":"resourceId","value":"1"}}`,
		`logging/setLevel {"level":"debug"}`,
		`tools/call {"name":"trigger-sampling-request","arguments":{"prompt":"hello","maxTokens":10}}`,
		`tools/call {"name":"trigger-elicitation-request","arguments":{}}`,
		`tools/call {"name":"get-roots-list","arguments":{}}`,
		`tools/call {"name":"get-structured-content","arguments":{"location":"Chicago"}}`,
		`tools/call {"name":"get-tiny-image","arguments":{}}`,
		`tools/call {"name":"get-resource-links","arguments":{"count":3}}`,
		`tools/call {"name":"get-annotated-message","arguments":{"messageType":"error"}}`,
		`tools/call {"name":"trigger-long-running-operation","arguments":{"duration":0.2,"steps":2},"_meta":{"progressToken":"p"}}`,
	},
	"memory": {
		`tools/list {}`, `prompts/list {}`, `resources/list {}`,
		`tools/call {"name":"create_entities","arguments":{"entities":[{"name":"a","entityType":"b","observations":["c"]}]}}`,
		`tools/call {"name":"read_graph","arguments":{}}`,
	},
	"filesystem": {
		`tools/list {}`, `tools/call {"name":"list_allowed_directories","arguments":{}}`,
		`tools/call {"name":"read_text_file","arguments":{"path":"$WORK/a.txt"}}`,
		`tools/call {"name":"list_directory","arguments":{"path":"$WORK"}}`,
	},
	"sequential-thinking": {
		`tools/list {}`,
		`tools/call {"name":"sequentialthinking","arguments":{"thought":"x","nextThoughtNeeded":false,"thoughtNumber":1,"totalThoughts":1}}`,
	},
}

// TestNPMOffers: all that servers of npm offer, and ask, comes through us as without us.
func TestNPMOffers(t *testing.T) {
	modules := node(t)
	const capabilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`
	answers := map[string]string{
		"sampling/createMessage": `{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m","stopReason":"endTurn"}`,
		"elicitation/create":     `{"action":"accept","content":{"name":"x","check":true}}`,
		"roots/list":             `{"roots":[{"uri":"file://$WORK","name":"work"}]}`,
	}
	for name, requests := range offers {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.file("a.txt", "hello\n")
			answers := maps.Clone(answers)
			answers["roots/list"] = strings.ReplaceAll(answers["roots/list"], "$WORK", p.work)
			argv := []string{"node", modules + "/@modelcontextprotocol/server-" + name + "/dist/index.js"}
			switch name {
			case "everything":
				argv = append(argv, "stdio")
			case "filesystem":
				argv = append(argv, p.work)
			}
			entry := map[string]any{"command": argv[0], "args": argv[1:]}
			if name == "memory" { // each has a file of its own
				entry["env"] = map[string]string{"MEMORY_FILE_PATH": p.work + "/memory.json"}
			}
			policy := p.policy(
				"may do anything in the workspace", "may use "+name+".*", "may use "+name+".sampling/createMessage",
				"may use "+name+".elicitation/create", "may use "+name+".roots/list",
			)
			ours := talkTo(t, p.command("mcp", "-w", p.work, "--servers", p.servers(map[string]any{name: entry}), "--policy", policy, "--ask", "never"), capabilities, answers)
			bare := p.plain(argv)
			bare.Env = append(bare.Env, "MEMORY_FILE_PATH="+p.work+"/plain.json")
			plain := talkTo(t, bare, capabilities, answers)
			for _, r := range requests {
				method, params, _ := strings.Cut(strings.ReplaceAll(r, "$WORK", p.work), " ")
				with, without := ours.ask(method, params), plain.ask(method, params)
				if strings.Contains(without, `"code":-32601`) && strings.Contains(with, `:[]}`) {
					continue // a list that the server does not have is empty
				}
				if with != without {
					t.Errorf("%s\nwith us    %.600s\nwithout us %.600s", r, with, without)
				}
			}
			slices.Sort(ours.asked)
			slices.Sort(plain.asked)
			if got, want := strings.Join(ours.asked, "\n"), strings.Join(plain.asked, "\n"); got != want {
				t.Errorf("asked with us\n%s\nwithout us\n%s", got, want)
			}
			p.ok("ledger", "verify")
		})
	}
}

// TestAskedAtTheDesk: what a server asks of its client is shown to a person first, where the
// policy says so; without the clause the client does not hear of it.
func TestAskedAtTheDesk(t *testing.T) {
	modules := node(t)
	for name, clause := range map[string]string{
		"asked":  "may use everything.elicitation/create with approval",
		"denied": "may use everything.sampling/createMessage with approval",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			servers := p.servers(map[string]any{"everything": map[string]any{
				"command": "node", "args": []string{modules + "/@modelcontextprotocol/server-everything/dist/index.js", "stdio"},
			}})
			policy := p.policy("may use everything.*", clause)
			answered := p.approver()
			k := talkTo(t, p.command("mcp", "-w", p.work, "--servers", servers, "--policy", policy),
				`{"elicitation":{"form":{}},"sampling":{}}`, map[string]string{"elicitation/create": `{"action":"accept","content":{"name":"Ann","check":true}}`})
			got := k.ask("tools/call", `{"name":"trigger-elicitation-request","arguments":{}}`)
			n := answered()
			if name == "asked" && (!strings.Contains(got, "Ann") || n != 1 || len(k.asked) != 1) {
				t.Errorf("%d questions at the desk, %d to the client: %s", n, len(k.asked), got)
			}
			if name == "denied" && (strings.Contains(got, "Ann") || n != 0 || len(k.asked) != 0) {
				t.Errorf("%d questions at the desk, %d to the client: %s", n, len(k.asked), got)
			}
		})
	}
}
