package native

import (
	"errors"
	"os"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// stepsOf returns the names of all steps that building a box of s takes, on both
// sides, in a build that succeeds.
func stepsOf(t *testing.T, plain bool, s sandbox.Spec) []string {
	t.Helper()
	b := &builder{spec: s, plain: plain, because: errInjected, box: newBox(s, kinds["full"].fault.stage)}
	b.box.plain = plain
	if err := b.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.box.Wait(); err != nil {
		t.Fatal(err)
	}
	b.box.closeStreams()
	return append(b.steps, append(b.setup.done, "ready", "go", stepExec)...)
}

// N1: when any step fails there is no box, the error says which, the program has not
// run, and nothing is left.
func TestEveryStepCanFail(t *testing.T) {
	for kind, tier := range kinds {
		d := dir(t)
		s := sh("echo ran >" + d + "/ran")
		s.Workspace = sandbox.Workspace{Path: d, Mode: sandbox.ReadWrite}
		s.LaterWritable = true
		steps := stepsOf(t, tier.fault.plain, s)
		if len(steps) < 40 || os.Remove(d+"/ran") != nil {
			t.Fatalf("%s: only %d steps, or they do not run the program: %v", kind, len(steps), steps)
		}
		before := look(t)
		seen := map[string]bool{}
		for _, step := range steps {
			if seen[step] {
				t.Errorf("%s: two steps are called %q", kind, step)
			}
			seen[step] = true
			tier := tier
			tier.fault.at = step
			b, err := tier.Start(t.Context(), s)
			switch {
			case err == nil:
				b.Kill()
				t.Errorf("%s: %s failed, and the box was built", kind, step)
			case !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), ": "+step+": "):
				t.Errorf("%s: %s failed: %v", kind, step, err)
			}
			if _, err := os.Stat(d + "/ran"); err == nil {
				t.Fatalf("%s: %s failed, and the program ran", kind, step)
			}
			before.check(t, kind+": "+step)
		}
	}
}
