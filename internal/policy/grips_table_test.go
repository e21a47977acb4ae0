package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
)

// TestGrips runs testdata/grips.txt.
func TestGrips(t *testing.T) {
	for _, b := range readBlocks(t, "testdata/grips.txt") {
		t.Run(b.name, func(t *testing.T) {
			c := Circumstances{Principal: "p/a"}
			_, words, _ := strings.Cut(b.name, ", ")
			all := false
			for w := range strings.FieldsSeq(words) {
				switch word, id, _ := strings.Cut(w, "="); word {
				case "all":
					all = true
				case "boxed":
					c.Boxed = true
				case "network":
					c.Network = true
				case "hooks":
					c.Hooks = true
				case "tools":
					c.ToolsOnly = true
				case "review":
					c.Review = true
				case "asked":
					c.Asked = append(c.Asked, id)
				case "refused":
					c.Refused = append(c.Refused, id)
				default:
					t.Fatalf("%q is no word", w)
				}
			}
			var got []string
			for _, g := range b.load(t).Grips(b.clauses, c) {
				if g.Clause == Default && !all {
					continue
				}
				line := fmt.Sprintf("%s %s", g.Clause, g.Hold)
				for _, by := range g.Grips {
					line += fmt.Sprintf("; %s %s %s", by.Level, by.Hold, by.By)
				}
				got = append(got, line)
			}
			slices.Sort(got) // layers of blocks are in no order
			if want := strings.Join(b.calls, "\n"); strings.Join(got, "\n") != want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
			}
		})
	}
}

// TestEveryKindHasMeans: what could hold a new kind of effect must be thought of.
func TestEveryKindHasMeans(t *testing.T) {
	for _, k := range act.Kinds() {
		if meansOf[k] == unknownMeans {
			t.Errorf("nothing says by what means %s comes about", k)
		}
	}
	g := Circumstances{Boxed: true}.gripped("c1", Clause{Modality: MustNever, Kinds: []act.Kind{"no-such"}}, nil)
	if g.Hold != HoldsNot || len(g.Grips) != 1 {
		t.Errorf("a kind that is not known: %+v", g)
	}
}
