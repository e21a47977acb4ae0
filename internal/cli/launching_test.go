package cli

import (
	"testing"

	"ringfence/internal/sandbox"
)

// TestDenialIsOneLine: the name of a file in a box cannot look like a line of ours.
func TestDenialIsOneLine(t *testing.T) {
	d := sandbox.Denial{Op: "create", Object: "/w/a\nringfence: all is well\n/.envrc", Rule: "held", Fix: "--review", Count: 2}
	want := `refused in the box: create /w/a\u{a}ringfence: all is well\u{a}/.envrc: held (2 times) (inferred); to allow it: --review`
	if got := denialLine(d); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	d = sandbox.Denial{Op: sandbox.OpNotHeld, Object: "a\r\nb", Rule: "new", Count: 1, Observed: true}
	if got, want := denialLine(d), `not held: a\u{d}\u{a}b: new`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	d = sandbox.Denial{Op: "memory", Object: "the command", Rule: "full", Observed: true}
	if got := denialLine(d); got != "refused in the box: memory for the command: full" {
		t.Error(got)
	}
}
