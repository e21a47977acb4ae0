package git

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bareRunner runs commands without a box, and keeps what it ran.
type bareRunner struct{ ran []Command }

func (b *bareRunner) Run(ctx context.Context, c Command) (Result, error) {
	b.ran = append(b.ran, c)
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append([]string{}, c.Env...)
	cmd.Dir = c.Dir
	cmd.Stdin = bytes.NewReader(c.Stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	res := Result{Stdout: out.Bytes(), Stderr: errs.Bytes()}
	if int64(len(res.Stdout)) > c.MaxOutput {
		res.Stdout, res.Truncated = res.Stdout[:c.MaxOutput], true
	}
	if e := (*exec.ExitError)(nil); errors.As(err, &e) && ctx.Err() == nil {
		res.Code, err = e.ExitCode(), nil
	}
	return res, err
}

func gitProgram(t testing.TB) string {
	t.Helper()
	p, err := exec.LookPath("git")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("needs git")
		}
		t.Skip("needs git")
	}
	return p
}

// realTemp is a temporary directory without symbolic links in its path.
func realTemp(t testing.TB) string {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// connect serves top over pipes and returns a client of it.
func connect(t testing.TB, top string) (*mcp.ClientSession, *bareRunner) {
	t.Helper()
	run := &bareRunner{}
	o := Options{Roots: []string{top}, Run: run, Program: gitProgram(t), Name: "Someone", Email: "someone@example.com", LocalRemotes: true}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, inR, outW, o) }()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		cancel()
	})
	return c, run
}

func call(t testing.TB, c *mcp.ClientSession, tool string, args any) (text string, data any, failed bool) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	for _, b := range res.Content {
		text += b.(*mcp.TextContent).Text
	}
	return text, res.StructuredContent, res.IsError
}

// sh runs a script in dir with a git that reads nobody's configuration.
func sh(t testing.TB, dir, script string) string {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b", "LC_ALL=C",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%s\n%v", script, out, err)
	}
	return string(out)
}

// eachJSON calls f with every line of a JSON Lines file that is no comment.
func eachJSON(t *testing.T, name string, f func(line int, b []byte)) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; sc.Scan(); n++ {
		if l := sc.Bytes(); len(l) > 0 && l[0] != '#' {
			f(n, l)
		}
	}
}

// covers says where got lacks what want asks for: members and items that want
// names; a string that ends in "…" asks for a beginning.
func covers(want, got any, at string) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, want an object", at, got)
		}
		for k, v := range w {
			gv, ok := g[k]
			if v == "<absent>" {
				if ok {
					return fmt.Sprintf("%s.%s is %v, want none", at, k, gv)
				}
				continue
			}
			if diff := covers(v, gv, at+"."+k); diff != "" {
				return diff
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s is %v, want %v", at, got, want)
		}
		for i := range w {
			if diff := covers(w[i], g[i], fmt.Sprintf("%s[%d]", at, i)); diff != "" {
				return diff
			}
		}
		return ""
	case string:
		if start, ok := strings.CutSuffix(w, "…"); ok {
			if g, ok := got.(string); ok && strings.Contains(g, start) {
				return ""
			}
		}
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("%s is %#v, want %#v", at, got, want)
	}
	return ""
}

// story plays a file of steps: {"sh":…} as a person would work, {"tool":…} as an
// agent. $T is the top of it all.
func story(t *testing.T, name string) {
	top := realTemp(t)
	c, _ := connect(t, top)
	eachJSON(t, name, func(line int, b []byte) {
		var k struct {
			Sh, Tool, Error string
			Args            json.RawMessage
			Want            any
		}
		b = bytes.ReplaceAll(b, []byte("$T"), []byte(top))
		if err := json.Unmarshal(b, &k); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		if k.Sh != "" {
			sh(t, top, k.Sh)
			return
		}
		text, data, failed := call(t, c, k.Tool, k.Args)
		switch {
		case failed != (k.Error != ""), !strings.Contains(text, k.Error):
			t.Fatalf("line %d: %s %s: error %v: %s", line, k.Tool, k.Args, failed, text)
		case k.Want != nil:
			if diff := covers(k.Want, data, ""); diff != "" {
				t.Errorf("line %d: %s %s: %s\n%s", line, k.Tool, k.Args, diff, text)
			}
		}
	})
}

func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/story-*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".jsonl"), func(t *testing.T) { story(t, f) })
	}
}

// The names, arguments and hints are those of the well-known server. A remote may
// also be a URL here.
func TestDefinitions(t *testing.T) {
	type tool struct {
		Name        string
		Annotations map[string]any
		InputSchema map[string]any
	}
	var theirs []tool
	b, err := os.ReadFile("testdata/npm-tools.json")
	if err == nil {
		err = json.Unmarshal(b, &theirs)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, _ := connect(t, realTemp(t))
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Tools) != len(theirs) {
		t.Errorf("%d tools, want %d", len(list.Tools), len(theirs))
	}
	ours := map[string]tool{}
	for _, o := range list.Tools {
		var x tool
		b, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(b, &x)
		}
		if err != nil {
			t.Fatal(err)
		}
		ours[x.Name] = x
	}
	for _, want := range theirs {
		got := ours[want.Name]
		plain(got.InputSchema)
		plain(want.InputSchema)
		if !reflect.DeepEqual(got.InputSchema, want.InputSchema) {
			t.Errorf("%s takes\n%v\nwant\n%v", want.Name, got.InputSchema, want.InputSchema)
		}
		if got.Annotations["readOnlyHint"] == true != (want.Annotations["readOnlyHint"] == true) {
			t.Errorf("%s has hints %v, want %v", want.Name, got.Annotations, want.Annotations)
		}
	}
}

// plain takes out of a schema what is not about names and types.
func plain(s map[string]any) {
	if p, ok := s["properties"].(map[string]any); ok {
		if r, ok := p["remote"].(map[string]any); ok {
			delete(r, "pattern")
			delete(r, "maxLength")
		}
	}
	for k, v := range s {
		switch v := v.(type) {
		case map[string]any:
			plain(v)
		case []any:
			for _, x := range v {
				if m, ok := x.(map[string]any); ok {
					plain(m)
				}
			}
		case string:
			if k == "description" {
				delete(s, k)
			}
		}
	}
}

func TestRefusesToServe(t *testing.T) {
	good := Options{Roots: []string{t.TempDir()}, Run: &bareRunner{}, Program: "/usr/bin/git"}
	for name, spoil := range map[string]func(*Options){
		"no root":          func(o *Options) { o.Roots = nil },
		"relative root":    func(o *Options) { o.Roots = []string{"."} },
		"missing root":     func(o *Options) { o.Roots = []string{"/nonexistent"} },
		"no runner":        func(o *Options) { o.Run = nil },
		"relative program": func(o *Options) { o.Program = "git" },
	} {
		o := good
		spoil(&o)
		if _, err := newServer(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	o := Options{Roots: []string{b.TempDir()}, Run: &bareRunner{}, Program: "/usr/bin/git"}
	for b.Loop() {
		s, err := newServer(o)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.mcp(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStatus(b *testing.B) {
	top := realTemp(b)
	sh(b, top, "git init -q -b main . && echo a >a && git add . && git commit -qm a")
	s, err := newServer(Options{Roots: []string{top}, Run: &bareRunner{}, Program: gitProgram(b)})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.status(b.Context(), statusArgs{Path: top}); err != nil {
			b.Fatal(err)
		}
	}
}
