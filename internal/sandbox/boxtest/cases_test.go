package boxtest

import (
	"os"
	"strings"
	"testing"
)

// TestCatalogue shows that every entry of the catalogue has a case or a reason.
func TestCatalogue(t *testing.T) {
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, c := range cases {
		has[c.ID] = true
	}
	text, err := os.ReadFile("testdata/catalogue.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		ids, why, elsewhere := strings.Cut(line, " : ")
		for id := range strings.FieldsSeq(ids) {
			listed[id] = true
			if has[id] == elsewhere || elsewhere && strings.TrimSpace(why) == "" {
				t.Errorf("%s: has cases: %v, is held elsewhere: %v", id, has[id], elsewhere)
			}
		}
	}
	for id := range has {
		if !listed[id] && !strings.HasPrefix(id, "BX-") {
			t.Errorf("%s is not in the catalogue", id)
		}
	}
}

// TestParse shows what is refused: in testdata/parse.txt a text, with ";" between its
// lines, and a part of the error.
func TestParse(t *testing.T) {
	text, err := os.ReadFile("testdata/parse.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		lines, want, _ := strings.Cut(strings.TrimSpace(line), " => ")
		r := &reader{sets: map[string][]string{}, seen: map[string]bool{}}
		err := r.file(strings.ReplaceAll(lines, "; ", "\n"))
		if err == nil && want != "ok" || err != nil && (want == "ok" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", lines, err, want)
		}
	}
}
