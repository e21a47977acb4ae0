package native

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringfence/internal/sandbox"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

// workspace returns a directory with a repository in it.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, ".git/hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func shell(dir, script string) sandbox.Spec {
	return sandbox.Spec{
		Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"},
		Workspace: sandbox.Workspace{Path: dir, Mode: sandbox.ReadWrite},
	}
}

func TestBoxOfMacOS(t *testing.T) {
	outside := filepath.Join(workspace(t), "outside")
	for _, c := range []struct {
		name, script string
		works        bool
	}{
		{"true", "true", true},
		{"write", "echo x > a && cat a", true},
		{"list", "ls -la", true},
		{"list parent", "ls ..", false},
		{"stat parent", "stat ..", true},
		{"accounts", "cat /etc/passwd", false},
		{"outside", "echo x > " + outside, false},
		{"null", "echo x > /dev/null", true},
		{"signal", "kill -0 $PPID", false},
		{"own signal", "sleep 100 & kill $!", true},
		{"connect", "/usr/bin/nc -z -w 1 127.0.0.1 22", false},
		{"hook", "echo x > .git/hooks/pre-commit", false},
		{"hook in capitals", "echo x > .GIT/HOOKS/pre-commit", false},
		{"move git", "mv .git g", false},
		{"object", "mkdir .git/objects && echo x > .git/objects/a", true},
		{"settings", "mkdir .claude", false},
		{"hard link", "echo x > b && ln b c", false},
		{"link", "ln -s .git/hooks l && echo x > l/pre-commit", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := sandbox.Run(t.Context(), Tier{}, shell(workspace(t), c.script), nil)
			if err != nil {
				t.Fatal(err)
			}
			if works := out.Exit.Status() == 0; works != c.works {
				t.Errorf("%v: %s%s", out.Exit, out.Stdout, out.Stderr)
			}
			if !out.Report.Has(sandbox.LayerSeatbelt) {
				t.Error(out.Report)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	if r, err := (Tier{}).Probe(t.Context()); err != nil || !r.Has(sandbox.LayerSeatbelt) {
		t.Errorf("%v, %v", r, err)
	}
}

func TestStub(t *testing.T) {
	s := shell(workspace(t), "")
	s.Argv = []string{"/usr/bin/git", "--version"}
	if _, err := (Tier{}).Start(t.Context(), s); !errors.Is(err, sandbox.ErrNotFound) || !strings.Contains(err.Error(), "Homebrew") {
		t.Error(err)
	}
}

func TestConfirmRefuses(t *testing.T) {
	dir := workspace(t)
	s := shell(dir, "echo x > ran")
	refusal := errors.New("no")
	s.Confirm = func(sandbox.Report) error { return refusal }
	if _, err := (Tier{}).Start(t.Context(), s); !errors.Is(err, refusal) || !errors.Is(err, sandbox.ErrNotBuilt) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the program ran")
	}
}

// A path that was decided on and has become a link since is no part of a box.
func TestDecidedPathBecomesLink(t *testing.T) {
	dir := workspace(t)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, ".git"), link); err != nil {
		t.Fatal(err)
	}
	s := shell(dir, "true")
	s.ReadOnly, s.Decided = []string{link}, []string{link}
	if _, err := (Tier{}).Start(t.Context(), s); !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), "not what was decided on") {
		t.Error(err)
	}
}

// Hooks that configuration puts elsewhere are held there.
func TestHooksElsewhereAreHeld(t *testing.T) {
	dir := workspace(t)
	if err := os.WriteFile(filepath.Join(dir, ".git/config"), []byte("[core]\n\thooksPath = tools/hooks\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := sandbox.Run(t.Context(), Tier{}, shell(dir, "mkdir tools; echo x >tools/free; mkdir tools/hooks; echo x >tools/hooks/pre-commit"), nil)
	if err != nil || out.Exit.Status() == 0 {
		t.Errorf("%v, %v: %s", out.Exit, err, out.Stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "tools/free")); err != nil {
		t.Error(err)
	}
}

func TestDeadlineEndsTheTree(t *testing.T) {
	s := shell(workspace(t), "(sleep 1000 &); sleep 1000")
	s.Limits.Wall = 300 * time.Millisecond
	out, err := sandbox.Run(t.Context(), Tier{}, s, nil)
	if err != nil || out.Exit.Status() != 124 {
		t.Errorf("%v, %v", out.Exit, err)
	}
}
