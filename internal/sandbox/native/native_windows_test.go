package native

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"ringfence/internal/sandbox"
)

// spec runs a program of the system.
func spec(t *testing.T, program string, args ...string) sandbox.Spec {
	t.Helper()
	system, err := windows.GetSystemDirectory()
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Spec{Argv: append([]string{filepath.Join(system, program)}, args...), Dir: system, Env: []string{"SystemRoot=" + filepath.Dir(system)}}
}

func TestBoxOfWindows(t *testing.T) {
	out, err := sandbox.Run(t.Context(), Tier{}, spec(t, "cmd.exe", "/c", "exit 7"), nil)
	if err != nil || out.Exit.Status() != 7 {
		t.Fatalf("%v, %v", out.Exit, err)
	}
	if r := out.Report; !r.Has(sandbox.LayerJobObject) || !r.Has(layerLowIntegrity) || r.Complete() {
		t.Error(r)
	}
	// What is not labelled low cannot be written.
	file := filepath.Join(t.TempDir(), "x")
	out, err = sandbox.Run(t.Context(), Tier{}, spec(t, "cmd.exe", "/c", "echo x>"+file), nil)
	if _, missing := os.Stat(file); err != nil || out.Exit.Status() == 0 || missing == nil {
		t.Errorf("%v, %v", out.Exit, err)
	}
}

func TestNotBuilt(t *testing.T) {
	unlabelled := spec(t, "cmd.exe", "/c", "exit 0")
	unlabelled.ReadWrite = []string{t.TempDir()}
	policy := spec(t, "cmd.exe", "/c", "exit 0")
	policy.Network, policy.Egress = sandbox.NetworkPolicy, `C:\egress`
	for part, s := range map[string]sandbox.Spec{"icacls": unlabelled, "container tier": policy} {
		if _, err := (Tier{}).Start(t.Context(), s); !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), part) {
			t.Error(err)
		}
	}
}

// A path that was decided on and has become a link since is no part of a box.
func TestDecidedPathBecomesLink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err) // needs the right to make links, or developer mode
	}
	s := spec(t, "cmd.exe", "/c", "exit 0")
	s.ReadOnly, s.Decided = []string{link}, []string{link}
	if _, err := (Tier{}).Start(t.Context(), s); !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), "not what was decided on") {
		t.Error(err)
	}
}

func TestDeadlineEndsTheJob(t *testing.T) {
	s := spec(t, "cmd.exe", "/c", "start /b ping -n 1000 127.0.0.1 & ping -n 1000 127.0.0.1")
	s.Limits.Wall = 300 * time.Millisecond
	out, err := sandbox.Run(t.Context(), Tier{}, s, nil)
	if err != nil || out.Exit.Status() != 124 {
		t.Errorf("%v, %v", out.Exit, err)
	}
}

func TestProbe(t *testing.T) {
	if r, err := (Tier{}).Probe(t.Context()); err != nil || !r.Has(sandbox.LayerJobObject) {
		t.Errorf("%v, %v", r, err)
	}
}
