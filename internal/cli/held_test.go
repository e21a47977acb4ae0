package cli

import (
	"os"
	"slices"
	"testing"

	"ringfence/internal/sandbox"
)

// TestHeldIn: a box is held from the lists of servers in what it can change, also where
// that is named by a link, and nothing is said of others.
func TestHeldIn(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/w", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir+"/w", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	files := []string{dir + "/w/servers.json", dir + "/other.json"}
	for _, c := range []struct {
		workspace string
		mode      sandbox.Mode
		write     []string
		want      []string
	}{
		{dir + "/w", sandbox.ReadWrite, nil, files[:1]},
		{dir + "/link", sandbox.ReadWrite, nil, files[:1]},
		{dir + "/w", sandbox.ReadOnly, nil, nil},
		{dir + "/w", sandbox.ReadOnly, []string{dir}, files},
	} {
		spec := sandbox.Spec{Workspace: sandbox.Workspace{Path: c.workspace, Mode: c.mode}, ReadWrite: c.write}
		if got := heldIn(spec, files); !slices.Equal(got, c.want) {
			t.Errorf("%+v: held %q, want %q", c, got, c.want)
		}
	}
}
