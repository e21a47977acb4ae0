package hold

import (
	"slices"
	"strings"
	"testing"
)

// TestGit: git works in a box, but for its configuration.
func TestGit(t *testing.T) {
	for _, s := range stories(t, "testdata/git.txtar") {
		t.Run(s.name, func(t *testing.T) {
			b := newBox(t)
			out := b.play(s)
			if !strings.HasSuffix(out, "done\n") {
				t.Errorf("ended with %q", out)
			}
			var got []string
			for _, d := range b.denials {
				line := d.Op + " " + strings.TrimPrefix(d.Path, b.ws+"/")
				if !slices.Contains(got, line) {
					got = append(got, line)
				}
			}
			same(t, "denied", got, s.parts["denied"])
		})
	}
}
