package filesystem

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// connect serves roots over pipes and returns a client of it.
func connect(t testing.TB, roots ...string) *mcp.ClientSession {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, inR, outW, Options{Roots: roots}) }()
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
	return c
}

// call returns the text of a result, its blocks one after the other.
func call(t testing.TB, c *mcp.ClientSession, tool string, args any) (text string, failed bool) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	for _, b := range res.Content {
		switch b := b.(type) {
		case *mcp.TextContent:
			text += b.Text
		default:
			j, err := json.Marshal(b)
			if err != nil {
				t.Fatal(err)
			}
			text += "<" + string(j) + ">"
		}
	}
	return text, res.IsError
}

// fixture builds what testdata/fixture.json describes and returns its top.
func fixture(t testing.TB) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Dirs         []string
		Files, Links map[string]string
	}
	b, err := os.ReadFile("testdata/fixture.json")
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	for _, d := range f.Dirs {
		err = errors.Join(err, os.MkdirAll(filepath.Join(top, d), 0o777))
	}
	for n, content := range f.Files {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(filepath.Join(top, n)), 0o777), os.WriteFile(filepath.Join(top, n), []byte(content), 0o644))
	}
	for n, target := range f.Links {
		err = errors.Join(err, os.Symlink(strings.ReplaceAll(target, "$T", top), filepath.Join(top, n)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return top
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

func TestLikeTheWellKnownServer(t *testing.T) {
	top := fixture(t)
	c := connect(t, filepath.Join(top, "root"))
	eachJSON(t, "testdata/npm.jsonl", func(line int, b []byte) {
		var k struct {
			Tool, Text string
			Ours       *string
			Args       json.RawMessage
			Error      bool
		}
		if err := json.Unmarshal(b, &k); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		want := k.Text
		if k.Ours != nil {
			want = *k.Ours
		}
		got, failed := call(t, c, k.Tool, json.RawMessage(strings.ReplaceAll(string(k.Args), "$T", top)))
		got = strings.ReplaceAll(got, top, "$T")
		// The client decodes and encodes images; the order of members is not ours.
		if strings.HasPrefix(want, "<{") {
			want = strings.ReplaceAll(strings.ReplaceAll(want, `": `, `":`), `", "`, `","`)
			got = strings.Replace(got, `"mimeType":"image/png","data":"bm90IHJlYWxseSBhIHBpY3R1cmU="`, `"data":"bm90IHJlYWxseSBhIHBpY3R1cmU=","mimeType":"image/png"`, 1)
		}
		if failed != k.Error || !failed && got != want {
			t.Errorf("line %d: %s %s\ngot  (error %v) %q\nwant (error %v) %q", line, k.Tool, k.Args, failed, got, k.Error, want)
		}
		if strings.Contains(got, "SECRET") {
			t.Errorf("line %d: the secret came out", line)
		}
	})
	if b, _ := os.ReadFile(filepath.Join(top, "secret/key")); string(b) != "SECRET\n" {
		t.Errorf("the secret is now %q", b)
	}
	if list, _ := os.ReadDir(filepath.Join(top, "secret")); len(list) != 1 {
		t.Errorf("made outside: %v", list)
	}
}

// The names, arguments and hints are those of the well-known server; delete_file
// is the one tool of our own.
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
	c := connect(t, t.TempDir())
	list, err := c.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]tool{}
	var names []string
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
		names = append(names, x.Name)
		if o.Description == "" || o.Title == "" {
			t.Errorf("%s is not described", o.Name)
		}
	}
	if len(names) != len(theirs)+1 || !slices.Contains(names, "delete_file") {
		t.Errorf("tools: %v", names)
	}
	for _, want := range theirs {
		got := ours[want.Name]
		plain(got.InputSchema)
		delete(got.InputSchema, "additionalProperties") // we refuse unknown arguments
		plain(want.InputSchema)
		if !reflect.DeepEqual(got.InputSchema, want.InputSchema) {
			t.Errorf("%s takes\n%v\nwant\n%v", want.Name, got.InputSchema, want.InputSchema)
		}
		if got.Annotations["readOnlyHint"] != want.Annotations["readOnlyHint"] {
			t.Errorf("%s has hints %v, want %v", want.Name, got.Annotations, want.Annotations)
		}
	}
}

// plain takes out of a schema what is not about names and types.
func plain(s map[string]any) {
	delete(s, "description")
	for k, v := range s {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "additionalProperties")
			if k == "description" {
				continue
			}
			plain(v)
		case []any:
			_ = v
		}
	}
}

// Unknown, doubled and ill-typed arguments are refused.
func TestStrictArguments(t *testing.T) {
	dir := t.TempDir()
	c := connect(t, dir)
	for _, args := range []string{
		`{"path":"a","content":"x","mode":7}`, `{"Path":"a","content":"x"}`, `{"path":["a"],"content":"x"}`,
		`{"path":"a","path":"b","content":"x"}`, `{"path":"a\u0000","content":"x"}`, `{"path":"","content":"x"}`,
	} {
		if text, failed := call(t, c, "write_file", json.RawMessage(args)); !failed {
			t.Errorf("%s: %s", args, text)
		}
	}
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("made: %v", list)
	}
}

func TestRefusesToServe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"no root": {}, "relative": {Roots: []string{"."}}, "missing": {Roots: []string{"/nonexistent"}}, "file": {Roots: []string{file}},
	} {
		if err := Serve(t.Context(), io.NopCloser(strings.NewReader("")), nopWriter{}, o); err == nil {
			t.Errorf("%s: served", name)
		}
	}
}

type nopWriter struct{}

func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nopWriter) Close() error                { return nil }

// From nothing to the answer to the first call, without the process around it.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := open(Options{Roots: []string{dir}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.mcp(); err != nil {
			b.Fatal(err)
		}
		s.close()
	}
}
