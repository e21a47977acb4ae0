package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// TestHeldBeneathWhatIsPrivate: Landlock grants a tree with all that is mounted beneath
// it. A workspace in the home or in /tmp must not be changed by way of the box's own
// file system there, by a path that the supervisor leaves to the kernel, nor be known by
// another path after a directory above it was moved.
func TestHeldBeneathWhatIsPrivate(t *testing.T) {
	home := dir(t)
	elsewhere, err := os.MkdirTemp("/var/tmp", "ringfence-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(elsewhere) })
	for _, above := range []string{home, elsewhere} {
		w := filepath.Join(above, "src", "project")
		if err := os.MkdirAll(w, 0o755); err != nil {
			t.Fatal(err)
		}
		s := sh(`echo x >/proc/self/cwd/.envrc; echo x >/proc/$$/cwd/.envrc; ln -s /proc/self/cwd here; echo x >here/.envrc
			mv ../../src ../../moved && echo x >../../moved/project/.envrc
			echo ours >../../own && mkdir ../d && mv ../d ../e && rmdir ../e && cat ../../own; echo kept >kept`)
		s.Env = append(s.Env, "HOME="+above)
		s.Profile, s.Workspace = sandbox.ProfileAgent, sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}
		out := run(t, full(), s, "")
		if string(out.Stdout) != "ours\n" {
			t.Errorf("in %s what is the box's own is not: %q %s", above, out.Stdout, out.Stderr)
		}
		var left []string
		err := filepath.WalkDir(above, func(p string, _ os.DirEntry, err error) error {
			left = append(left, strings.TrimPrefix(p, above))
			return err
		})
		if got := strings.Join(left, " "); err != nil || got != " /src /src/project /src/project/here /src/project/kept" {
			t.Errorf("left in %s: %q, %v; %s", above, got, err, out.Stderr)
		}
	}
}

// TestLimitsOfPidOne: what pid 1 of the box may use is to be read in it, and not to be
// set. A process sets its own.
func TestLimitsOfPidOne(t *testing.T) {
	needPython(t)
	s := sandbox.Spec{Profile: sandbox.ProfileAgent, Argv: []string{"/usr/bin/python3", "-c", `
import os, resource
def tried(what):
    try: return what() and "ok"
    except OSError as e: return e.strerror
old = resource.prlimit(0, resource.RLIMIT_NOFILE)
try: threads = [int(t) for t in os.listdir("/proc/1/task")]
except OSError: threads = [1]
print(tried(lambda: resource.prlimit(1, resource.RLIMIT_NOFILE)), {tried(lambda: resource.prlimit(t, resource.RLIMIT_NOFILE, (0, old[1]))) for t in threads}, tried(lambda: resource.prlimit(0, resource.RLIMIT_NOFILE, old)))`}}
	for kind, want := range map[string]string{"full": "ok {'Operation not permitted'} ok\n", "plain": "Operation not permitted {'Operation not permitted'} ok\n"} {
		if out := run(t, kinds[kind], s, ""); string(out.Stdout) != want {
			t.Errorf("%s: %q, want %q; %s", kind, out.Stdout, want, out.Stderr)
		}
	}
}
