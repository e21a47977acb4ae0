package places

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

var roots = Roots{Home: "/home/u", Workspace: "/home/u/ws"}

func TestPlaces(t *testing.T) {
	f, err := os.Open("testdata/places.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		if lines.Text() == "" || lines.Text()[0] == '#' {
			continue
		}
		asked, want, _ := strings.Cut(lines.Text(), " => ")
		words := strings.Fields(asked)
		whole, got := len(words) == 3, ""
		switch words[0] {
		case "class":
			got = string(roots.Class(words[1], whole))
		case "held":
			got, _ = roots.Held(words[1], whole)
		case "reviewed":
			got, _ = roots.Reviewed(words[1], whole)
		case "built":
			got, _ = Built(words[1])
		default:
			t.Fatalf("line %d: %s", n, words[0])
		}
		if (want == "-") != (got == "") || want != "-" && !strings.Contains(got, want) {
			t.Errorf("line %d: %s: got %q", n, lines.Text(), got)
		}
	}
}

// P2: what the gate asks about because it runs later, boxes hold too, in the
// workspace and outside installed packages, unless the row is of kind asked.
func TestGateAndBoxAgree(t *testing.T) {
	for _, r := range table {
		if r.at != anywhere || r.kind != later {
			continue
		}
		p := roots.Workspace + "/" + strings.NewReplacer("**", "x", "*", "x").Replace(r.pattern)
		if roots.Class(p, false) != Later {
			t.Errorf("%s: the gate does not ask", p)
		}
		if _, held := roots.Held(p, false); !held {
			t.Errorf("%s: no box holds it", p)
		}
	}
}

// P3: what the gate asks about or keeps closed, a review points at.
func TestGateAndReviewAgree(t *testing.T) {
	for _, in := range []Roots{roots, {Home: "/home/u", Workspace: "/home/u"}} {
		for _, r := range table {
			base := map[anchor]string{anywhere: in.Workspace, inHome: in.Home, inRoot: ""}[r.at]
			p := base + "/" + strings.NewReplacer("**", "x", "*", "x").Replace(r.pattern)
			class := in.Class(p, false)
			_, told := in.Reviewed(p, false)
			if class != Ordinary && r.kind != asked && Beneath(p, in.Workspace) && !told {
				t.Errorf("%s is %s to the gate, and no review says so", p, class)
			}
		}
	}
}

// TestTables: a pattern is as the lookup expects it.
func TestTables(t *testing.T) {
	for _, rows := range [][]row{table[:], boxed[:], builds[:]} {
		for _, r := range rows {
			if Fold(r.pattern) != r.pattern || strings.HasPrefix(r.pattern, "/") || r.pattern == "" || r.why == "" {
				t.Errorf("%+v", r)
			}
			if strings.ContainsAny(r.pattern, `?[\`) {
				t.Errorf("%s: only * is a wildcard", r.pattern)
			}
		}
	}
}

// P1.
func TestFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		f := Fold(s)
		if d := norm.NFD.String(s); Fold(d) != f {
			t.Fatalf("%q folds to %q, decomposed to %q", s, f, Fold(d))
		}
		if Fold(f) != f {
			t.Fatalf("%q folds to %q and on to %q", s, f, Fold(f))
		}
		if strings.Count(f, "/") != strings.Count(s, "/") {
			t.Fatalf("%q has other components in %q", s, f)
		}
	})
}

func BenchmarkHeld(b *testing.B) {
	for b.Loop() {
		roots.Held("/home/u/ws/node_modules/@types/node/index.d.ts", false)
	}
}
