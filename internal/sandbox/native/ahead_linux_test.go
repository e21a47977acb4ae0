package native

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// early is a Tier that begins with a box for another Spec than the one it builds.
type early struct {
	Tier
	begun func(sandbox.Spec) sandbox.Spec
}

func (e early) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	return e.Prepare(e.begun(s)).Start(ctx, s)
}

// A box that was begun is the box that its last Spec describes, whatever it was begun for.
func TestAhead(t *testing.T) {
	other, d := dir(t), dir(t)
	if os.Getuid() == 0 {
		if err := os.Chown(d, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	for name, begun := range map[string]func(sandbox.Spec) sandbox.Spec{
		"the same":            func(s sandbox.Spec) sandbox.Spec { return s },
		"an unresolved path":  func(s sandbox.Spec) sandbox.Spec { s.Workspace.Path += "/."; return s },
		"no workspace":        func(s sandbox.Spec) sandbox.Spec { s.Workspace = sandbox.Workspace{}; return s },
		"a missing workspace": func(s sandbox.Spec) sandbox.Spec { s.Workspace.Path += "/none"; return s },
		"another":             func(s sandbox.Spec) sandbox.Spec { s.Workspace.Path = other; return s },
		"other limits":        func(s sandbox.Spec) sandbox.Spec { s.Limits.Processes = 9; return s },
		"an open network":     func(s sandbox.Spec) sandbox.Spec { s.Network = sandbox.NetworkOpen; return s },
	} {
		s := sh("echo in >" + d + "/f; ls " + other + "; cat /proc/net/dev | wc -l; ulimit -u")
		s.Workspace, s.LaterWritable = sandbox.Workspace{Path: d, Mode: sandbox.ReadWrite}, true
		s.Profile = sandbox.ProfileAgent
		want := run(t, full(), s, "")
		got := run(t, early{full(), begun}, s, "")
		if text, err := os.ReadFile(d + "/f"); err != nil || string(text) != "in\n" || os.Remove(d+"/f") != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if string(got.Stdout) != string(want.Stdout) || got.Exit != want.Exit || strings.Join(got.Report.Enforced, " ") != strings.Join(want.Report.Enforced, " ") {
			t.Errorf("%s: %q %v %v\nwant %q %v %v", name, got.Stdout, got.Exit, got.Report, want.Stdout, want.Exit, want.Report)
		}
	}
}

// What was begun and is not wanted leaves nothing, and neither does what went wrong.
func TestAheadDiscarded(t *testing.T) {
	d := dir(t)
	before := look(t)
	s := sh("echo ran >" + d + "/ran")
	s.Workspace, s.LaterWritable = sandbox.Workspace{Path: d, Mode: sandbox.ReadWrite}, true
	p := full().Prepare(s)
	if err := errors.Join(p.Discard(), p.Discard()); err != nil {
		t.Errorf("discarding: %v", err)
	}
	before.check(t, "discarded")
	p = full().Prepare(s)
	box, err := p.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Discard(); err != nil {
		t.Errorf("discarding what runs: %v", err)
	}
	if exit, err := box.Wait(); err != nil || exit.Status() != 0 || os.Remove(d+"/ran") != nil {
		t.Errorf("discarded after its start: %v, %v", exit, err)
	}
	closeStreams(t, box)
	before.check(t, "started")
	steps := stepsOf(t, false, s)
	if err := os.Remove(d + "/ran"); err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		tier := full()
		tier.fault.at = step
		box, err := tier.Prepare(s).Start(t.Context(), s)
		if err == nil {
			box.Kill()
			closeStreams(t, box)
		}
		if !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), ": "+step+": ") {
			t.Errorf("%s failed: %v", step, err)
		}
		if _, err := os.Stat(d + "/ran"); err == nil {
			t.Fatalf("%s failed, and the program ran", step)
		}
		before.check(t, step)
	}
}

func closeStreams(t *testing.T, b sandbox.Box) {
	t.Helper()
	own, ok := b.(*box)
	if !ok {
		t.Fatalf("a box of %T", b)
	}
	own.closeStreams()
}
