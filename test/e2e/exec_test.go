//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A commandCase is one call of run_command.
type commandCase struct {
	args   map[string]any
	failed bool
	want   []string // in the text of the result
	not    []string
}

func (p *place) commands(s *mcp.ClientSession, cases []commandCase) {
	p.t.Helper()
	for _, c := range cases {
		text, failed := call(p.t, s, "run_command", c.args)
		if failed != c.failed || !failed && !json.Valid([]byte(text)) {
			p.t.Errorf("%v: failed is %v: %s", c.args, failed, text)
		}
		for _, w := range c.want {
			if !strings.Contains(text, w) {
				p.t.Errorf("%v: %s\nwant %s", c.args, text, w)
			}
		}
		for _, n := range c.not {
			if strings.Contains(text, n) {
				p.t.Errorf("%v: %s\nwant no %s", c.args, text, n)
			}
		}
	}
}

func execServer(settings map[string]any) map[string]any {
	settings["builtin"] = "exec"
	return map[string]any{"exec": map[string]any{"ringfence": settings}}
}

type object = map[string]any

// TestExec: commands run in boxes of their own, whose limits are explained; what is
// decided against does not run at all.
func TestExec(t *testing.T) {
	p := newPlace(t)
	p.file("a.txt", "one\ntwo\n")
	p.file("sub/b.txt", "three\n")
	p.file(p.home+"/.ssh/id_rsa", "swordfish\n")
	p.file(p.home+"/diary.txt", "swordfish\n")
	s := p.mcp("--ask", "never", "--servers", p.servers(execServer(object{})), "--policy", p.policy(
		"The agent may read, create and edit files in the workspace.",
		"The agent may run ls, cat, grep, wc, sort, printf, touch, sleep, curl, bash, sh and env.", "The agent must never run rm.", "Everything else is forbidden.",
	))
	token := "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"
	p.commands(s, []commandCase{
		{args: object{"command": "ls"}, want: []string{`"exit_status":0`, `"stdout":"a.txt\nsub\n"`}},
		{args: object{"command": "cd sub && cat b.txt | wc -l"}, want: []string{`"stdout":"1\n"`}},
		{args: object{"command": "cat b.txt", "cwd": "sub"}, want: []string{`"stdout":"three\n"`}},
		{args: object{"command": "sh -c 'cat a.txt'"}, want: []string{`"stdout":"one\ntwo\n"`}},
		{args: object{"command": "grep nothing a.txt || printf '%s' none"}, want: []string{`"stdout":"none"`}},
		{args: object{"command": "sort -r", "stdin": "a\nb\n"}, want: []string{`"stdout":"b\na\n"`}},
		{args: object{"command": "grep nothing a.txt"}, want: []string{`"exit_status":1`, `"ended":"status 1"`}},
		// Decided against: clause, and what to do.
		{args: object{"command": "rm a.txt"}, failed: true, want: []string{"denied", `/rm`, "c3"}},
		{args: object{"command": "ls && rm a.txt"}, failed: true, want: []string{"denied"}, not: []string{"one"}},
		{args: object{"command": "ls > " + p.home + "/x"}, failed: true, want: []string{"denied", "create"}},
		{args: object{"command": "cat ~/.ssh/id_rsa"}, failed: true, want: []string{"denied"}},
		{args: object{"command": "ls", "workspace": "~"}, failed: true, want: []string{"denied", "read"}},
		{args: object{"command": "eval ls"}, failed: true, want: []string{"cannot be resolved beforehand"}},
		{args: object{"command": "ls", "env": object{}}, failed: true},
		// Allowed, and held by the box.
		{args: object{"command": "touch new.txt"}, want: []string{`"exit_status":1`, "Read-only file system", p.work + "/new.txt", `\"workspace\": \"rw\"`, `"observed":false`}},
		{args: object{"command": "printf x > new.txt"}, want: []string{`"exit_status":1`, `\"workspace\": \"rw\"`}},
		{args: object{"command": "cat " + p.home + "/diary.txt /srv/other.txt"}, want: []string{`"exit_status":1`, `"object":"/srv/other.txt"`, "was not given"}, not: []string{"swordfish"}},
		{args: object{"command": "cat ../diary.txt"}, want: []string{`"exit_status":1`}, not: []string{"swordfish"}},
		{args: object{"command": "curl -sS --max-time 3 http://192.0.2.1/"}, want: []string{"commands have no network"}},
		{args: object{"command": "sleep 60", "timeout_seconds": 1}, want: []string{`"ended":"deadline"`, `"exit_status":124`, "its time of 1s was over", `\"timeout\"`}},
		// Output is data.
		{args: object{"command": `printf '\033]0;x\007'`}, want: []string{`"stdout":"\u001b]0;x\u0007"`}},
		{args: object{"command": "printf %s " + token}, want: []string{"redacted"}, not: []string{token}},
		{args: object{"command": "printf %0200000d 7"}, want: []string{"bytes left out", `"left_out":134464`}},
	})
	for _, name := range []string{"new.txt", "x"} {
		if _, err := os.Stat(p.work + "/" + name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	s.Close()
	// Every command that ran has its box on record, before its result.
	boxes, results := 0, 0
	for line := range strings.Lines(p.ok("ledger", "show", "--json")) {
		boxes += strings.Count(line, `"type":"box"`)
		results += strings.Count(line, `"type":"result"`)
	}
	if boxes < 15 || boxes > results {
		t.Errorf("%d boxes and %d results are on record", boxes, results)
	}
	p.ok("ledger", "verify")
}

// TestExecCancelled: a command that the client calls off is ended.
func TestExecCancelled(t *testing.T) {
	p := newPlace(t)
	s := p.mcp("--ask", "never", "--servers", p.servers(execServer(object{"timeout": "10m"})), "--policy", p.policy(
		"The agent may read files in the workspace.", "The agent may run sleep and ls.", "Everything else is forbidden.",
	))
	p.commands(s, []commandCase{{args: object{"command": "ls"}}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_command", Arguments: object{"command": "sleep 599.25"}}); err == nil {
		t.Fatal("it was not called off")
	}
	p.commands(s, []commandCase{{args: object{"command": "ls"}, want: []string{`"exit_status":0`}}})
	deadline := time.After(20 * time.Second)
	for !strings.Contains(p.ok("ledger", "show", "--type", "result"), "cancelled") {
		select {
		case <-deadline:
			t.Fatal("its end is not on record")
		case <-time.After(50 * time.Millisecond):
		}
	}
	// What is on record as ended does not run.
	if pids := running(t, "599.25"); len(pids) > 0 {
		t.Errorf("it still runs: %v", pids)
	}
}

// running returns the processes that have word among their arguments.
func running(t *testing.T, word string) []string {
	t.Helper()
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, e := range all {
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), "\x00"+word+"\x00") {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// TestExecWrites: where commands may change the workspace, that is decided with each
// of them, and files that the host runs later are held.
func TestExecWrites(t *testing.T) {
	p := newPlace(t)
	p.file("a.txt", "one\n")
	programs := "The agent may run ls, cat, touch, bash and sh."
	list := p.servers(execServer(object{"workspace": "rw"}))
	s := p.mcp("--ask", "never", "--servers", list, "--policy", p.policy(
		"The agent may read, create, edit, delete and move files in the workspace.", programs, "Everything else is forbidden.",
	))
	p.commands(s, []commandCase{
		{args: object{"command": "touch new.txt && ls"}, want: []string{`"exit_status":0`, `a.txt\nnew.txt`}},
		{args: object{"command": "touch .envrc"}, want: []string{`"exit_status":1`, `"object":"` + p.work + `/.envrc"`, `"observed":true`}},
		{args: object{"command": "touch " + p.home + "/x"}},
	})
	s.Close()
	if _, err := os.Stat(p.work + "/new.txt"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.home + "/x"); err == nil {
		t.Error("it wrote outside the workspace")
	}
	s = p.mcp("--ask", "never", "--servers", list, "--policy", p.policy(
		"The agent may read and create files in the workspace.", programs, "Everything else is forbidden.",
	))
	p.commands(s, []commandCase{
		{args: object{"command": "touch other.txt"}, failed: true, want: []string{"denied: overwrite", "denied", "delete"}},
	})
	if _, err := os.Stat(p.work + "/other.txt"); err == nil {
		t.Error("other.txt was made")
	}
	p.ok("ledger", "verify")
}

// TestExecCoding: under the shipped constitution for coding an agent looks around with
// the usual programs, and nobody is asked.
func TestExecCoding(t *testing.T) {
	p := newPlace(t)
	p.file("greet.go", "package greet\n\nfunc  Hello() string { return \"Helo\" }\n")
	p.repository()
	text := p.file(p.home+"/coding.md", p.ok("constitution", "shipped", "coding"))
	p.ok("constitution", "compile", text, "-o", p.home+"/coding")
	list := execServer(object{"profile": "agent"})
	list["filesystem"] = object{"ringfence": object{"builtin": "filesystem"}}
	s := p.mcp("--ask", "never", "--policy", p.home+"/coding", "--servers", p.servers(list))
	for _, c := range []struct{ command, want string }{
		{"ls -la", "greet.go"},
		{"grep -rn Helo . | sort | head -5", "greet.go:3"},
		{"gofmt -l greet.go", `"stdout":"greet.go\n"`},
		{"sed -n '1,3p' greet.go", "package greet"},
		{"git log --oneline", `"exit_status":0`},
		{"git status --short", `"exit_status":0`},
		{"find . -name '*.go' && wc -l greet.go", "./greet.go"},
		{"awk '{print $1}' greet.go", "package"},
	} {
		if got, failed := call(t, s, "exec__run_command", object{"command": c.command}); failed || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.command, got)
		}
	}
	if got, failed := call(t, s, "exec__run_command", object{"command": "rm greet.go"}); !failed || !saysAll(got, "execute [", "any other program needs approval") {
		t.Error(got)
	}
	if got, failed := call(t, s, "filesystem__read_text_file", object{"path": "greet.go"}); failed {
		t.Error(got)
	}
}

// saysAll reports whether a denial of a command names once that it is one, what is
// denied, the clause with its line and words, and what to do next.
func saysAll(got, what, clause string) bool {
	return strings.Count(got, "denied") == 1 && strings.Contains(got, what) && strings.Contains(got, " by c") &&
		strings.Contains(got, "(line ") && strings.Contains(got, clause) && strings.Contains(got, "tell the person what stands in the way")
}

// TestExecDenialOfChanges: where the command is allowed and what its box could change is
// not, the agent reads as much of it as of any other denial.
func TestExecDenialOfChanges(t *testing.T) {
	p := newPlace(t)
	text := p.file(p.home+"/coding.md", p.ok("constitution", "shipped", "coding"))
	p.ok("constitution", "compile", text, "-o", p.home+"/coding")
	s := p.mcp("--ask", "never", "--policy", p.home+"/coding", "--servers", p.servers(execServer(object{"workspace": "rw"})))
	got, failed := call(t, s, "run_command", object{"command": "ls"})
	if !failed || !saysAll(got, "delete "+p.work+" and everything beneath", "Deleting files in the workspace needs approval") {
		t.Error(got)
	}
}

// TestTreeUnderDefault: where each change needs approval, a box that may change the
// workspace is asked for, in one question, and not denied; with --rw of the workspace in
// any profile.
func TestTreeUnderDefault(t *testing.T) {
	p := newPlace(t)
	out, status := p.run("run", "--ask", "never", "--", "bash")
	if status != 126 || !strings.Contains(out, "delete and move "+p.work+" and everything beneath") || !strings.Contains(out, "Anything that changes something needs approval") {
		t.Errorf("%d %s", status, out)
	}
	for _, program := range []string{"nosuch", "./nosuch", "/nosuch"} {
		if out, status := p.run("exec", "--ask", "never", "--", program); status != 127 || !strings.Contains(out, "nosuch") {
			t.Errorf("%s: %d %s", program, status, out)
		}
	}
	answered := p.approver()
	for i, args := range [][]string{
		{"run", "--ask", "desk", "--", "sh", "-c", "echo hi > f"},
		{"exec", "--ask", "desk", "--rw", ".", "--", "rm", "f"},
	} {
		p.ok(args...)
		if n := answered(); n != i+1 {
			t.Errorf("%q: %d questions by now", args, n)
		}
	}
	if _, err := os.Stat(p.work + "/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the workspace was not writable: %v", err)
	}
	if out, status := p.run("exec", "--ask", "desk", "--", "touch", "g"); status == 0 || !strings.Contains(out, "to allow it: --rw "+p.work) {
		t.Errorf("%d %s", status, out)
	}
}
