package proxy

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestSays: what a call is dispatched with is what the agent is told, and the tools are
// those that are pinned.
func TestSays(t *testing.T) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Serve(t.Context(), inR, outW) }()
	hear := bufio.NewReader(outR)
	say := func(line string) string {
		if _, err := io.WriteString(inW, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(line, `"id"`) {
			return ""
		}
		answer, err := hear.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	var list struct {
		Result struct {
			Tools []json.RawMessage `json:"tools"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)), &list); err != nil || len(list.Result.Tools) != 3 {
		t.Errorf("%d tools, %v", len(list.Result.Tools), err)
	}
	got := say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_proxy_domains","arguments":{"domains":["a.test:443"]}}}`)
	if !strings.Contains(got, `"structuredContent":{"domains":["a.test:443"]}`) {
		t.Errorf("%s", got)
	}
	_ = inW.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
