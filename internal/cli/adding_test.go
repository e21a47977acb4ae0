//go:build unix

package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ends runs a verb that must end with status want, and returns what it printed.
func (p *place) ends(want int, args ...string) string {
	p.t.Helper()
	c := p.command(args...)
	out, err := c.CombinedOutput()
	if got := c.ProcessState.ExitCode(); got != want {
		p.t.Fatalf("%q: status %d (%v), want %d\n%s", args, got, err, want, out)
	}
	return string(out)
}

func (p *place) write(name, text string) string {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// TestAdd: a server is looked at, agreed to once, and used from then on without a review.
func TestAdd(t *testing.T) {
	p := newPlace(t)
	work := filepath.Join(p.dir, "work")
	server := []string{"--", os.Args[0], "server", "filesystem", "--root", work}
	out := p.ends(codeDenied, append([]string{"mcp", "add", "own", "-w", work}, server...)...)
	for _, want := range []string{"drafted by rule", "allowed  read_text_file", "asks     write_file", "nothing was added"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	list := filepath.Join(p.dir, "home", "servers.json")
	if _, err := os.Stat(list); err == nil {
		t.Error("there is a list although nobody agreed")
	}
	out = p.ends(codeDone, append([]string{"mcp", "add", "own", "--yes", "-w", work, "--annotations", "filesystem"}, server...)...)
	if !strings.Contains(out, "Added own to "+list) {
		t.Errorf("added:\n%s", out)
	}
	if out := p.ends(codeFailed, append([]string{"mcp", "add", "own", "--yes", "-w", work}, server...)...); !strings.Contains(out, "has a server own") {
		t.Errorf("added twice:\n%s", out)
	}
	if out := p.ends(codeDone, "tools", "review"); out != "Nothing waits for review.\n" {
		t.Errorf("after it was agreed to: %s", out)
	}
	if out := p.ends(codeDone, "ledger", "show", "--type", "admit"); strings.Count(out, "admit") < 2 {
		t.Errorf("on record:\n%s", out)
	}
}

// TestAddUsage: a command line that says no server is told what one is.
func TestAddUsage(t *testing.T) {
	p := newPlace(t)
	for want, args := range map[string][]string{
		"say what the server is":  {"a"},
		"write -- before":         {"a", "npx"},
		"3 words stand before --": {"a", "b", "c", "--", "npx"},
		"write it without --":     {"a", "--", "http://localhost:1/mcp"},
		"server a: the header":    {"a", "http://localhost:1/mcp", "--header", "Authorization=Bearer x"},
		"give the server a name":  {"--", "npx"},
		"is not NAME=VALUE":       {"a", "--env", "x", "--", "npx"},
		"cannot be the name":      {"a b", "--", "npx"},
		"do not exist":            {"a", "--annotations", "none", "--", os.Args[0], "server", "filesystem", "--root", p.dir},
	} {
		if out := p.ends(codeUsage, append([]string{"mcp", "add"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("%q: no %q in\n%s", args, want, out)
		}
	}
	for program, want := range map[string]string{
		"/bin/false": "ringfence: asking server a for its tools: opening: it ",
		"/bin/none":  "ringfence: starting server a: there is no program /bin/none\n",
	} {
		if out := p.ends(codeFailed, "mcp", "add", "a", "--", program); !strings.HasPrefix(out, want) {
			t.Errorf("%s:\n%s", program, out)
		}
	}
}

// TestAskedIn: what confined a server while it was asked is said in words.
func TestAskedIn(t *testing.T) {
	for report, want := range map[string]string{
		"box: none": "where it runs, in no box of ours",
		"box: native: landlock=abi6 seccomp; inferred: cgroup": "in a box: native",
		"box: native: seccomp; missing: network-namespace":     "in a box: native; it had the network",
		"box: native: seccomp; missing: cgroup network limits": "in a box: native; it had the network; missing: cgroup limits",
	} {
		if got := askedIn(report); got != want {
			t.Errorf("%s: %q, want %q", report, got, want)
		}
	}
}

// TestImport: the servers of another program come with one agreement, and what cannot be
// taken over is said.
func TestImport(t *testing.T) {
	p := newPlace(t)
	work := filepath.Join(p.dir, "work")
	own, err := json.Marshal(map[string]any{"command": os.Args[0], "args": []string{"server", "filesystem", "--root", work}, "ringfence": nil})
	if err != nil {
		t.Fatal(err)
	}
	file := p.write("mcp.json", `{"mcpServers":{ // of the person
		"own": `+string(own)+`, "ends": {"command": "/bin/false"}, "key": {"command": "x", "env": {"K": "${input:k}"}}}}`)
	out := p.ends(codeFailed, "mcp", "import", "--json", "cursor", "--from", file, "--yes", "-w", work)
	var got imported
	if err := json.Unmarshal([]byte(strings.SplitAfter(out, "\n")[strings.Count(out, "\n")-1]), &got); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if len(got.Added) != 1 || got.Added[0].Name != "own" || len(got.Added[0].Tools) == 0 || len(got.Skipped) != 2 {
		t.Errorf("%+v", got)
	}
	if out := p.ends(codeFailed, "mcp", "import", "cursor", "own", "--from", file, "--yes"); !strings.Contains(out, "there is no server to add") {
		t.Errorf("twice:\n%s", out)
	}
	if out := p.ends(codeUsage, "mcp", "import", "cursr"); !strings.Contains(out, `did you mean "cursor"?`) {
		t.Errorf("a program that is not known:\n%s", out)
	}
	if out := p.ends(codeUsage, "mcp", "import", "cursor", "none", "--from", file); !strings.Contains(out, "ends, key, own") {
		t.Errorf("a server that is not there:\n%s", out)
	}
}

// TestTrust (MC-20): the list of a repository starts nothing before a person agrees, and
// nothing after a change.
func TestTrust(t *testing.T) {
	p := newPlace(t)
	const harmless = `{"mcpServers":{"files":{"ringfence":{"builtin":"filesystem"}}}}`
	file := p.write("work/.mcp.json", harmless)
	start := []string{"mcp", "--servers", file, "-w", filepath.Join(p.dir, "work")}
	refused := func(when string) {
		t.Helper()
		if out := p.ends(codeDenied, start...); !strings.Contains(out, "ringfence mcp trust "+file) {
			t.Errorf("%s:\n%s", when, out)
		}
	}
	refused("at first")
	if out := p.ends(codeDenied, "mcp", "trust", file); !strings.Contains(out, `"builtin": "filesystem"`) {
		t.Errorf("nobody agreed:\n%s", out)
	}
	refused("after nobody agreed")
	p.ends(codeDone, "mcp", "trust", file, "--yes")
	p.ends(codeDone, start...)
	p.write("work/.mcp.json", `{"mcpServers":{"files":{"command":"/bin/sh"}}}`)
	refused("after a change")
}

// TestProgramChanged (MC-19): a server whose program is another than it was is not
// started, until a person has looked at the difference.
func TestProgramChanged(t *testing.T) {
	p := newPlace(t)
	script := p.write("bin/own", "#!/bin/sh\nexec "+os.Args[0]+" server filesystem --root \""+filepath.Join(p.dir, "work")+"\"\n")
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	p.write("servers.json", `{"mcpServers":{"own":{"command":"`+script+`","ringfence":{"annotations":"filesystem","paths":["`+filepath.Dir(os.Args[0])+`"]}}}}`)
	call := func() string {
		t.Helper()
		c := p.command("mcp", "--servers", p.list)
		c.Stdin = strings.NewReader(initialize + readFile)
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if out := call(); !strings.Contains(out, "waits for review") && !strings.Contains(out, "swordfish") && !strings.Contains(out, "tools review") {
		t.Errorf("at first:\n%s", out)
	}
	file, err := os.OpenFile(script, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString("# more\n")
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	if out := call(); !strings.Contains(out, "not the one that was approved") {
		t.Errorf("after a change:\n%s", out)
	}
	review := p.ends(codeFailed, "tools", "review", "own")
	_, approve, found := strings.Cut(review, "approve:  ringfence ")
	if !found || !strings.Contains(review, "The program of server own is drifted") {
		t.Fatalf("the review:\n%s", review)
	}
	approve, _, _ = strings.Cut(approve, "\n")
	p.ends(codeDone, strings.Fields(approve)...)
	if out := call(); strings.Contains(out, "not the one that was approved") {
		t.Errorf("after a review:\n%s", out)
	}
}

// TestD6TrustShowsAll: what a person agrees to is what they were shown: variables, headers,
// the network and annotations that a server claims as well.
func TestD6TrustShowsAll(t *testing.T) {
	p := newPlace(t)
	t.Setenv("CLOUD_SECRET", "value-of-it")
	file := p.write("work/.mcp.json", `{"mcpServers":{"a":{"command":"node","args":["./s.js"],"cwd":"/x","env":{"NODE_OPTIONS":"--require ./evil.js","K":"${CLOUD_SECRET}"},
		"ringfence":{"hosts":["*"],"annotations":"memory"}},"b":{"url":"http://127.0.0.1:9/","headers":{"X-Key":"${CLOUD_SECRET}"}}}}`)
	out := p.ends(codeDenied, "mcp", "trust", file)
	for _, want := range []string{
		"--require ./evil.js", `"cwd": "/x"`, "it is given the value of CLOUD_SECRET", "it reaches its hosts",
		"its tools count as those of memory", `"X-Key": "${CLOUD_SECRET}"`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "value-of-it") {
		t.Errorf("a value is shown:\n%s", out)
	}
	long := p.write("work/long/.mcp.json", `{"mcpServers":{"a":{"command":"x","description":"`+strings.Repeat("a", maxEntry)+`"}}}`)
	if out := p.ends(codeUsage, "mcp", "trust", long, "--yes"); !strings.Contains(out, "cannot be looked at") {
		t.Errorf("a long one:\n%s", out)
	}
}

// TestAddPinsTheProgram: what was looked at is what is started, by "servers test" too.
func TestAddPinsTheProgram(t *testing.T) {
	p := newPlace(t)
	script := p.write("bin/own", "#!/bin/sh\nexec "+os.Args[0]+" server filesystem --root \""+filepath.Join(p.dir, "work")+"\"\n")
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	add := []string{"mcp", "add", "own", "--annotations", "filesystem", "--yes", "--path", filepath.Dir(os.Args[0]), "-w", filepath.Join(p.dir, "work"), "--", script}
	p.ends(codeDone, add...)
	p.ends(codeDone, "servers", "test", "own")
	if out := p.ends(codeFailed, add...); !strings.Contains(out, "has a server own") || strings.Contains(out, "was asked") {
		t.Errorf("a name that is taken:\n%s", out)
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out := p.ends(codeFailed, "servers", "test", "own"); !strings.Contains(out, "not the one that was approved") {
		t.Errorf("after a change:\n%s", out)
	}
}
