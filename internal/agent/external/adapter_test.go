package external

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

func adapter(t testing.TB, name string) Adapter {
	t.Helper()
	a, ok, err := Lookup(name)
	if err != nil || !ok {
		t.Fatalf("no adapter %q, %v", name, err)
	}
	return a
}

// lines runs check for each line of a file.
func lines[T any](t *testing.T, file string, check func(t *testing.T, c T)) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var c T
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		t.Run("", func(t *testing.T) { check(t, c) })
	}
}

func TestFind(t *testing.T) {
	type world struct {
		What, Agent, Want, Error string
		Path, Links, Shebang     map[string]string
		Reads, Search            []string
	}
	lines(t, "testdata/finds.jsonl", func(t *testing.T, c world) {
		p, err := adapter(t, c.Agent).Find(Look{
			Home: "/home/u",
			Path: func(name string) string { return c.Path[name] },
			Real: func(path string) (string, error) {
				if real, ok := c.Links[path]; ok {
					return real, nil
				}
				return "", errors.New("not there")
			},
			Shebang: func(path string) string { return c.Shebang[path] },
		})
		if c.Error != "" {
			if err == nil || !strings.Contains(err.Error(), c.Error) {
				t.Errorf("%s: %v", c.What, err)
			}
			return
		}
		if err != nil || p.Path != c.Want || !slices.Equal(p.ReadOnly, c.Reads) || !slices.Equal(p.Search, c.Search) {
			t.Errorf("%s: %+v, %v", c.What, p, err)
		}
	})
}

func TestArguments(t *testing.T) {
	type arguments struct {
		Agent, ID, Want, Transcript string
		Typed                       []string
		Only                        bool
	}
	lines(t, "testdata/arguments.jsonl", func(t *testing.T, c arguments) {
		a := adapter(t, c.Agent)
		if got := strings.Join(a.Argv(Values{Home: "/home/u", ID: c.ID}, c.Only, c.Typed), "|"); got != c.Want {
			t.Errorf("%s %q: got  %s\nwant %s", c.Agent, c.Typed, got, c.Want)
		}
		got, ok := a.Transcribed(c.Typed)
		if ok != (c.Transcript != "") || ok && strings.Join(got, "|") != c.Transcript {
			t.Errorf("%s %q: transcribed %v: %s", c.Agent, c.Typed, ok, strings.Join(got, "|"))
		}
	})
}

// TestAdaptersWhole: what every adapter must say, and a file that it makes is read back by
// its own form and names our server with its token; no credential is taken over.
func TestAdaptersWhole(t *testing.T) {
	all, err := List()
	if err != nil || len(all) < 5 {
		t.Fatalf("%d adapters, %v", len(all), err)
	}
	v := Values{Home: "/home/u", Workspace: "/home/u/w", URL: "http://127.0.0.1:1/mcp", Token: "the-token", Key: "sk-of-nobody-and-nothing-at-all"}
	for _, a := range all {
		if a.Title == "" || a.Provider == "" || len(a.Programs) == 0 || len(a.Quiet) == 0 || len(a.Credentials) == 0 || a.Arguments.OneShot == nil ||
			a.Arguments.Continue == nil || a.Arguments.Resume == nil || a.Arguments.Transcript == nil || a.Arguments.Plain == nil || a.Tested == "" && a.Quirks == nil {
			t.Errorf("%s: something is left out: %+v", a.Name, a)
		}
		server := false
		for _, f := range a.Files {
			if slices.Contains(a.Instructions, f.Path) || slices.Contains(a.Credentials, f.Path) && !f.NeedsKey {
				t.Errorf("%s: %s is made and taken over", a.Name, f.Path)
			}
			first, err := f.Make(nil, nil, v, false)
			if err != nil {
				t.Fatal(err)
			}
			server = server || bytes.Contains(first, []byte("Bearer the-token"))
			only, err := f.Make(first, nil, v, true)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := f.Make(only, nil, v, false); err != nil || !bytes.Equal(again, first) {
				t.Errorf("%s: %s keeps that its own tools were off, %v:\n%s\n%s", a.Name, f.Path, err, first, again)
			}
		}
		if !server {
			t.Errorf("%s does not know our server", a.Name)
		}
	}
}

// TestMakeTakesNoKey: of the person's settings it takes what it says, without keys, and no
// servers but ours.
func TestMakeTakesNoKey(t *testing.T) {
	const theirs = `model = "m"
notify = ["sh", "-c", "x"]
[model_providers.p]
name = "p"
base_url = "https://p.example/v1"
env_key = "P_KEY"
experimental_bearer_token = "hunter2"
http_headers = {Authorization = "hunter2"}
[mcp_servers.other]
command = "other"
`
	got, err := adapter(t, "codex").Files[0].Make([]byte("[mcp_servers.evil]\ncommand = \"evil\"\n"), []byte(theirs), Values{Token: "the-token"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`model = "m"`: true, "https://p.example/v1": true, "P_KEY": true, "the-token": true,
		"hunter2": false, "other": false, "evil": false, "notify": false,
	} {
		if bytes.Contains(got, []byte(text)) != want {
			t.Errorf("%q is there: %v, in\n%s", text, !want, got)
		}
	}
}

func TestSteps(t *testing.T) {
	a, err := txtar.ParseFile("testdata/steps.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(a.Files); i += 2 {
		var got bytes.Buffer
		enc := json.NewEncoder(&got)
		for line := range bytes.Lines(a.Files[i].Data) {
			for _, s := range adapter(t, a.Files[i].Name).Steps(line) {
				if err := enc.Encode(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		if want := a.Files[i+1].Data; !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: got\n%swant\n%s", a.Files[i].Name, &got, want)
		}
	}
}

func FuzzSteps(f *testing.F) {
	a, err := txtar.ParseFile("testdata/steps.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range a.Files {
		for line := range bytes.Lines(file.Data) {
			f.Add(line)
		}
	}
	all, err := List()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, a := range all {
			for _, s := range a.Steps(line) {
				if len(s.Text) > maxStep || s.Kind == "" {
					t.Fatalf("%s: %+v", a.Name, s)
				}
			}
		}
	})
}
