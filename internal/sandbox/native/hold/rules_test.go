package hold

import (
	"bufio"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A told look says what a case says.
type told struct{ has, born []string }

func (l told) Exists(p string) bool { return slices.Contains(l.has, p) }
func (l told) Born(p string) bool {
	return slices.ContainsFunc(l.born, func(b string) bool { return p == b || strings.HasPrefix(p, b+"/") })
}

var (
	opWords = map[string]Op{"create": Make, "write": Change, "delete": Remove, "moveaway": MoveAway, "movehere": MoveHere, "link": Link}
	tested  = Rules{Writable: []string{"/ws", "/home/u/p", "/mine/src/p"}, Private: []string{"/mine"}, Held: []string{"/ws/keep/this", "/ws/Ha\u0308ld"}, Home: "/home/u"}
)

func TestRules(t *testing.T) {
	f, err := os.Open("testdata/rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if line := lines.Text(); line != "" && line[0] != '#' {
			checkLine(t, n, line)
		}
	}
}

func checkLine(t *testing.T, n int, line string) {
	t.Helper()
	asked, want, ok := strings.Cut(line, " => ")
	words := strings.Fields(asked)
	op, known := opWords[words[0]]
	if !ok || !known {
		t.Fatalf("line %d: %s", n, line)
	}
	var l told
	whole := false
	for _, w := range words[2:] {
		switch k, v, _ := strings.Cut(w, "="); k {
		case "whole":
			whole = true
		case "has":
			l.has = strings.Split(v, ",")
		case "born":
			l.born = strings.Split(v, ",")
		default:
			t.Fatalf("line %d: %s", n, w)
		}
	}
	v := tested.Check(op, path.Dir(words[1]), path.Base(words[1]), whole, l)
	got := "free"
	switch {
	case v.Held():
		got = "held " + v.Rule
	case v.Born != "":
		got = "born " + v.Born
	}
	word, rest, _ := strings.Cut(want, " ")
	if gotWord, gotRest, _ := strings.Cut(got, " "); gotWord != word || !strings.Contains(gotRest, rest) {
		t.Errorf("line %d: %s: got %s", n, line, got)
	}
}

// TestHeldByAnyName: what is held stays so in other letters, deeper down, and, for
// who brings a whole directory, on the way to it.
func TestHeldByAnyName(t *testing.T) {
	names := []string{".envrc", ".vscode/tasks.json", ".idea/x/y", ".git/hooks/pre-push", ".git/config", "claude.md", ".github/workflows/a", ".git/modules/a/b/config"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "name")
		deep := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "src", "x.y", "Config", "refs"}), 0, 5).Draw(t, "deep")
		op := rapid.SampledFrom([]Op{Make, Change, Remove, MoveAway, MoveHere, Link}).Draw(t, "op")
		if rapid.Bool().Draw(t, "upper") {
			name = strings.ToUpper(name)
		}
		p := path.Join(append(append([]string{"/ws"}, deep...), name)...)
		if !tested.Check(op, path.Dir(p), path.Base(p), false, told{}).Held() {
			t.Fatalf("%s %s is free", op, p)
		}
		if dir := path.Dir(p); dir != path.Join(append([]string{"/ws"}, deep...)...) && !tested.Check(MoveHere, path.Dir(dir), path.Base(dir), true, told{}).Held() {
			t.Fatalf("%s can be moved in whole", dir)
		}
		lifted := tested
		lifted.Later = true
		if lifted.Check(op, path.Dir(p), path.Base(p), false, told{}).Held() {
			t.Fatalf("%s %s is held though it is lifted", op, p)
		}
	})
}

func TestValidate(t *testing.T) {
	for _, r := range []Rules{{Writable: []string{"a"}}, {Held: []string{"/a/"}}, {Home: "h"}, {Writable: []string{"/a/../b"}}} {
		if r.Validate() == nil {
			t.Errorf("%+v is taken", r)
		}
	}
	if err := tested.Validate(); err != nil {
		t.Error(err)
	}
}
