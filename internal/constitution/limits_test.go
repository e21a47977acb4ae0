package constitution

import (
	"strings"
	"testing"
)

// TestBounds refuses what is too long or cannot be read, with one clear error.
func TestBounds(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"long document": {strings.Repeat("The agent may push.\n\n", 20_000), "longer than 256 KiB"},
		"long sentence": {"The agent may run " + strings.Repeat("go, ", 500) + "and make.", "more than 400 words"},
		"many rules":    {strings.Repeat("The agent may push. ", maxClauses+1), "at most 3000 rules"},
		"many others":   {"The agent may run go. " + strings.Repeat("Any other program needs approval. ", maxComplements+1), "more than 64 sentences"},
		"deep lists":    {deepList(maxDepth + 1), "nest more than 8 deep"},
		"not UTF-8":     {"The agent may \xff push.", "0xff"},
		"a control":     {"The agent may \x07 push.", "U+0007"},
		"bidi":          {"The agent may \u202e push.", "U+202E"},
		"open comment":  {"<!-- The agent may push.", "comment is not closed"},
		"open code":     {"```\nThe agent may push.", "code block is not closed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(Source{Name: "c.md", Text: []byte(c.text)}, Options{Granting: true})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "c.md:") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func deepList(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat("  ", i) + "- the agent may:\n")
	}
	return b.String() + strings.Repeat("  ", depth) + "- push\n"
}

// TestNoScenarios leaves the scenarios to Write.
func TestNoScenarios(t *testing.T) {
	c, err := Compile(Source{Name: "c.md", Text: []byte("The agent may push.")}, Options{Granting: true, NoScenarios: true})
	if err != nil || c.Scenarios != nil || len(c.Cedar) == 0 {
		t.Fatalf("%+v %v", c, err)
	}
	dir := t.TempDir() + "/bundle"
	if err := Write(dir, c, "v1", testKey()); err != nil {
		t.Fatal(err)
	}
	if c.Scenarios != nil {
		t.Error("the caller's value was changed")
	}
	inForce(t, dir)
}
