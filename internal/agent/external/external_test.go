package external

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

const project = "/work/project"

func placeOf(t *testing.T, name string) Place {
	t.Helper()
	places := Places(name, "/home/u", "/home/u/.config", project)
	if len(places) == 0 {
		t.Fatalf("no program %q", name)
	}
	return places[0]
}

func TestForms(t *testing.T) {
	a, err := txtar.ParseFile("testdata/forms.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Files)%2 != 0 {
		t.Fatal("a section without its entries")
	}
	for pair := range slices.Chunk(a.Files, 2) {
		t.Run(pair[0].Name, func(t *testing.T) {
			name, _, _ := strings.Cut(pair[0].Name, " ")
			entries, err := placeOf(t, name).Read(pair[0].Data, project)
			var got strings.Builder
			if err != nil {
				fmt.Fprintf(&got, "error: %v\n", err)
			}
			for _, e := range entries {
				fmt.Fprint(&got, e.Name, "\t")
				if e.Problem != "" {
					fmt.Fprint(&got, "problem: ", e.Problem)
				}
				fmt.Fprintf(&got, "%s", e.Raw)
				if len(e.Secret) > 0 {
					fmt.Fprint(&got, " secret ", strings.Join(e.Secret, " "))
				}
				fmt.Fprintln(&got)
			}
			if got.String() != string(pair[1].Data) {
				t.Errorf("got\n%swant\n%s", got.String(), pair[1].Data)
			}
		})
	}
}

// TestPlaces: every program has a list of its person and one of a project, at paths that
// do not depend on where we are.
func TestPlaces(t *testing.T) {
	for _, name := range Names() {
		var own, projects int
		for _, p := range Places(name, "/home/u", "/home/u/.config", project) {
			if !filepath.IsAbs(p.File) || p.Project != strings.HasPrefix(p.File, project) {
				t.Errorf("%s: %+v", name, p.File)
			}
			if p.Project {
				projects++
			} else {
				own++
			}
		}
		if own == 0 || projects != 1 {
			t.Errorf("%s has %d lists of a person and %d of a project", name, own, projects)
		}
	}
	if Places("emacs", "/", "/", "/") != nil {
		t.Error("a program that is not known has lists")
	}
}

// FuzzRead (X1, X2): whatever a file holds, an entry is JSON or has a problem.
func FuzzRead(f *testing.F) {
	a, err := txtar.ParseFile("testdata/forms.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range a.Files {
		for i := range Names() {
			f.Add(uint8(i), file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, form uint8, data []byte) {
		names := Names()
		p := placeOf(t, names[int(form)%len(names)])
		entries, err := p.Read(data, project)
		if err != nil && len(entries) > 0 {
			t.Errorf("entries and an error: %v", err)
		}
		for _, e := range entries {
			if (e.Raw == nil) == (e.Problem == "") || e.Raw != nil && !json.Valid(e.Raw) {
				t.Errorf("%q: %q, problem %q", e.Name, e.Raw, e.Problem)
			}
		}
	})
}
