package mediator

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestParseServers reads the files of testdata/servers: a section "in" and then
// "error", or "warnings" and "out".
func TestParseServers(t *testing.T) {
	files, err := filepath.Glob("testdata/servers/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"HOME": "/home/u", "EMPTY": "", "ODD": "${HOME}"}[name]
		return v, ok
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var in, name string
		for _, f := range a.Files {
			text := strings.TrimSpace(string(f.Data))
			kind, rest, _ := strings.Cut(f.Name, " ")
			if kind == "in" {
				in, name = text, rest
				continue
			}
			servers, warnings, err := ParseServers([]byte(in), lookup)
			got := strings.Join(warnings, "\n")
			switch {
			case kind == "error" && err != nil:
				got = err.Error()
			case err != nil:
				got = "error: " + err.Error()
			case kind == "out":
				got = describe(servers)
			}
			if got != text {
				t.Errorf("%s: %s: %s is\n%s\nwant\n%s", file, name, kind, got, text)
			}
		}
	}
	if _, _, err := ParseServers([]byte(`{"mcpServers":{"a":{"command":"${HOME}/x"}}}`), nil); err == nil {
		t.Error("variables are read without a lookup")
	}
}

func describe(servers []Server) string {
	var b strings.Builder
	for _, s := range servers {
		j, _ := json.Marshal(s)
		fmt.Fprintf(&b, "%s\n", j)
	}
	return strings.TrimSpace(b.String())
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"fs": "", "a-b_c9": "", "": "no name", "a__b": `"a_b" can`, "a_": `"a" can`, "_a": `"a" can`, "my server": `"my-server" can`,
		"github.com/x": `"github-com-x" can`, "é": "cannot be", strings.Repeat("a", 41): `"` + strings.Repeat("a", 40) + `" can`,
	} {
		err := CheckName(name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("CheckName(%q) = %v, want %q", name, err, want)
		}
	}
}

func FuzzParseServers(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"a":{"command":"x","args":["${HOME}"],"env":{"K":"v"},"ringfence":{"timeout":"5s","paths":[]}}}}`))
	f.Add([]byte(`{"mcpServers":{"a":{"ringfence":{"builtin":"git"},"disabled":true}}}`))
	f.Add([]byte(`{"mcpServers":{"a":{"url":"http://localhost/","type":"sse","headers":{"X-Key":"${HOME}"},"ringfence":{"quota":{"calls":1}}}}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		servers, _, err := ParseServers(src, func(string) (string, bool) { return "", false })
		if err != nil {
			if !json.Valid(src) {
				return
			}
			var line, column int
			if n, _ := fmt.Sscanf(err.Error(), "%d:%d:", &line, &column); n != 2 || line < 1 || column < 1 {
				t.Fatalf("no place in %q", err)
			}
			return
		}
		if !json.Valid(src) {
			t.Fatalf("accepts %q", src)
		}
		for _, s := range servers {
			if err := CheckName(s.Name); err != nil || (s.Command == "") == (s.Ringfence.Builtin == "" && s.URL == "") {
				t.Fatalf("%+v, %v", s, err)
			}
		}
	})
}

// Property: a suggested name is a good name, and routes back to its server.
func FuzzCheckName(f *testing.F) {
	f.Add("my server", "read")
	f.Add("a_", "_x__y")
	f.Fuzz(func(t *testing.T, name, tool string) {
		if err := CheckName(name); err != nil {
			if _, after, ok := strings.Cut(err.Error(), "name of a server; "); ok {
				var good string
				if _, err := fmt.Sscanf(after, "%q can", &good); err != nil || CheckName(good) != nil {
					t.Fatalf("%q suggests %q", name, after)
				}
			}
			return
		}
		a, b := &server{cfg: Server{Name: name}}, &server{cfg: Server{Name: "other"}}
		m := &Mediator{servers: []*server{a, b}, byName: map[string]*server{name: a}}
		if s, got := m.route(m.wireName(a, tool)); s != a || got != tool {
			t.Fatalf("%q and %q become %q", name, tool, got)
		}
	})
}

// TestFailed: what a server answered with an error, and what was not reached, is said without
// its JSON.
func TestFailed(t *testing.T) {
	far := func([]byte) int64 { return 0 }
	for body, c := range map[string]struct {
		about func([]byte) int64
		want  string
	}{
		`{"code":-32000,"message":"it could not be reached"}`: {far, `initialize came to an error: "it could not be reached"`},
		`{"message":"no\u001b","code":-32000}`:                {nil, `initialize was answered with the error -32000: "no\x1b"`},
		`{"code":"x","message":"no"}`:                         {far, `initialize was answered with the error "{\"code\":\"x\",\"message\":\"no\"}"`},
		`{"code":-32000}`:                                     {far, `initialize was answered with the error "{\"code\":-32000}"`},
	} {
		l := &link{proc: &Process{About: c.about}}
		if err := l.failed("initialize", []byte(body)); err.Error() != c.want || !errors.Is(err, errAnswer) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
