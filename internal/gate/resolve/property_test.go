package resolve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

const grove = `
-- tree --
w/a/b/c/d.txt
w/link -> a/b
w/out -> ../etc
w/loop -> loop
w/up -> ..
etc/secret
home/u/.ssh/id
bin/go*
bin/sh*
bin/git*
`

func newGrove(t testing.TB) *fixture { return newFixture(t, txtar.Parse([]byte(grove))) }

var spaces = rapid.SampledFrom([]string{"", " ", "\n\t"})

// TestR3OnlyResolvedValuesChange: what is dispatched is what was given, but for
// the values that were resolved.
func TestR3OnlyResolvedValuesChange(t *testing.T) {
	f := newGrove(t)
	ann := &policy.ToolAnnotation{Args: map[string]policy.Arg{
		"/files/*/path": {Role: policy.RolePath, Effects: []act.Kind{act.Read}, Real: true},
		"/files/*/text": {Role: policy.RolePlain},
		"/keep/*":       {Role: policy.RolePath, Effects: []act.Kind{act.Read}},
		"/n":            {Role: policy.RolePlain},
	}}
	paths := rapid.SampledFrom([]string{"a", "link/c", "./a//b", "~", "a/../a", "nowhere/x", "file:///w/x%20y", f.root + "/w/a", "\u00fc"})
	rapid.Check(t, func(rt *rapid.T) {
		var b bytes.Buffer
		sp := func() { b.WriteString(spaces.Draw(rt, "space")) }
		list := func(name string, element func()) {
			fmt.Fprintf(&b, "%q", name)
			sp()
			b.WriteString(":[")
			for i := range rapid.IntRange(0, 4).Draw(rt, "n") {
				if i > 0 {
					b.WriteByte(',')
				}
				sp()
				element()
			}
			b.WriteString("],")
			sp()
		}
		str := func(s string) {
			q, _ := json.Marshal(s)
			b.Write(q)
		}
		sp()
		b.WriteByte('{')
		list("files", func() {
			b.WriteString(`{"text" :`)
			str(rapid.StringN(0, 20, 40).Filter(func(s string) bool { return !strings.Contains(s, "\x00") }).Draw(rt, "text"))
			b.WriteString(`,"path": `)
			str(paths.Draw(rt, "path"))
			b.WriteByte('}')
		})
		list("keep", func() { str(paths.Draw(rt, "keep")) })
		fmt.Fprintf(&b, `"n":%s}`, rapid.SampledFrom([]string{"1.0", "-0", "1e3", "0.25", "true", `"\u0041"`}).Draw(rt, "n"))
		sp()
		r, err := f.view.Call(Call{Tool: "s.t", Args: b.Bytes(), Annotation: ann, Dir: f.view.Workspace})
		if err != nil {
			rt.Fatalf("%s: %v", b.Bytes(), err)
		}
		given, kept := skeleton(rt, b.Bytes())
		dispatched, keptAfter := skeleton(rt, r.Bytes)
		if given != dispatched || !slices.Equal(kept, keptAfter) {
			rt.Fatalf("given %s, dispatched %s", b.Bytes(), r.Bytes)
		}
	})
}

// skeleton returns src without the values of paths that are resolved, and every
// other value as it is written.
func skeleton(t *rapid.T, src []byte) (string, []string) {
	var b strings.Builder
	var kept []string
	at := 0
	err := strictjson.Walk(src, func(v strictjson.Value) error {
		b.Write(src[at:v.Start])
		at = v.End
		if !strings.HasSuffix(v.Pointer, "/path") {
			kept = append(kept, string(v.Raw))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Write(src[at:])
	return b.String(), kept
}

// TestFS03FS05Swaps resolves a name that flips between a file and a link, below a
// directory that flips too: what comes out is one or the other, never a mixture,
// and what would be dispatched resolves to itself.
func TestFS03FS05Swaps(t *testing.T) {
	f := newGrove(t)
	w := f.root + "/w"
	stop, done := make(chan bool), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			err := errors.Join(
				os.WriteFile(w+"/tmp", nil, 0o600), os.Rename(w+"/tmp", w+"/x"),
				os.Symlink("../etc/secret", w+"/tmp"), os.Rename(w+"/tmp", w+"/x"),
				os.Rename(w+"/a", w+"/a2"), os.Rename(w+"/a2", w+"/a"))
			if err != nil {
				done <- err
				return
			}
		}
	}()
	allowed := []string{w + "/x", f.root + "/etc/secret", w + "/a/b/c", w + "/a"}
	for range 2000 {
		for _, name := range []string{"x", "link/c", "a"} {
			p, err := f.view.place(name, w)
			if err != nil {
				continue // refused: something vanished on the way
			}
			if !slices.Contains(allowed, p.path) {
				t.Fatalf("%s resolves to %s", name, p.path)
			}
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// configPieces are put together to files, most of them odd.
var configPieces = rapid.SampledFrom([]string{
	"[core]\n", "[Remote \"o\"]", "[remote \"o\"]\n", "[remote \"q\\\"x\"]", "[url \"https://a/\"]\n", "[url \"ssh://b/\"]\n", "[remote.o]\n", "[a b]\n",
	"url = https://x/y\n", "\tURL=gh:me/r\n", "pushurl = \"https://p/ #1\" ; c\n", "insteadOf = gh:\n", "pushInsteadOf = https://x\n",
	"insteadof = https://x/y\n", "key\n", "key = a\\\n b\n", "key = a \\\" b\\t\n", "key = \"a;b\" c # d\n", "key\\\n", "# c\n", "; d\n", "url =\n", "1x = y\n", "k = \\x\n",
	"\r\n", "k=v\r\n", "  ", "k = \"open\n", "k-1 = two  words  \n",
})

// TestGitReadsTheSame holds the reader of git's configuration and the rewriting
// of remotes against git itself.
func TestGitReadsTheSame(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs git")
		}
		t.Skip("this test needs git")
	}
	dir := t.TempDir()
	run := func(args ...string) (string, error) {
		cmd := exec.Command(git, args...)
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
		out, err := cmd.Output()
		return string(out), err
	}
	if _, err := run("init", "-q"); err != nil {
		t.Fatal(err)
	}
	initial, err := os.ReadFile(dir + "/.git/config")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(configPieces, 0, 12).Draw(rt, "pieces"), "")
		name := filepath.Join(dir, "cfg")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			rt.Fatal(err)
		}
		out, err := run("config", "-z", "--list", "-f", name)
		ours, line := parseGitConfig(text)
		if (err != nil) != (line > 0) {
			rt.Fatalf("%q: git says %v, we say line %d", text, err, line)
		}
		if err != nil {
			return
		}
		var list strings.Builder
		for _, s := range ours {
			for _, part := range []string{s.section, s.sub} {
				if part != "" {
					list.WriteString(part + ".")
				}
			}
			list.WriteString(s.key)
			if !s.bare {
				list.WriteString("\n" + s.value)
			}
			list.WriteByte(0)
		}
		if list.String() != out {
			rt.Fatalf("%q: git reads %q, we %q", text, out, list.String())
		}
		if err := os.WriteFile(dir+"/.git/config", append(slices.Clone(initial), text...), 0o600); err != nil {
			rt.Fatal(err)
		}
		compareRemotes(rt, ours, run)
	})
}

// compareRemotes compares the URLs of the remote o with what git would contact.
func compareRemotes(t *rapid.T, c gitConfig, run func(...string) (string, error)) {
	urls, pushURLs := c.list("remote", "o", "url"), c.list("remote", "o", "pushurl")
	if len(urls) == 0 || slices.Contains(append(urls, pushURLs...), "") {
		return
	}
	for _, push := range []bool{false, true} {
		args := []string{"remote", "get-url", "--all", "o"}
		if push {
			args = []string{"remote", "get-url", "--all", "--push", "o"}
		}
		out, err := run(args...)
		if err != nil {
			return // an unusable value: git refuses to work with it
		}
		want := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		got := c.rewrite(urls, pushURLs, push)
		if !push {
			want = want[:1]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("push %v: git contacts %q, we say %q (%v)", push, want, got, c)
		}
	}
}

func FuzzPath(f *testing.F) {
	g := newGrove(f)
	for _, s := range []string{"a", "../etc/secret", "link/../x", "up/up/w", "~/x", "~u", "file:///w/%2e%2e", "loop", "/proc/self/root", "a/b/c/d.txt/..", "$HOME/x", "nope/../x", "out/secret/", "e\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := g.view.place(s, g.view.Workspace)
		if err != nil {
			return
		}
		if path.Clean(p.path) != p.path || p.path[0] != '/' || hasControl(p.path) {
			t.Fatalf("%q resolves to %q", s, p.path)
		}
		again, err := g.view.place(p.path, "/")
		if err != nil || again.path != p.path || again.exists != p.exists || again.link != "" {
			t.Fatalf("%q resolves to %q, which resolves to %q, %v", s, p.path, again.path, err)
		}
		for _, k := range []act.Kind{act.Create, act.Delete, act.Move} {
			if _, err := (pathSubject{g.view, p}).on(k, true); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzGitConfig(f *testing.F) {
	f.Add("[remote \"o\"]\n\turl = \"a\\\n b\" # c\n[url \"x\"] insteadOf=y")
	f.Add("[a.b]\nk\n[core \"\\\"\"]\nx=\\t")
	f.Add("[a.b \t\"c\"]\nx = \\b\\n\\\\")
	f.Add("[a \"b\n\"]")
	f.Add("[a \"b\\\n\"]")
	f.Add("[a]\nx = \\")
	f.Add("[a]\nx = \x00")
	f.Fuzz(func(t *testing.T, s string) {
		c, line := parseGitConfig(s)
		if line < 0 || line > strings.Count(s, "\n")+2 || line > 0 && c != nil {
			t.Fatalf("%q: line %d", s, line)
		}
		for _, x := range c {
			if x.key == "" || strings.ToLower(x.key) != x.key {
				t.Fatalf("%q gives %+v", s, x)
			}
		}
		c.rewrite(c.list("remote", "o", "url"), c.list("remote", "o", "pushurl"), true)
	})
}

func FuzzRemote(f *testing.F) {
	g := newGrove(f)
	for _, s := range []string{"git@h:p", "https://u@h:443/a.git", "ssh://-o/x", "ext::x", "file:///w", "[::1]:x", "u@[h:1]:p", "../x", "git+ssh://h/~u/x", "https://h/%2e%2e/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := g.view.remoteURL(s, g.view.Workspace)
		if err != nil {
			return
		}
		if strings.HasPrefix(u.dispatch, "-") || strings.Contains(u.judged, "#") || hasControl(u.judged) {
			t.Fatalf("%q gives %+v", s, u)
		}
		again, err := g.view.remoteURL(u.dispatch, "/")
		if err != nil || again.judged != u.judged || again.dispatch != u.dispatch {
			t.Fatalf("%q gives %+v, which gives %+v, %v", s, u, again, err)
		}
	})
}

func FuzzCommand(f *testing.F) {
	g := newGrove(f)
	for _, s := range []string{"go a\\\nb \"c\\\nd\"", "go |& go", "mksh |&", "go test", "sh -c 'go x'", "cd a && go x > y", "r\\m x", "$(x)", "a | b & c", "if go; then sh -c \"go\"; fi", "go <<E\nx\nE", "git -C a status", "{a,b}", "go ~/x 'a'\"b\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := g.view.commandLine(s, g.view.Workspace)
		if err != nil {
			return
		}
		for _, e := range c.effects {
			var argv []string
			if e.Kind == act.Execute && (json.Unmarshal([]byte(e.Resource.Text), &argv) != nil || len(argv) == 0 || argv[0][0] != '/') {
				t.Fatalf("%q gives %s", s, e)
			}
		}
		out := c.rewritten()
		if out == "" {
			return
		}
		again, err := g.view.commandLine(out, g.view.Workspace)
		if err != nil || fmt.Sprint(again.effects) != fmt.Sprint(c.effects) {
			t.Fatalf("%q is rewritten to %q, which gives %v, %v; want %v", s, out, again.effects, err, c.effects)
		}
	})
}

func FuzzArguments(f *testing.F) {
	g := newGrove(f)
	ann := &policy.ToolAnnotation{Args: map[string]policy.Arg{
		"/p": {Role: policy.RolePath, Effects: []act.Kind{act.Create}, Default: ".", Real: true}, "/q/*/r": {Role: policy.RolePath, Effects: []act.Kind{act.Read}, Real: true},
		"/q/*": {Role: policy.RolePlain}, "/b": {Role: policy.RolePlain, Bool: true}, "/a~2~1": {Role: policy.RoleRef}, "/c": {Role: policy.RoleCommand, Effects: []act.Kind{act.Execute}, Real: true},
	}}
	for _, s := range []string{`{"p":"a"}`, `{"q":[{"r":"link"},{"x":1}]}`, `{ }`, ``, `{"a*/":"x","b":true}`, `{"c":["go","x"]}`, `{"c":"go","p":null}`, `[]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c := Call{Tool: "s.t", Args: []byte(s), Annotation: ann, Dir: g.view.Workspace}
		r, err := g.view.Call(c)
		if err != nil {
			return
		}
		if err := strictjson.Check(r.Bytes); err != nil || len(r.Effects) == 0 {
			t.Fatalf("%q is dispatched as %q: %v", s, r.Bytes, err)
		}
		c.Args = r.Bytes
		again, err := g.view.Call(c)
		if err != nil || string(again.Bytes) != string(r.Bytes) || fmt.Sprint(again.Effects) != fmt.Sprint(r.Effects) {
			t.Fatalf("%q gives %v %q, which gives %v %q, %v", s, r.Effects, r.Bytes, again.Effects, again.Bytes, err)
		}
	})
}

// BenchmarkPath resolves and describes a path of six components.
func BenchmarkPath(b *testing.B) {
	g := newGrove(b)
	deep := g.root
	for strings.Count(deep, "/") < 5 {
		deep += "/work"
	}
	if err := errors.Join(os.MkdirAll(deep, 0o755), os.WriteFile(deep+"/e.txt", nil, 0o600), os.Symlink(deep, g.root+"/s")); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ name, path string }{{"plain", deep + "/e.txt"}, {"missing", deep + "/new.txt"}, {"link", g.root + "/s/e.txt"}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, err := g.view.place(c.path, "/")
				if err != nil {
					b.Fatal(err)
				}
				if _, err := (pathSubject{g.view, p}).on(act.Read, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCall(b *testing.B) {
	g := newGrove(b)
	ann := &policy.ToolAnnotation{Args: map[string]policy.Arg{"/path": {Role: policy.RolePath, Effects: []act.Kind{act.Read}, Real: true}, "/head": {Role: policy.RolePlain}}}
	c := Call{Tool: "s.t", Args: []byte(`{"path":"a/b/c/d.txt","head":3}`), Annotation: ann, Dir: g.view.Workspace}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.view.Call(c); err != nil {
			b.Fatal(err)
		}
	}
}
