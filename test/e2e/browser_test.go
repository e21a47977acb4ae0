//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// chromium returns a browser, or skips the test where a person has not installed one. In CI
// it must be there.
func chromium(t *testing.T) string {
	t.Helper()
	// What is in PATH on Debian is a script that reads /etc, which a box does not have.
	const path = "/usr/lib/chromium/chromium"
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no chromium; run make test")
		}
		t.Skip("needs chromium: run make test")
	}
	return path
}

// pinAll approves all that waits for a review of a server.
func (p *place) pinAll(server string) {
	p.t.Helper()
	var all []struct{ Tool, Status, Hash string }
	if err := json.Unmarshal([]byte(p.ok("tools", "list", server, "--json")), &all); err != nil {
		p.t.Fatal(err)
	}
	for _, d := range all {
		if d.Status == "proposed" {
			p.ok("tools", "pin", server+"."+d.Tool, d.Hash)
		}
	}
}

// pageNames are names of files that have the time in them.
var pageNames = regexp.MustCompile(`page-[0-9TZ-]+\.yml`)

// TestNPMBrowser: a server whose tools nobody has annotated, once a person has accepted a
// draft and its definitions, lists and works in its box as it does without us: its browser
// runs there. A page of this machine is out of reach: the box has a loopback of its own, and the
// proxy of the box goes to no loopback.
func TestNPMBrowser(t *testing.T) {
	browser := chromium(t)
	p := newPlace(t)
	argv := []string{
		"node", node(t) + "/@playwright/mcp/cli.js", "--headless", "--isolated", "--no-sandbox", "--executable-path", browser,
	}
	list := p.servers(map[string]any{"playwright": map[string]any{
		"command": argv[0], "args": argv[1:],
	}})
	p.run("annotate-tools", "--servers", list, "-w", p.work, "playwright") // its status says that there are remarks
	p.ok("annotate-tools", "--accept", "--yes", "playwright")
	command := []string{"mcp", "-w", p.work, "--servers", list, "--ask", "never", "--policy", p.policy(
		"may do anything in the workspace", "may use playwright.*", "may do anything",
	)}
	proposing := talkTo(t, p.command(command...), `{}`, nil)
	proposing.ask("tools/list", `{}`)
	p.pinAll("playwright")

	ours, plain := talkTo(t, p.command(command...), `{}`, nil), talkTo(t, p.plain(argv), `{}`, nil)
	evaluate := `{"name":"browser_evaluate","arguments":{"function":"() => { document.body.innerHTML = '<h1>Here it is</h1>'; return 6 * 7 }"}}`
	for _, r := range []string{`tools/list {}`, `tools/call ` + evaluate, `tools/call {"name":"browser_snapshot","arguments":{}}`} {
		method, params, _ := strings.Cut(r, " ")
		with, without := ours.ask(method, params), plain.ask(method, params)
		if with, without = pageNames.ReplaceAllString(with, "PAGE"), pageNames.ReplaceAllString(without, "PAGE"); with != without {
			t.Errorf("%s\nwith us    %.900s\nwithout us %.900s", r, with, without)
		}
	}
	p.ok("ledger", "verify")
}
