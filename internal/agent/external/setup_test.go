package external

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

func editorOf(t testing.TB, name string) Editor {
	t.Helper()
	all, err := Editors(SetupOptions{Home: "/home/u", Config: "/home/u/.config", Command: "/opt/a b/ringfence"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("no editor %q", name)
	return Editor{}
}

// TestSetups: a file with a change made is what the case says; made again it stays; and
// without the change nothing of ours is in it.
func TestSetups(t *testing.T) {
	a, err := txtar.ParseFile("testdata/setups.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(a.Files); i += 2 {
		t.Run(a.Files[i].Name, func(t *testing.T) {
			var name string
			var n int
			if _, err := fmt.Sscanf(a.Files[i].Name, "%s %d", &name, &n); err != nil {
				t.Fatal(err)
			}
			s := editorOf(t, name).Changes[n]
			got, err := s.Apply(a.Files[i].Data)
			if err != nil {
				got = []byte("error: " + err.Error() + "\n")
			}
			if want := a.Files[i+1].Data; !bytes.Equal(got, want) {
				t.Fatalf("got\n%swant\n%s", got, want)
			}
			if err != nil {
				return
			}
			if again, err := s.Apply(got); err != nil || !bytes.Equal(again, got) {
				t.Errorf("made again, %v:\n%s", err, again)
			}
			without, err := s.Remove(got)
			if err != nil || bytes.Contains(without, []byte("ringfence\"")) || bytes.Contains(without, []byte("hook ")) {
				t.Errorf("without it, %v:\n%s", err, without)
			}
			if bytes.Contains(a.Files[i].Data, []byte("// ")) && bytes.Count(without, []byte("// ")) != bytes.Count(a.Files[i].Data, []byte("// ")) {
				t.Errorf("comments are lost:\n%s", without)
			}
		})
	}
}

// TestSetupsReadBack: what a program is set up with is what it is read to have.
func TestSetupsReadBack(t *testing.T) {
	for _, name := range Names() {
		for _, s := range editorOf(t, name).Changes {
			if s.Hooks {
				continue
			}
			data, err := s.Apply(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range Places(name, "/home/u", "/home/u/.config", project) {
				if p.File != s.File {
					continue
				}
				entries, err := p.Read(data, project)
				if err != nil || len(entries) != 1 || entries[0].Name != "ringfence" || !strings.Contains(entries[0].Problem, "ringfence itself") {
					t.Errorf("%s: %+v, %v", name, entries, err)
				}
			}
		}
	}
}

func FuzzSetups(f *testing.F) {
	a, err := txtar.ParseFile("testdata/setups.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range a.Files {
		f.Add(file.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"claude", "cursor", "codex"} {
			for _, s := range editorOf(t, name).Changes {
				out, err := s.Apply(data)
				if err != nil {
					continue
				}
				again, err := s.Apply(out)
				if err != nil || !bytes.Equal(again, out) {
					t.Fatalf("%s: made again, %v\n%s\n%s", s.File, err, out, again)
				}
				if _, err := s.Remove(out); err != nil {
					t.Fatalf("%s: %v\n%s", s.File, err, out)
				}
			}
		}
	})
}
