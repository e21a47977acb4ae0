package native

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// standIn makes the box of s one that works on a copy of its workspace.
func standIn(t *testing.T, s sandbox.Spec) sandbox.Spec {
	t.Helper()
	w := &s.Workspace
	held := strings.TrimSuffix(w.Upper, "/upper") + "/copy"
	if out, err := exec.Command("cp", "-a", w.Path, held).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	w.Copied, w.Upper, w.Work = held, "", ""
	return s
}

// TestCopied: what a box does with a copy of the workspace it sees, and the workspace
// does not; also names that are held in a live tree; with namespaces the copy is at the
// path of the workspace, without it is where it lies.
func TestCopied(t *testing.T) {
	for name, tier := range kinds {
		owners := []int{os.Getuid()}
		if os.Getuid() == 0 && name == "full" {
			owners = append(owners, 1234)
		}
		for _, owner := range owners {
			s, ws, _ := reviewed(t, owner, `set -e
pwd; echo new >> old; rm -r sub; mkdir made; mv old made; echo evil > .envrc; cat made/old; if echo x > "$W/out"; then pwd -P; fi 2>/dev/null`)
			s.Env = append(s.Env, "W="+ws)
			s = standIn(t, s)
			at := s.Workspace.Copied
			if name == "full" {
				at = ws
			}
			before := listing(t, ws)
			out, report := started(t, tier, s)
			want := at + "\nold\nnew\n"
			if name == "full" {
				want += at + "\n"
			}
			if out.Exit.Status() != 0 && name == "full" || string(out.Stdout) != want {
				t.Errorf("%s, owner %d: %v %q %s, want %q", name, owner, out.Exit, out.Stdout, out.Stderr, want)
			}
			if after := listing(t, ws); after != before {
				t.Errorf("%s, owner %d: the workspace was\n%s and is\n%s", name, owner, before, after)
			}
			for _, p := range []string{"/made/old", "/.envrc"} {
				if _, err := os.Stat(s.Workspace.Copied + p); err != nil {
					t.Errorf("%s, owner %d: %v", name, owner, err)
				}
			}
			if text := report.String(); !strings.Contains(text, "workspace=copy") || report.Has(sandbox.LayerWorkspace) != (name == "full") {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// started runs s, and says what its box reported.
func started(t *testing.T, tier sandbox.Tier, s sandbox.Spec) (out sandbox.Output, r sandbox.Report) {
	t.Helper()
	s.Confirm = func(got sandbox.Report) error { r = got; return nil }
	return run(t, tier, s, ""), r
}

// Where the workspace cannot be an overlay, who wants the box is told that a copy may do.
func TestNoOverlayIsTold(t *testing.T) {
	for name, tier := range kinds {
		s, _, upper := reviewed(t, os.Getuid(), "true")
		if name == "full" {
			if err := errors.Join(os.RemoveAll(upper), os.WriteFile(upper, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := sandbox.Run(t.Context(), tier, s, nil); !errors.Is(err, sandbox.ErrNoOverlay) || !errors.Is(err, sandbox.ErrNotBuilt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, ws, _ := reviewed(t, os.Getuid(), "true")
	s = standIn(t, s)
	s.ReadOnly = []string{ws + "/sub"}
	if _, err := sandbox.Run(t.Context(), kinds["plain"], s, nil); err == nil || !strings.Contains(err.Error(), "within a copy of the workspace") {
		t.Errorf("a part of the workspace that is read-only: %v", err)
	}
}
