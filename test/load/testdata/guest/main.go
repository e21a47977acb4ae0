// Command guest is an MCP server with one tool, echo, that behaves as it is told:
//
//	steady  answers soon, now and then with much
//	modern  the same in the era of requests
//	dies    ends in the middle of calls, and of lines
//	floods  says and asks much that nobody wants to hear, and answers twice
//	hangs   does not answer every call, and never ends by itself
//
// Its definition of echo is that of server-everything, which is its second argument. With a
// third, an address, it serves HTTP there instead of standard input and output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string `json:"name"`
		Arguments struct {
			Message string `json:"message"`
		} `json:"arguments"`
		Meta struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"params"`
}

type guest struct {
	mode, tool string
	mu         sync.Mutex
	out        io.Writer
}

func main() {
	g := &guest{mode: os.Args[1], tool: os.Args[2], out: os.Stdout}
	if len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[3], g))
		os.Exit(1)
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var r request
		if json.Unmarshal(line, &r) != nil || r.Method == "" || r.ID == nil {
			continue
		}
		if r.Method == "tools/call" {
			go g.call(r)
			continue
		}
		g.say(g.answer(r))
	}
	if g.mode == "hangs" {
		<-context.Background().Done()
	}
}

func (g *guest) say(lines ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, _ = io.WriteString(g.out, strings.Join(lines, "\n")+"\n")
}

// answer is what the guest says to anything but a call, and to a call at once.
func (g *guest) answer(r request) string {
	modern := g.mode == "modern"
	var result string
	switch {
	case r.Method == "server/discover" && modern:
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}`
	case r.Method == "initialize" && !modern:
		result = `{"protocolVersion":"` + r.Params.ProtocolVersion + `","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"guest","version":"1"}}`
	case r.Method == "tools/list":
		result = `{"tools":[` + g.tool + `]}`
	case r.Method == "ping", r.Method == "logging/setLevel":
		result = `{}`
	case r.Method == "tools/call":
		text := "Echo: " + r.Params.Arguments.Message
		if rand.IntN(20) == 0 {
			text += strings.Repeat(" and more", rand.IntN(20_000))
		}
		result = fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text)
	default:
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, r.ID)
	}
	if modern && r.Method != "server/discover" {
		result = strings.Replace(`{"resultType":"complete",`+result[1:], ",}", "}", 1)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, result)
}

func (g *guest) call(r request) {
	line := g.answer(r)
	time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	switch g.mode {
	case "dies":
		switch rand.IntN(60) {
		case 0:
			os.Exit(3)
		case 1:
			_, _ = io.WriteString(g.out, line[:len(line)/2])
			os.Exit(0)
		}
	case "hangs":
		if rand.IntN(20) == 0 {
			return
		}
	case "floods":
		g.flood(r)
		g.say(line, strings.Replace(line, "Echo: ", "Forged: ", 1))
		return
	}
	g.say(line)
}

// flood says about one call what a server may say, and what it may not.
func (g *guest) flood(r request) {
	about := r.Params.Arguments.Message
	if t := r.Params.Meta.ProgressToken; t != nil {
		for n := range 5 {
			g.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%q}}`, t, n+1, about))
		}
	}
	for n := range 5 {
		g.say(
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":%q}}`, about),
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1,"message":"forged"}}`, rand.IntN(400)),
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://%s"}}`, about),
			fmt.Sprintf(`{"jsonrpc":"2.0","id":"x%d","method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":%q}}],"maxTokens":1}}`, n, about),
			fmt.Sprintf(`{"jsonrpc":"2.0","id":"y%d","method":"ping"}`, n),
		)
	}
	_, _ = fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 100), about)
	if rand.IntN(50) == 0 {
		g.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
}

// ServeHTTP serves streamable HTTP, without a stream of its own.
func (g *guest) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	var r request
	if hr.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if err := json.NewDecoder(hr.Body).Decode(&r); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, g.answer(r))
}
