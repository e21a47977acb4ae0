package popular

import (
	"os"
	"strings"
	"testing"
)

// TestNames is testdata/names.txt.
func TestNames(t *testing.T) {
	text, err := os.ReadFile("testdata/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		want := strings.Trim(f[2], "-")
		if got := Resembles(f[0] + ":" + f[1]); got != want {
			t.Errorf("%s %s resembles %q, want %q", f[0], f[1], got, want)
		}
	}
}

// TestOrdinary counts the names in testdata that are taken for imitations: a tenth of those
// that come next after the popular ones. docs/network.md says how many there are.
func TestOrdinary(t *testing.T) {
	for registry, most := range map[string]int{npm: 15, pypi: 35} {
		text, err := os.ReadFile("testdata/" + registry + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		all, taken := strings.Fields(string(text)), 0
		for _, name := range all {
			if of := Resembles(registry + ":" + name + "@1.0.0"); of != "" {
				taken++
				t.Logf("%s resembles %s", name, of)
			}
		}
		t.Logf("%s: %d of %d", registry, taken, len(all))
		if taken > most || len(all) < 990 {
			t.Errorf("%d of %d names of %s resemble others, want at most %d of 990", taken, len(all), registry, most)
		}
	}
}
