//go:build linux

package net_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// variable is what differs on a page each time, and what stands for it.
var variable = map[*regexp.Regexp]string{
	regexp.MustCompile(`· run .*`): "· run …", regexp.MustCompile(`Question [0-9a-f]{8}`): "Question ID", regexp.MustCompile(`session \S+`): "session S",
	regexp.MustCompile(` *\d:\d\d left`): " N left", regexp.MustCompile(`until    \S+ UTC`): "until    T", regexp.MustCompile(`:\d{4,5}\b`): ":PORT",
}

// golden compares a screen with the file of that name.
func golden(t *testing.T, name, text string) {
	t.Helper()
	var lines []string
	for is, as := range variable {
		text = is.ReplaceAllString(text, as)
	}
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	got := strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
	file := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v; the screen is\n%s\nwant\n%s", err, got, want)
	}
}

// TestPage: a person answers what a program in a box waits for on a page that the hot-key opens.
// The program goes on; its screen is as it was; what was pressed too early counts for nothing.
func TestPage(t *testing.T) {
	p := newPlace(t)
	var err error
	if p.policy, err = p.Policy(t.Context(), "The agent may run any command.", "The agent may read any file.", "The agent may fetch pages from "+allowed+":"+p.world.tls+" with approval."); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("/bin/sh")
	cmd := p.Command(t.Context())
	shell.Env, shell.Dir = append(cmd.Env, "PS1=at the shell: "), cmd.Dir
	s := onScreen(t, shell)
	s.press("clear", "Enter")
	typed := `fetch() { curl -sSf -m 200 https://` + allowed + `:` + p.world.tls + `/hello?"$1" >/dev/null && echo "$1 came" || echo "$1 did not"; }; echo its page; fetch one; fetch two; cat`
	if err := os.WriteFile(filepath.Join(p.Work, "its.sh"), []byte(typed), 0o600); err != nil {
		t.Fatal(err)
	}
	s.press("exec "+p.Bin+" run --net policy --policy "+p.policy+` -- /bin/sh its.sh`, "Enter")
	s.shows("its page\n")
	until(t, "it asks", time.Minute, func() bool {
		out, err := p.Run(t.Context(), "approvals", "list")
		if strings.Contains(s.text(), "did not") {
			t.Fatal(s.text())
		}
		return err == nil && strings.Contains(string(out), "hello?one")
	})
	before := s.text()
	s.press(`C-\`)
	s.press("y") // too early
	s.shows("1 question waits")
	s.settles()
	golden(t, "page.txt", s.text())
	s.press("q")
	s.shows("its page\n")
	if after := s.text(); after != before {
		t.Errorf("the screen was\n%s\nand is\n%s", before, after)
	}
	s.press(`C-\`)
	s.shows("1 question waits")
	s.settles()
	s.press("y")
	s.shows("Allowed once.")
	s.shows("hello?two")
	s.settles()
	s.press("m")
	s.shows("Deny, and tell the agent")
	s.press("not that one", "Enter")
	s.shows("is told why")
	s.shows("nothing waits")
	s.settles()
	s.press("q")
	s.shows("two did not")
	if got := s.text(); !strings.Contains(got, "one came") {
		t.Errorf("the screen is\n%s", got)
	}
	s.press("C-c")
	record, err := p.Run(t.Context(), "ledger", "show", "--json")
	if err != nil || !strings.Contains(string(record), "not that one") {
		t.Errorf("%v: the record does not have the message", err)
	}
}

// asks runs a fetch that a person is asked about, and returns the id of the question once it
// waits.
func (p *place) asks(t *testing.T, page string) (id string, done <-chan string) {
	t.Helper()
	came := make(chan string, 1)
	cmd := p.Command(t.Context(), "run", "--ask", "desk", "--net", "policy", "--policy", p.policy, "--", "/bin/sh", "-c",
		"curl -sS -o /dev/null -w '%{http_code}' -m 200 https://"+allowed+":"+p.world.tls+page)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	go func() {
		out, _ := cmd.Output()
		came <- string(out)
	}()
	until(t, "it asks", time.Minute, func() bool {
		var qs []struct{ ID, Text string }
		out, err := p.Run(t.Context(), "approvals", "list", "--json")
		if err == nil {
			err = json.Unmarshal(out, &qs)
		}
		for _, q := range qs {
			if strings.Contains(q.Text, page) {
				id = q.ID
			}
		}
		return err == nil && id != ""
	})
	return id, came
}

// TestProposals is AP-06 and PO-04: a yes for good proposes a clause, which nothing heeds until a person at a
// terminal accepts it; then its constitution has it, and nobody is asked again. What a clause
// would not change is not proposed.
func TestProposals(t *testing.T) {
	p := newPlace(t)
	site := allowed + ":" + p.world.tls
	var err error
	if p.policy, err = p.Policy(t.Context(), "The agent may run any command.", "The agent may read any file.", "The agent may fetch pages from "+site+" with approval."); err != nil {
		t.Fatal(err)
	}
	constitution := func() string {
		text, err := os.ReadFile(filepath.Join(p.policy, "constitution.md"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := constitution()
	id, done := p.asks(t, "/hello")
	shown, err := p.Run(t.Context(), "approvals", "show", id)
	if err != nil {
		t.Fatal(err)
	}
	scope := regexp.MustCompile(`(\d+)  domain`).FindStringSubmatch(string(shown))
	if scope == nil {
		t.Fatalf("it has no such scope:\n%s", shown)
	}
	if out, err := p.Run(t.Context(), "approvals", "approve", id, "--for", "good", "--scope", scope[1], "--policy", p.policy); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if got := <-done; got != "200" {
		t.Errorf("it came to %q", got)
	}
	if constitution() != before {
		t.Error("the constitution was changed by asking")
	}
	accept := p.Command(t.Context(), "approvals", "proposals", "accept", id)
	accept.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if out, err := accept.CombinedOutput(); err == nil || !strings.Contains(string(out), "at a terminal") || constitution() != before {
		t.Errorf("without a terminal: %v\n%s", err, out)
	}
	s := onScreen(t, p.Command(t.Context(), "approvals", "proposals", "accept", id))
	s.shows("+- The agent may fetch pages from " + site + ".")
	s.shows(`Type "yes"`)
	s.press("yes", "Enter")
	until(t, "it has the clause", time.Minute, func() bool { return constitution() == before+"\n- The agent may fetch pages from "+site+".\n" })
	out, err := p.Command(t.Context(), "run", "--ask", "never", "--net", "policy", "--policy", p.policy, "--", "/bin/sh", "-c",
		"curl -sS -o /dev/null -w '%{http_code}' -m 20 https://"+site+"/hello").Output()
	if err != nil || string(out) != "200" {
		t.Errorf("afterwards: %v, %q", err, out)
	}
	if out, err := p.Run(t.Context(), "approvals", "proposals", "list"); err != nil || string(out) != "Nothing is proposed.\n" {
		t.Errorf("%v %s", err, out)
	}
	record, err := p.Run(t.Context(), "ledger", "show", "--json")
	if err != nil || !strings.Contains(string(record), `"proposal":"`+id+`"`) {
		t.Errorf("%v: it is not on record", err)
	}
	if p.policy, err = p.Policy(t.Context(), "The agent may run any command.", "The agent may read any file.", "The agent may fetch pages from "+site+".", "The agent must ask before fetching pages from "+site+"."); err != nil {
		t.Fatal(err)
	}
	id, done = p.asks(t, "/hello")
	refused, err := p.Command(t.Context(), "approvals", "approve", id, "--for", "good", "--policy", p.policy).CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "would not change the answer") {
		t.Errorf("%v\n%s", err, refused)
	}
	if _, err := p.Run(t.Context(), "approvals", "deny", id); err != nil {
		t.Error(err)
	}
	if got := <-done; got == "200" {
		t.Error("it came")
	}
}
