package filesystem

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestGlobLikeMinimatch(t *testing.T) {
	var paths []string
	eachJSON(t, "testdata/minimatch.jsonl", func(line int, b []byte) {
		if paths == nil {
			if err := json.Unmarshal(b, &paths); err != nil {
				t.Fatal(err)
			}
			return
		}
		var c struct {
			Pattern string
			Match   []string
		}
		if err := json.Unmarshal(b, &c); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		g, err := compile(c.Pattern)
		if err != nil {
			t.Errorf("line %d: %v", line, err)
			return
		}
		for _, p := range paths {
			if got, want := g.match(p), slices.Contains(c.Match, p); got != want {
				t.Errorf("line %d: %q matches %q: %v, want %v", line, c.Pattern, p, got, want)
			}
		}
	})
}

func TestGlobRefuses(t *testing.T) {
	for _, p := range []string{
		"/etc/*", "../x", "a/../b", "a/..", "..", "{..,a}/b", "{/etc,a}", "a\x00",
		strings.Repeat("a", maxPattern+1), strings.Repeat("{a,b}", 20),
	} {
		if _, err := compile(p); err == nil {
			t.Errorf("%q is accepted", p)
		}
	}
}

// Within one component the language is that of package path.
func TestGlobComponent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab?\*]{1,6}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[ab]{1,6}`).Draw(t, "name")
		g, err := compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		want, err := path.Match(pattern, name)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.match(name); got != want {
			t.Fatalf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
	})
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"**/*.go", "{a,{b,c}}[!x-z]", `\`, "[", "{,}", "[]a]", "é[à-ü]"} {
		f.Add(s, "a/b.go")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		g, err := compile(pattern)
		if err != nil {
			return
		}
		g.match(name)
		if len(g.re) > maxBraces {
			t.Errorf("%d expressions", len(g.re))
		}
	})
}
