//go:build linux

package net_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestBrowserOfServer: the browser that a server drives opens pages of the hosts that its entry
// and the policy name, and no others.
func TestBrowserOfServer(t *testing.T) {
	const browser = "/usr/lib/chromium/chromium" // what is in PATH on Debian is a script that reads /etc
	p := newPlace(t)
	if _, err := os.Stat(browser); err != nil || p.node == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no chromium, or no npm package; run make test")
		}
		t.Skip("needs chromium and npm packages: run make test")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	servers, err := p.Servers(map[string]any{"playwright": map[string]any{
		"command":   p.node + "/.bin/node",
		"args":      []string{p.node + "/@playwright/mcp/cli.js", "--headless", "--isolated", "--no-sandbox", "--executable-path", browser},
		"ringfence": map[string]any{"hosts": []string{allowed + ":" + p.world.plain}, "paths": []string{p.node}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := p.Policy(ctx, "The agent may use playwright.*.", "The agent may read, change, delete and move any file in the workspace.",
		"The agent may fetch pages from "+allowed+":"+p.world.plain+".", "The agent may fetch pages from "+denied+":"+p.world.plain+".")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = p.Run(ctx, "annotate-tools", "--servers", servers, "-w", p.Work, "playwright") // its status says that there are remarks
	if _, err := p.Run(ctx, "annotate-tools", "--accept", "--yes", "playwright"); err != nil {
		t.Fatal(err)
	}
	m, err := p.MCP(ctx, policy, servers)
	if err != nil {
		log, _ := os.ReadFile(p.Log())
		t.Fatalf("%v\n%s", err, log)
	}
	defer m.Close() // once more where something went wrong
	if _, err := m.Tools(ctx); err != nil {
		t.Fatal(err)
	}
	var pins []struct{ Tool, Hash string }
	out, _ := p.Command(ctx, "tools", "review", "playwright.browser_navigate", "--json").Output() // its status says that there is something to review
	if err := json.Unmarshal(out, &pins); err != nil || len(pins) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	pin := p.Command(ctx, "tools", "pin", "playwright.browser_navigate", pins[0].Hash)
	pin.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // whoever asks cannot approve
	if out, err := pin.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, host := range []string{allowed, denied} { // it shows what it is told in place of a page
		r, err := m.Call(ctx, "browser_navigate", json.RawMessage(`{"url":"http://`+host+`:`+p.world.plain+`/hello"}`))
		if err != nil || r.IsError {
			log, _ := os.ReadFile(p.Log())
			t.Errorf("%s: %+v, %v\n%s", host, r, err, log)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	shown, err := p.Run(ctx, "net", "log")
	for _, want := range []string{"allow fetch http://" + allowed, "deny fetch http://" + denied, "server-hosts"} {
		if err != nil || !strings.Contains(string(shown), want) {
			t.Errorf("%v: no %q in %s", err, want, shown)
		}
	}
}
