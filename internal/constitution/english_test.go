package constitution

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/policy"
)

// TestEnglishReadsBack compiles what policy.English says of a clause, which must
// give the same clause, but for those of testdata/english-differs.txt.
func TestEnglishReadsBack(t *testing.T) {
	data, err := os.ReadFile("testdata/english-differs.txt")
	if err != nil {
		t.Fatal(err)
	}
	differs := strings.Split(string(data), "\n")
	for _, s := range understood(t) {
		if slices.Contains(differs, s) {
			continue
		}
		c, err := Compile(Source{Text: []byte(s)}, Options{Granting: true})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, cl := range c.Clauses {
			lines = append(lines, "- "+policy.English(cl))
		}
		again, err := Compile(Source{Text: []byte(strings.Join(lines, "\n") + "\n")}, Options{Granting: true})
		if err != nil {
			t.Errorf("%s\n%s\n%v", s, strings.Join(lines, "\n"), err)
			continue
		}
		if got, want := meanings(again.Clauses), meanings(c.Clauses); got != want {
			t.Errorf("%s\n%s\n got %s\nwant %s", s, strings.Join(lines, "\n"), got, want)
		}
	}
}

// meanings returns what clauses say without where they stand.
func meanings(clauses []policy.Clause) string {
	var out []string
	for _, c := range clauses {
		c.ID, c.Line, c.Column, c.Covers, c.Notes = "", 0, 0, nil, nil
		if c.Modality != policy.Advice {
			c.Text = ""
		}
		data, err := json.Marshal(c)
		if err != nil {
			return err.Error()
		}
		out = append(out, string(data))
	}
	return strings.Join(out, "\n     ")
}
