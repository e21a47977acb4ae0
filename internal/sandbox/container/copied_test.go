package container

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// TestCopyStandsIn: a copy of the workspace is mounted in its place, what is denied in
// the workspace is denied in the copy, and nothing shows the workspace itself.
func TestCopyStandsIn(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws, held := root+"/ws", root+"/copy"
	for _, dir := range []string{ws, held} {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(dir+"/secret", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s := sandbox.Spec{Workspace: sandbox.Workspace{Path: ws, Mode: sandbox.ReadWrite, Copied: held}, Denied: []string{ws + "/secret"}}
	p := &plan{}
	defer p.close()
	if err := p.paths(s, &engine{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range p.mounts {
		line := m.target + " " + m.real
		if m.denied {
			line += " denied"
		}
		got = append(got, strings.ReplaceAll(line, root, ""))
	}
	if want := []string{"/ws /copy", "/ws/secret /copy/secret denied"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.ReadWrite = []string{root}
	if err := new(plan).paths(s, &engine{}); err == nil || !strings.Contains(err.Error(), "one of them writable") {
		t.Errorf("another tree that is live: %v", err)
	}
}
