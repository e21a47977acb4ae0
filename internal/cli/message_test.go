//go:build unix

package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMessages: what a person who got something wrong reads, and with which status.
// "%" is the directory of the place. A want begins standard error after the name of
// the program, or after "…" is anywhere in it.
func TestMessages(t *testing.T) {
	p := newPlace(t)
	err := errors.Join(
		os.Mkdir(filepath.Join(p.dir, "coding"), 0o700), os.Mkdir(filepath.Join(p.dir, "empty"), 0o700),
		os.WriteFile(filepath.Join(p.dir, "array.json"), []byte(`{"docs-sites": ["x.org"]}`), 0o600),
		os.WriteFile(filepath.Join(p.dir, "rules.md"), []byte("The agent may read files in the workspace.\n"), 0o600),
	)
	for name, entry := range map[string]string{
		"builtin":     `"ringfence": {"builtin": "filesytem"}`,
		"paths":       `"ringfence": {"builtin": "git", "paths": ["` + p.dir + `/gone"]}`,
		"annotations": `"command": "/bin/true", "ringfence": {"annotations": "memry"}`,
		"own":         `"command": "./my-server"`,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(p.dir, name+".json"), []byte("{\"mcpServers\": {\n  \"a\": {"+entry+"}}}"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"policy show --policy %/rules.md", codeUsage, "loading the policy: %/rules.md is no directory but a file. If it is a constitution, compile it first: ringfence constitution compile %/rules.md -o DIR\n"},
		{"mcp --servers %/servers.json --policy %/codin", codeUsage, "loading the policy: there is no directory %/codin; did you mean %/coding?\n"},
		{"exec --tier none --ask never --policy %/codin -- true", codeUsage, "…loading the policy: there is no directory %/codin; did you mean %/coding?\n"},
		{"policy show --policy %/missing", codeUsage, "loading the policy: there is no directory %/missing\n"},
		{"policy show --policy %/empty", codeUsage, "loading the policy: %/empty holds no compiled constitution: there is no policy.cedar and no manifest.json in it."},
		{"mcp --servers %/servers.json -w %/none", codeUsage, "finding the workspace: "},
		{"constitution check --lists %/array.json %/rules.md", codeUsage, "%/array.json:1:16: wrong type: \"docs-sites\": an array where an object was expected\nringfence: a file of lists is like {\"docs-sites\": {\"members\": ["},
		{"mcp --servers %/builtin.json", codeUsage, "%/builtin.json:2:34: server a: no built-in server is called \"filesytem\"; did you mean \"filesystem\"?\n"},
		{"mcp --servers %/paths.json", codeUsage, "%/paths.json:2:50: server a: looking for one of its paths: stat %/gone: no such file or directory\n"},
		{"mcp --servers %/annotations.json", codeUsage, "%/annotations.json:2:62: server a names annotations \"memry\", which do not exist; did you mean memory?\n"},
		{"mcp --servers %/own.json -w %/empty", codeFailed, "%/own.json:2:20: starting server a: there is no program %/empty/my-server: \"./my-server\" is looked for in %/empty, which -w or the cwd of its entry names\n"},
		{"annotate-tools --servers %/own.json -w %/empty a", codeFailed, "starting server a: there is no program %/empty/my-server: "},
		{"mcp --servers %/none.json", codeUsage, "reading the list of servers: open %/none.json: no such file or directory\n"},
		{"approvals show zzz", codeFailed, "no such open question: \"zzz\" (none is open)\n"},
		{"approvals deny zzz", codeFailed, "no such open question: \"zzz\" (none is open)\n"},
	} {
		cmd := p.command(strings.Fields(strings.ReplaceAll(c.args, "%", p.dir))...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		_ = cmd.Run() // the status says how it ended
		want, anywhere := strings.CutPrefix(strings.ReplaceAll(c.want, "%", p.dir), "…")
		got := errs.String()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.HasPrefix(got, "ringfence: "+want) && !(anywhere && strings.Contains(got, want)) {
			t.Errorf("%s: status %d, want %d\n%swant %s", c.args, code, c.code, got, want)
		}
	}
}

// TestCountedSessions: a record without any agent has a session that the list has not,
// and both say so.
func TestCountedSessions(t *testing.T) {
	p := newPlace(t)
	list, help, count := p.run("ledger", "sessions"), p.run("ledger", "sessions", "--help"), p.run("ledger", "verify")
	if list != "No agent had a session yet.\n" || !strings.Contains(help, `"ringfence ledger verify" counts them`) || !strings.Contains(count, "in 1 session, with what the engine records of itself\n") {
		t.Errorf("%q, %q\n%s", list, count, help)
	}
	p.ends(codeDone, "engine", "stop")
	if out := p.ends(codeFailed, "engine", "stop"); out != "ringfence: no engine runs\n" {
		t.Errorf("stopped twice: %s", out)
	}
}

// TestInterruptedWatch: a watch has no other end than an interrupt, so there is
// nothing to say.
func TestInterruptedWatch(t *testing.T) {
	p := newPlace(t)
	m := p.command("approvals", "watch")
	var errs bytes.Buffer
	m.Stderr = &errs
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ { // until its two connections are there, and that of the one who asks
		out, _ := p.command("engine", "status", "--json").Output() // it fails before there is an engine
		if bytes.Contains(out, []byte(`"connections":3`)) {
			break
		}
		if n == 500 {
			t.Fatalf("it does not watch: %s", out)
		}
	}
	if err := m.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(); m.ProcessState.ExitCode() != codeInterrupted || errs.Len() > 0 {
		t.Errorf("%v, and it said %q", err, errs.String())
	}
}
