package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/launch"
	"ringfence/internal/policy"
	"ringfence/internal/sandbox"
)

// TestDenialIsSaidOnce: what a person reads of a denial says once that it is one, and
// what that person can do.
func TestDenialIsSaidOnce(t *testing.T) {
	for _, c := range []struct {
		f     execFlags
		never bool
		code  act.Code
		hint  string
	}{
		{execFlags{}, false, act.CodePolicy, "--policy DIR names another"},
		{execFlags{policy: "/p"}, false, act.CodePolicy, "ringfence policy show --policy /p"},
		{execFlags{ask: "never"}, false, act.CodeNoAnswer, `without "--ask never"`},
		{execFlags{}, true, act.CodeNoAnswer, "ask.never"},
		{execFlags{}, false, act.CodeNoAnswer, "--ask-wait"},
		{execFlags{}, false, act.CodeTripwire, ""},
	} {
		err := c.f.boxError(t.Context(), &launch.DeniedError{Ticket: act.Ticket{Code: c.code, Reason: "denied: delete /w is forbidden by c3. " + policy.ForAgents}}, c.never)
		var said bytes.Buffer
		if code := (&streams{out: &sink{w: &said}, err: &sink{w: &said}}).report(err); code != codeNotRun {
			t.Errorf("%s: status %d", c.code, code)
		}
		if got := said.String(); strings.Count(got, "denied") != 1 || !strings.Contains(got, c.hint) || c.hint == "" && strings.Count(got, "\n") != 1 {
			t.Errorf("%s:\n%s", c.code, got)
		}
	}
}

// TestInferred: a program that the box has stopped leaves a person with the flag that
// would let it go on, once.
func TestInferred(t *testing.T) {
	spec := sandbox.Spec{Argv: []string{"/bin/rm"}, Workspace: sandbox.Workspace{Path: "/w", Mode: sandbox.ReadOnly}}
	var said beginning
	for range 1000 {
		if n, err := said.Write([]byte("rm: cannot remove 'x': Read-only file system\nfatal: out of memory\n")); n != 66 || err != nil {
			t.Fatal(n, err)
		}
	}
	seen := []sandbox.Denial{{Op: "mmap", Object: "the program", Fix: "--profile agent"}}
	got := inferred(spec, launch.Result{Status: 1, Denials: seen}, string(said))
	if len(said) > 16<<10 || len(got) != 1 || !strings.Contains(denialLine(got[0]), "write /w/x: the workspace is read-only for commands (") || got[0].Fix != "--rw /w" {
		t.Errorf("%d bytes: %+v", len(said), got)
	}
	if got := inferred(spec, launch.Result{}, string(said)); got != nil {
		t.Errorf("of a program that ended well: %+v", got)
	}
}

// TestBegunWithoutEngine: a box that waits for what the engine would give it is given up
// when there is no engine.
func TestBegunWithoutEngine(t *testing.T) {
	t.Setenv("RINGFENCE_HOME", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &streams{out: &sink{w: io.Discard}, err: &sink{w: io.Discard}}
	err := runBoxed(ctx, s, execFlags{verb: "exec", profile: "command", net: "none", workspace: t.TempDir()}, []string{"/bin/true"})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
