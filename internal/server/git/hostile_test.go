//go:build unix

package git

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A field is a repository full of traps. Every trap leaves a file in fired when it
// goes off.
type field struct {
	top, fired string
}

// trap returns the path of a program that says that it ran, and then does what
// filters and the like are expected to do: pass its input on.
func (f field) trap(t testing.TB, name string) string {
	t.Helper()
	p := filepath.Join(f.top, "traps", name)
	script := fmt.Sprintf("#!/bin/sh\n: >%s/%s\ncase \"$1\" in clean|smudge) cat;; esac\nexit 0\n", f.fired, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func (f field) wentOff(t testing.TB) []string {
	t.Helper()
	list, err := os.ReadDir(f.fired)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return names
}

func newField(t testing.TB) field {
	top := realTemp(t)
	f := field{top: top, fired: filepath.Join(top, "fired")}
	if err := os.Mkdir(f.fired, 0o777); err != nil {
		t.Fatal(err)
	}
	sh(t, top, `git init -q --bare -b main origin.git
		git init -q -b main w && cd w
		echo 1 >f && echo 1 >g.bin && echo 1 >h && git add . && git commit -qm one && git tag v0
		git checkout -q -b topic && echo t >f && echo t >h && git commit -qam topic
		git checkout -q main && echo m >h && git commit -qam two
		git remote add origin "file://$PWD/../origin.git" && git push -q origin main
		git stash list >/dev/null`)
	return f
}

// vectors are the traps of one kind each: what a hostile repository can hold. K is
// replaced by the path of the trap.
type vector struct {
	Name    string
	Group   string            // laid together with the others of the group
	Config  map[string]string // set in the repository's configuration
	Files   map[string]string // written into the work tree
	Hooks   []string          // hooks that are the trap
	Refused string            // calls that are refused altogether say this
	Fires   string            // a script in which plain git sets it off, to know that the trap works
}

func vectors(t *testing.T) (all []vector) {
	t.Helper()
	eachJSON(t, "testdata/vectors.jsonl", func(line int, b []byte) {
		var v vector
		if err := json.Unmarshal(b, &v); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		all = append(all, v)
	})
	return all
}

func (f field) lay(t testing.TB, v vector) {
	t.Helper()
	k := f.trap(t, v.Name)
	for key, value := range v.Config {
		sh(t, f.top+"/w", fmt.Sprintf("git config --add '%s' '%s'", key, strings.NewReplacer("K", k, "$T", f.top).Replace(value)))
	}
	for name, content := range v.Files {
		if err := os.WriteFile(filepath.Join(f.top, "w", name), []byte(strings.ReplaceAll(content, "K", k)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range v.Hooks {
		b, err := os.ReadFile(k)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(f.top+"/w/.git/hooks", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(f.top, "w/.git/hooks", h), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// everyCall runs every tool in every way that could touch what a repository says,
// and returns the errors.
func everyCall(t *testing.T, c *mcp.ClientSession, f field) (errs []string) {
	t.Helper()
	eachJSON(t, "testdata/every-call.jsonl", func(line int, b []byte) {
		var k struct {
			Tool, Sh string
			Args     map[string]any
			Fails    bool
		}
		b = []byte(strings.ReplaceAll(string(b), "$T", f.top))
		if err := json.Unmarshal(b, &k); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		if k.Sh != "" {
			// Work of a person, with a git that heeds nothing of the repository's.
			sh(t, f.top+"/w", "export GIT_DIR=/nonexistent; "+k.Sh)
			return
		}
		if _, ok := k.Args["path"]; !ok && k.Tool != "git_clear_working_dir" && k.Tool != "git_wrapup_instructions" {
			k.Args["path"] = f.top + "/w"
		}
		if text, _, failed := call(t, c, k.Tool, k.Args); failed && !k.Fails {
			errs = append(errs, fmt.Sprintf("line %d: %s: %s", line, k.Tool, text))
		}
	})
	return errs
}

// G1: FS-23, GI-01, GI-03. Traps that would hide each other are in different groups,
// and those that make us refuse are alone.
func TestNothingRuns(t *testing.T) {
	groups := map[string][]vector{}
	for _, v := range vectors(t) {
		name := v.Group
		if name == "" {
			name = v.Name
		}
		groups[name] = append(groups[name], v)
	}
	for name, group := range groups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			for _, v := range group {
				f.lay(t, v)
			}
			c, _ := connect(t, f.top)
			errs := everyCall(t, c, f)
			if off := f.wentOff(t); len(off) > 0 {
				t.Errorf("went off: %v", off)
			}
			refused := group[0].Refused
			for _, e := range errs {
				follows := strings.Contains(e, "/wt: no such file") // because it was not made
				if refused == "" || !follows && !strings.Contains(e, refused) {
					t.Errorf("%s", e)
				}
			}
			if refused != "" && len(errs) == 0 {
				t.Error("nothing was refused")
			}
		})
	}
}

// The traps are real: plain git walks into each that says how.
func TestTrapsWork(t *testing.T) {
	for _, v := range vectors(t) {
		if v.Fires == "" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			f.lay(t, v)
			sh(t, f.top+"/w", "("+v.Fires+") >/dev/null 2>&1 </dev/null || true")
			if len(f.wentOff(t)) == 0 {
				t.Errorf("plain git does not run it in: %s", v.Fires)
			}
		})
	}
}

// A repository on this machine that is pushed to and fetched from is hostile too.
func TestOtherEndRunsNothing(t *testing.T) {
	f := newField(t)
	k := f.trap(t, "far")
	sh(t, f.top+"/origin.git", fmt.Sprintf(`mkdir -p hooks && for h in pre-receive update post-receive post-update reference-transaction push-to-checkout proc-receive; do cp %s hooks/$h; done
		git config core.fsmonitor %[1]s; git config core.alternateRefsCommand %[1]s; git config uploadpack.packObjectsHook %[1]s; git config receive.procReceiveRefs refs/heads; git config gc.auto 1
		git config core.hooksPath "$PWD/hooks"`, k))
	c, _ := connect(t, f.top)
	sh(t, f.top+"/w", "git commit -q --allow-empty -m three")
	for _, k := range []struct {
		tool string
		args map[string]any
	}{
		{"git_push", map[string]any{"path": f.top + "/w"}},
		{"git_fetch", map[string]any{"path": f.top + "/w"}},
		{"git_clone", map[string]any{"url": f.top + "/origin.git", "path": f.top + "/c"}},
	} {
		text, _, failed := call(t, c, k.tool, k.args)
		if failed && !strings.Contains(text, "proc-receive") {
			t.Errorf("%s: %s", k.tool, text)
		}
	}
	if off := f.wentOff(t); len(off) > 0 {
		t.Errorf("went off: %v", off)
	}
	sh(t, f.top+"/w", "git commit -q --allow-empty -m four; git push -q origin main || true")
	if len(f.wentOff(t)) == 0 {
		t.Error("the trap does not work")
	}
}

// A submodule that is checked out brings a configuration of its own.
func TestSubmodulesRunNothing(t *testing.T) {
	f := newField(t)
	k := f.trap(t, "sub")
	sh(t, f.top, `git init -q -b main lib && cd lib && echo 1 >x && echo '* filter=f diff=d' >.gitattributes && git add . && git commit -qm lib`)
	sh(t, f.top+"/w", fmt.Sprintf(`git -c protocol.file.allow=always submodule --quiet add ../lib lib && git commit -qm sub
		cd lib && git config core.fsmonitor %s && git config filter.f.clean %[1]s && git config filter.f.process %[1]s && git config diff.d.textconv %[1]s && git config diff.external %[1]s
		echo 2 >x && touch -d '2001-01-01' .gitattributes`, k))
	c, _ := connect(t, f.top)
	for _, e := range everyCall(t, c, f) {
		t.Log(e)
	}
	if off := f.wentOff(t); len(off) > 0 {
		t.Errorf("went off: %v", off)
	}
	sh(t, f.top+"/w", "git status >/dev/null 2>&1 || true")
	if len(f.wentOff(t)) == 0 {
		t.Error("the trap does not work")
	}
}

// MC-11, GI-01, FS-21, FS-22: calls that must fail, and leave nothing behind.
func TestHostileCalls(t *testing.T) {
	f := newField(t)
	f.trap(t, "git-remote-trap")
	sh(t, f.top, `git init -q -b main elsewhere && cd elsewhere && git commit -q --allow-empty -m x
		mkdir ../linked ../nowhere ../moved && echo "gitdir: /etc" >../nowhere/.git && echo "gitdir: ../elsewhere/.git" >../linked/.git
		ln -s ../elsewhere/.git ../moved/.git
		git init -q ../tree && git -C ../tree config core.worktree /tmp
		git init -q ../common && echo ../../elsewhere/.git >../common/.git/commondir
		git init -q ../borrower && echo /nonexistent/objects >../borrower/.git/objects/info/alternates
		git init -q ../includes && git -C ../includes config include.path /etc/passwd
		git init -q ../rewrite && cd ../rewrite && git remote add origin https://example.com/x && git config url.ext::sh.insteadOf https://example.com/
		git init -q ../mirror && cd ../mirror && git remote add origin file://`+f.top+`/origin.git && git config remote.origin.fetch '+refs/heads/*:refs/heads/*'
		git init -q ../proxy && cd ../proxy && git remote add origin https://example.com/x && git config http.proxy http://evil.example
		git init -q ../planned && cd ../planned && git commit -q --allow-empty -m x && mkdir .git/rebase-merge && echo 'exec touch fired' >.git/rebase-merge/git-rebase-todo`)
	c, run := connect(t, f.top)
	eachJSON(t, "testdata/hostile-calls.jsonl", func(line int, b []byte) {
		var k struct {
			ID, Tool, Error string
			Args            json.RawMessage
		}
		b = []byte(strings.ReplaceAll(string(b), "$T", f.top))
		if err := json.Unmarshal(b, &k); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		run.ran = nil
		text, _, failed := call(t, c, k.Tool, k.Args)
		if !failed || !strings.Contains(text, k.Error) {
			t.Errorf("line %d: %s %s %s: error %v: %s", line, k.ID, k.Tool, k.Args, failed, text)
		}
		for _, cmd := range run.ran {
			if cmd.Network {
				t.Errorf("line %d: %s %s: contacted a remote: %q", line, k.ID, k.Tool, cmd.Argv)
			}
		}
	})
	if off := f.wentOff(t); len(off) > 0 {
		t.Errorf("went off: %v", off)
	}
	for _, name := range []string{"out", "w/out", "fired/x"} {
		if _, err := os.Lstat(filepath.Join(f.top, name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}

// G5 and G3: whatever the call, git gets only our environment, and none but a
// remote tool may use the network.
func TestEnvironment(t *testing.T) {
	t.Setenv("GIT_EXTERNAL_DIFF", "/nonexistent")
	t.Setenv("GIT_CONFIG_COUNT", "1")
	f := newField(t)
	c, run := connect(t, f.top)
	everyCall(t, c, f)
	for _, cmd := range run.ran {
		env := strings.Join(cmd.Env, "\n")
		for _, want := range []string{"GIT_CONFIG_GLOBAL=" + devNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "HOME=/nonexistent"} {
			if !strings.Contains(env, want) {
				t.Errorf("%q runs without %s", cmd.Argv, want)
			}
		}
		if strings.Contains(env, "EXTERNAL_DIFF") || strings.Contains(env, "CONFIG_COUNT") {
			t.Errorf("%q inherits our environment", cmd.Argv)
		}
		if cmd.Network == strings.Contains(env, "GIT_ALLOW_PROTOCOL="+noProtocol) {
			t.Errorf("%q: network %v, but %s", cmd.Argv, cmd.Network, env)
		}
		if len(cmd.Write) == 0 && !strings.Contains(env, "GIT_OPTIONAL_LOCKS=0") {
			t.Errorf("%q may write, and was not said to", cmd.Argv)
		}
	}
}

// A repository that belongs to somebody else works.
func TestForeignOwner(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root to give a directory away")
		}
		t.Skip("needs root to give a directory away")
	}
	f := newField(t)
	sh(t, f.top, "chown -R 12345:12345 w origin.git")
	c, _ := connect(t, f.top)
	for _, tool := range []string{"git_status", "git_fetch", "git_log"} {
		if text, _, failed := call(t, c, tool, map[string]any{"path": f.top + "/w"}); failed {
			t.Errorf("%s: %s", tool, text)
		}
	}
}
