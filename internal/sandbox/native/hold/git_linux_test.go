package hold

import (
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
			same(t, "denied", b.refused(), s.parts["denied"])
		})
	}
}
