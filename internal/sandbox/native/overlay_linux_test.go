package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// reviewed is a box in a workspace that belongs to owner and is an overlay.
func reviewed(t *testing.T, owner int, script string) (s sandbox.Spec, ws, upper string) {
	t.Helper()
	dir := t.TempDir()
	ws, layers := dir+"/ws", dir+"/layers"
	upper = layers + "/upper"
	err := errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(ws+"/sub/deep", 0o755), os.MkdirAll(upper, 0o755), os.Mkdir(layers+"/work", 0o700),
		os.WriteFile(ws+"/old", []byte("old\n"), 0o644), os.WriteFile(ws+"/sub/gone", nil, 0o644), os.WriteFile(ws+"/sub/deep/x", nil, 0o644))
	if err == nil && owner != os.Getuid() {
		err = filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error { return errors.Join(err, os.Lchown(p, owner, owner)) })
	}
	if err != nil {
		t.Fatal(err)
	}
	// The kernel makes a directory in it that nobody may enter.
	t.Cleanup(func() { _ = os.Chmod(layers+"/work/work", 0o700) })
	s = sh(script)
	s.Profile = sandbox.ProfileAgent
	s.Workspace = sandbox.Workspace{Path: ws, Mode: sandbox.ReadWrite, Upper: upper, Work: layers + "/work"}
	return s, ws, upper
}

// What a box changes in an overlay it sees, and the workspace does not; the files
// belong to the owner of the workspace.
func TestOverlay(t *testing.T) {
	owners := []int{os.Getuid()}
	if os.Getuid() == 0 {
		owners = append(owners, 1234)
	}
	for _, owner := range owners {
		s, ws, upper := reviewed(t, owner, `set -e
echo new >> old; mkdir made; echo x > made/x; rm sub/gone; rm -r sub/deep; mkdir sub/deep; mv old moved; chmod 600 moved
echo 'evil' > .envrc; cat moved; ls -A; ls -A / | grep overlay || true; ls sub sub/deep`)
		before := listing(t, ws)
		out := run(t, full(), s, "")
		if want := "old\nnew\n.envrc\nmade\nmoved\nsub\nsub:\ndeep\n\nsub/deep:\n"; out.Exit.Status() != 0 || string(out.Stdout) != want {
			t.Errorf("owner %d: %v %q %s, want %q", owner, out.Exit, out.Stdout, out.Stderr, want)
		}
		if after := listing(t, ws); after != before {
			t.Errorf("owner %d: the workspace was\n%s and is\n%s", owner, before, after)
		}
		for name, kind := range map[string]uint32{
			"moved": unix.S_IFREG, "made/x": unix.S_IFREG, ".envrc": unix.S_IFREG, "old": unix.S_IFCHR, "sub/gone": unix.S_IFCHR, "sub/deep": unix.S_IFDIR,
		} {
			var st unix.Stat_t
			if err := unix.Lstat(upper+"/"+name, &st); err != nil || st.Mode&unix.S_IFMT != kind || int(st.Uid) != owner {
				t.Errorf("owner %d: %s has mode %o and owner %d, %v", owner, name, st.Mode, st.Uid, err)
			}
		}
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		err = syscall.Lstat(p, &st)
		fmt.Fprintln(&b, strings.TrimPrefix(p, dir), d.Type(), st.Size, st.Ctim, st.Nlink)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A box whose workspace cannot be an overlay is none.
func TestNoOverlay(t *testing.T) {
	s, ws, _ := reviewed(t, os.Getuid(), "echo x > x")
	for name, tier := range kinds {
		if name == "full" {
			s.Workspace.Work += "/missing"
			s.Workspace.Upper = filepath.Dir(s.Workspace.Work) + "/u"
		}
		_, err := sandbox.Run(t.Context(), tier, s, nil)
		if !errors.Is(err, sandbox.ErrNotBuilt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(ws + "/x"); err == nil {
		t.Error("the program ran")
	}
}
