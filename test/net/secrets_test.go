//go:build linux

package net_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/test/rig"
)

// TestSecretsOnLoan: a program uses a key that it never has, and neither the box, the
// record nor any file has it (CR-05, CR-08).
func TestSecretsOnLoan(t *testing.T) {
	p := newPlace(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const kept, own = "trk_Kept0In1The2Vault3Alone4Of5This6Test", "sk-ant-api03-From7The8Environment9Of0The1Client2Only3"
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = append(got, r.Header.Get("Authorization"))
		mu.Unlock()
		_, _ = fmt.Fprintf(w, "you sent %s\n", r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	_, at, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	p.world.for4.Store(true) // where it listens
	policy, err := p.Policy(ctx, "The agent may fetch pages from "+allowed+":"+at+".", "The agent may fetch pages from "+allowed+":"+p.world.plain+".",
		"The agent may run any command.", "The agent may read any file.", "The agent may read, change, delete and move any file in the workspace.")
	if err != nil {
		t.Fatal(err)
	}
	set := p.Command(ctx, "secret", "set", "tracker", "--scheme", "http", "--host", allowed, "--port", at, "--path", "/v1", "--env", "TRACKER_KEY")
	set.Stdin = strings.NewReader(kept + "\n")
	if out, err := set.CombinedOutput(); err != nil || bytes.Contains(out, []byte(kept)) {
		t.Fatalf("%v\n%s", err, out)
	}
	script := strings.NewReplacer("$AT", at, "$PLAIN", p.world.plain).Replace(`
curl -sS -H "Authorization: Bearer $TRACKER_KEY" http://server.example:$AT/v1/me >reply
curl -sS -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $TRACKER_KEY" http://server.example:$PLAIN/hello >elsewhere
curl -sS -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $TRACKER_KEY" http://server.example:$AT/v2 >beside
env >environment
: >ready
until [ -e go ]; do sleep 0.05; done`)
	cmd := p.Command(ctx, "exec", "--profile", "agent", "--ask", "never", "--net", "policy", "--policy", policy, "--", "sh", "-c", script)
	cmd.Env = append(cmd.Env, "ANTHROPIC_API_KEY="+own)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ready := filepath.Join(p.Work, "ready")
	for _, err := os.Stat(ready); err != nil; _, err = os.Stat(ready) {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, said.Bytes())
		case <-time.After(20 * time.Millisecond):
		}
	}
	forms := append(rig.Forms(kept), rig.Forms(own)...)
	found, looked, err := rig.InBoxes(cmd.Process.Pid, forms)
	if err != nil || looked == 0 || len(found) > 0 {
		t.Errorf("looked at %d processes, and found it in %q, %v", looked, found, err)
	}
	environment, err := os.ReadFile(filepath.Join(p.Work, "environment"))
	_, sentinel, _ := strings.Cut("\n"+string(environment), "\nTRACKER_KEY=")
	sentinel, _, _ = strings.Cut(sentinel, "\n")
	if err != nil || len(sentinel) != len(kept) {
		t.Fatalf("the box has %q, %v", sentinel, err)
	}
	if found, looked, err := rig.InBoxes(cmd.Process.Pid, [][]byte{[]byte(sentinel)}); err != nil || !strings.Contains(strings.Join(found, " "), "/mem") {
		t.Errorf("a search of the memory of %d processes that finds nothing: %q, %v", looked, found, err)
	}
	if err := os.WriteFile(filepath.Join(p.Work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, said.Bytes())
	}
	file := func(name string) string {
		data, err := os.ReadFile(filepath.Join(p.Work, name))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	if reply := file("reply"); reply != "you sent Bearer "+sentinel+"\n" {
		t.Errorf("the box has %q, and got %q", sentinel, reply)
	}
	if env := file("environment"); !strings.Contains(env, "\nANTHROPIC_API_KEY=sk-ant-api03-") {
		t.Errorf("the box has no key of the provider: %s", env)
	}
	if file("elsewhere") != "403\n" || file("beside") != "403\n" || len(got) != 1 || got[0] != "Bearer "+kept {
		t.Errorf("elsewhere %q, beside %q, and the server got %q", file("elsewhere"), file("beside"), got)
	}
	if err := os.Remove(filepath.Join(p.Work, "environment")); err != nil {
		t.Error(err)
	}
	if found, err := p.InFiles(forms); err != nil || len(found) > 0 {
		t.Errorf("found in %q, %v", found, err)
	}
	if found, err := p.InFiles([][]byte{[]byte(sentinel)}); err != nil || len(found) == 0 {
		t.Errorf("a search that finds nothing: %q, %v", found, err)
	}
	out, err := p.Run(ctx, "ledger", "show", "--json")
	if err != nil || !bytes.Contains(out, []byte(`"use-secret"`)) {
		t.Errorf("the record says nothing of the use: %v", err)
	}
}
