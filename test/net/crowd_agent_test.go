//go:build linux

package net_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// asAgent is the name by which this program is an agent of the crowd: one that ringfence
// knows, so that it has a home, a key on loan and tools, and whose settings are JSON.
const asAgent = "opencode"

// A crowdAgent works in a box until that ends: it asks its model, has a file written and
// deleted by tools, of which some wait for a person, and tries what belongs to others. What
// is not as it must be, it writes into a file of its workspace.
type crowdAgent struct {
	marker string // which is its own, and in all that it says
	key    string // what stands for its key
	at     string // its model
	tools  string // address of its tools
	token  string // that they want
	turn   int
}

// beAgent is what the program does in the place of tests, where it is an agent.
func beAgent() {
	a := &crowdAgent{}
	if err := a.wakes(); err != nil {
		a.fault("it does not wake: %v", err)
		os.Exit(1)
	}
	for ; ; a.turn++ {
		a.works()
		if a.turn%8 == 0 {
			a.tries()
		}
		if err := os.WriteFile("beat", []byte(strconv.Itoa(a.turn)), 0o600); err != nil {
			a.fault("%v", err)
		}
		<-time.After(250 * time.Millisecond)
	}
}

// fault writes down what is not as it must be.
func (a *crowdAgent) fault(format string, args ...any) {
	f, err := os.OpenFile("faults", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "turn %d: "+format+"\n", append([]any{a.turn}, args...)...)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fmt.Println(err)
	}
}

// wakes reads what it is told, and leaves what the test compares.
func (a *crowdAgent) wakes() error {
	marker, err := os.ReadFile("marker")
	if err != nil {
		return err
	}
	a.marker, a.key, a.at = string(marker), os.Getenv("ANTHROPIC_API_KEY"), os.Getenv("ANTHROPIC_BASE_URL")
	var settings struct {
		MCP struct {
			Ringfence struct {
				URL     string
				Headers struct{ Authorization string }
			}
		}
	}
	home := os.Getenv("HOME")
	text, err := os.ReadFile(filepath.Join(home, ".config/opencode/opencode.json"))
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return err
	}
	a.tools, a.token = settings.MCP.Ringfence.URL, settings.MCP.Ringfence.Headers.Authorization
	return errors.Join(
		os.WriteFile("loaned", []byte(a.key), 0o600), os.WriteFile("token", []byte(a.token), 0o600),
		os.WriteFile(filepath.Join(home, "note"), marker, 0o600),
	)
}

// works is a turn of what it may do.
func (a *crowdAgent) works() {
	if status, said, err := a.ask(a.key); err != nil || status != http.StatusOK || !strings.Contains(said, "all done") {
		a.fault("its model answers %d %.200s, %v", status, said, err)
	}
	for _, answer := range []string{"yes", "no"} {
		name := fmt.Sprintf("%s-%d-%s", a.marker, a.turn, answer)
		a.expects(a.call("write_file", map[string]any{"path": name, "content": a.marker}))(true, "writes "+name)
		a.expects(a.call("delete_file", map[string]any{"path": name}))(answer == "yes", "deletes "+name)
		if _, err := os.Stat(name); (err == nil) != (answer == "no") {
			a.fault("of %s: %v", name, err)
		}
		_ = os.Remove(name) // where a person has said no
	}
}

// tries is what it must not get.
func (a *crowdAgent) tries() {
	seen, err := os.ReadDir("..")
	if own, _ := os.Getwd(); err == nil && (len(seen) != 1 || seen[0].Name() != filepath.Base(own)) {
		a.fault("beside it is %v", seen)
	}
	neighbour, err := os.ReadFile("neighbour")
	if err != nil {
		return // not told yet
	}
	dir, rest, _ := strings.Cut(string(neighbour), "\n")
	key, token, _ := strings.Cut(rest, "\n")
	if text, err := os.ReadFile(filepath.Join(dir, "marker")); err == nil {
		a.fault("it reads %s of %s", text, dir)
	}
	a.expects(a.call("read_text_file", map[string]any{"path": filepath.Join(dir, "marker")}))(false, "reads of "+dir)
	if status, said, err := a.ask(key); err == nil && status < 400 {
		a.fault("with the key of another it has %d %.200s", status, said)
	}
	own := a.token
	a.token = token
	_, status, err := a.post("tools/list", "", nil)
	if a.token = own; err != nil || status != http.StatusUnauthorized {
		a.fault("with the token of another it has %d, %v", status, err)
	}
}

// expects says what of the answer to a call is wrong.
func (a *crowdAgent) expects(said string, isError bool, err error) func(good bool, what string) {
	return func(good bool, what string) {
		if err != nil || isError == good {
			a.fault("it %s: %.300s, %v", what, said, err)
		}
	}
}

// ask asks the model with a key.
func (a *crowdAgent) ask(key string) (status int, said string, err error) {
	body, err := json.Marshal(object{"model": "m", "stream": true, "max_tokens": 100, "messages": []object{{"role": "user", "content": "this is " + a.marker}}})
	if err != nil {
		return 0, "", err
	}
	r, err := http.NewRequest(http.MethodPost, a.at+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Api-Key", key)
	status, text, err := exchange(r)
	return status, text, err
}

// call calls a tool by the end of its name.
func (a *crowdAgent) call(tool string, args map[string]any) (said string, isError bool, err error) {
	full := "filesystem__" + tool
	text, status, err := a.post("tools/call", full, object{"name": full, "arguments": args})
	if err != nil {
		return text, false, err
	}
	var reply struct {
		Result *struct{ IsError bool }
		Error  any
	}
	if err := json.Unmarshal([]byte(text), &reply); err != nil || reply.Result == nil && reply.Error == nil {
		return text, false, fmt.Errorf("it answers %d %.200s: %w", status, text, err)
	}
	return text, reply.Error != nil || reply.Result.IsError, nil
}

// post sends a request of MCP and returns its answer.
func (a *crowdAgent) post(method, name string, params object) (string, int, error) {
	if params == nil {
		params = object{}
	}
	params["_meta"] = object{
		"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": object{"name": "c", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": object{},
	}
	body, err := json.Marshal(object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return "", 0, err
	}
	r, err := http.NewRequest(http.MethodPost, a.tools, bytes.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	for k, v := range map[string]string{
		"Authorization": a.token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		if v != "" {
			r.Header.Set(k, v)
		}
	}
	status, text, err := exchange(r)
	for line := range strings.Lines(text) { // the last event is the answer
		if data, ok := strings.CutPrefix(line, "data:"); ok {
			text = strings.TrimSpace(data)
		}
	}
	return text, status, err
}

func exchange(r *http.Request) (int, string, error) {
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
