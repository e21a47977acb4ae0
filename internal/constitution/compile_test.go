package constitution

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"ringfence/internal/policy"
)

// TestCompile compiles the documents of testdata/compile. Each file holds
// "constitution.md", and what it becomes: "clauses", "findings", and where the
// file has it, "policy.cedar". A name that begins with "lower-" is compiled as a
// layer below the granting one.
func TestCompile(t *testing.T) {
	files, err := filepath.Glob("testdata/compile/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			src, got := compileArchive(a, filepath.Base(file))
			changed := false
			for i, f := range a.Files {
				want, ok := got[f.Name]
				if !ok || string(f.Data) == want {
					continue
				}
				if !*update {
					t.Errorf("%s of %s\n got:\n%s\nwant:\n%s", f.Name, src, want, f.Data)
				}
				a.Files[i].Data, changed = []byte(want), true
			}
			if *update && changed {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// compileArchive returns what the constitution in a becomes, by name of file.
func compileArchive(a *txtar.Archive, name string) (src string, got map[string]string) {
	var text []byte
	for _, f := range a.Files {
		if f.Name == "constitution.md" {
			text = []byte(strings.NewReplacer("␉", "\t", "␠", "\u200b").Replace(string(f.Data)))
		}
	}
	o := Options{
		Granting: !strings.HasPrefix(name, "lower-"), Personas: []string{"reviewer", "planner"},
		Lists: map[string]policy.List{"docs-sites": {Members: []string{"docs.example.org"}}},
		Tools: []string{"filesystem.read_file", "git.git_push", "git.git_status", "git.git_diff", "memory.read_graph"},
	}
	s := Source{Name: "constitution.md", Text: text}
	if !o.Granting {
		s.Layer = "user"
	}
	c, err := Compile(s, o)
	got = map[string]string{}
	if bad, ok := errors.AsType[*Errors](err); ok {
		got["clauses"], got["findings"] = "", findingLines(bad.Findings)
		return s.Name, got
	}
	if err != nil {
		got["findings"] = err.Error()
		return s.Name, got
	}
	var b strings.Builder
	for _, cl := range c.Clauses {
		fmt.Fprintf(&b, "%s %d:%d %s\n", cl.ID, cl.Line, cl.Column, brief(cl))
	}
	got["clauses"], got["findings"], got["policy.cedar"] = b.String(), findingLines(c.Findings), string(c.Cedar)
	return s.Name, got
}

func findingLines(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%d:%d %s: %s", f.Line, f.Column, f.Severity, f.Message)
		if f.Suggestion != "" {
			fmt.Fprintf(&b, " (try: %s)", f.Suggestion)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
