//go:build linux

package net_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asking is what a box does, step after step, each when its file is there.
const asking = `step() { n=0; while [ ! -e "$1" ]; do n=$((n+1)); [ $n -lt 600 ] || exit 1; sleep 0.1; done; }
get() { curl -s -o /dev/null -w "$1 %{http_code}\n" -m 60 "$2"; }
get first https://server.example:$TLS/hello?a
get other-query https://server.example:$TLS/hello?b
step revoked
get revoked https://server.example:$TLS/hello?c
get denied-path https://server.example:$TLS/elsewhere`

// TestGrantsOfRequests: a request that a person is asked about waits, goes out once they said
// yes, and takes others within the scope that they chose along, until that is taken back.
func TestGrantsOfRequests(t *testing.T) {
	p := newPlace(t)
	c := reachCase{needs: []string{"curl"}, script: asking}
	p.need(t, c)
	policy, err := p.Policy(t.Context(), "The agent may run any command.", "The agent may read any file.", "The agent may read, change, delete and move any file in the workspace.",
		"The agent may fetch pages from "+allowed+":"+p.world.tls+" with approval.")
	if err != nil {
		t.Fatal(err)
	}
	cmd := p.Command(t.Context(), "exec", "--ask", "desk", "--policy", policy, "--net", "policy", "--profile", "agent", "-w", p.Work, "--timeout", "90s", "--", "/bin/sh", "-c", p.script(c))
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Work, &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // who asks cannot approve
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	asked := func(what string) (id string) {
		t.Helper()
		until(t, what, 30*time.Second, func() bool {
			text, err := p.Run(t.Context(), "approvals", "list", "--json")
			var all []struct {
				ID string `json:"id"`
			}
			if err != nil || json.Unmarshal(text, &all) != nil || len(all) == 0 {
				return false
			}
			id = all[0].ID
			return true
		})
		return id
	}
	id := asked("a question about the first request")
	shown, err := p.Run(t.Context(), "approvals", "show", id)
	if err != nil || !strings.Contains(string(shown), "GET https://"+allowed+":"+p.world.tls+"/hello, with any query and body") {
		t.Fatalf("%v\n%s", err, shown)
	}
	if text, err := p.Run(t.Context(), "approvals", "approve", id, "--for", "session", "--scope", "2"); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var grants []struct {
		Session, ID, Text string
		Used              int
	}
	until(t, "the second request to pass", 30*time.Second, func() bool {
		text, err := p.Run(t.Context(), "grants", "list", "--json")
		return err == nil && json.Unmarshal(text, &grants) == nil && len(grants) == 1 && grants[0].Used == 1
	})
	if text, err := p.Run(t.Context(), "grants", "revoke", grants[0].Session, grants[0].ID); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := os.WriteFile(filepath.Join(p.Work, "revoked"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"a question after it was taken back", "a question about another path"} {
		id := asked(what)
		if text, err := p.Run(t.Context(), "approvals", "deny", id); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		until(t, "the answer", 30*time.Second, func() bool {
			text, err := p.Run(t.Context(), "approvals", "list", "--json")
			return err == nil && !strings.Contains(string(text), id)
		})
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, errs.String())
	}
	if want := "first 200\nother-query 200\nrevoked 403\ndenied-path 403\n"; out.String() != want {
		t.Errorf("%q, want %q\n%s", out.String(), want, errs.String())
	}
}
