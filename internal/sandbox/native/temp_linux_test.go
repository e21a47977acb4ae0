package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/cgroup"
)

// A box without mounts has a directory for temporary files that only it can use, and that
// is not there afterwards, whatever was made in it; /tmp is closed to it.
func TestTemporaryFiles(t *testing.T) {
	for _, mode := range []sandbox.Mode{sandbox.ReadOnly, sandbox.ReadWrite} {
		s := sh(`set -e; cd "$TMPDIR"; stat -c %a .; echo text >f; mkdir -p d/e; cp f d/e/g; cat d/e/g; f=$(mktemp); echo x >"$f"; rm "$f"; ls
			(echo x >/tmp/mine || echo x >` + os.TempDir() + `/mine) 2>/dev/null && echo wrote; mkdir closed; echo x >closed/f; chmod 0 closed d/e 2>/dev/null || true; echo "$TMPDIR"`)
		s.Env = append(s.Env, "TMPDIR=/tmp")
		s.Workspace = sandbox.Workspace{Path: dir(t), Mode: mode}
		out := run(t, kinds["plain"], s, "")
		said := strings.Split(strings.TrimSpace(string(out.Stdout)), "\n")
		temp := said[len(said)-1]
		if want := "700\ntext\nd\nf\n" + temp; strings.Join(said, "\n") != want || out.Exit.Status() != 0 || filepath.Dir(temp) != os.TempDir() {
			t.Errorf("%s: %v %q %s, want %q", mode, out.Exit, out.Stdout, out.Stderr, want)
		}
		if _, err := os.Lstat(temp); !os.IsNotExist(err) {
			t.Errorf("%s: %s is left: %v", mode, temp, err)
		}
		if e := out.Report.Evidence[sandbox.LayerMountNamespace]; !strings.Contains(e, "TMPDIR is "+temp) {
			t.Errorf("%s: the report says %q", mode, e)
		}
	}
}

// A TMPDIR that lies in what the box may write stays.
func TestTemporaryFilesInTheWorkspace(t *testing.T) {
	w := dir(t)
	s := sh(`echo $TMPDIR`)
	s.Env = append(s.Env, "TMPDIR="+w+"/t")
	s.Workspace = sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}
	if out := run(t, kinds["plain"], s, ""); string(out.Stdout) != w+"/t\n" {
		t.Errorf("%q %s", out.Stdout, out.Stderr)
	}
}

// A box that fills its directory is ended, and says so.
func TestTemporaryFilesWithoutEnd(t *testing.T) {
	b, err := kinds["plain"].Start(t.Context(), sh(`fallocate -l 300M "$TMPDIR/x"; sleep 1000`))
	if err != nil {
		t.Fatal(err)
	}
	exit, err := b.Wait()
	if err != nil || exit.Cause != sandbox.CauseKill || len(b.Denials()) != 1 || !strings.Contains(b.Denials()[0].Rule, "bytes") {
		t.Errorf("%v %v %v", exit, err, b.Denials())
	}
}

// What a caller that was killed has left is removed by the next one, and nothing else is.
func TestStaleTemporaryFiles(t *testing.T) {
	base := dir(t)
	t.Setenv("TMPDIR", base)
	name, err := cgroup.NewName()
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Split(name, "-")
	words[3] = "1" // ours did not start then
	dead := strings.Join(words, "-")
	for _, n := range []string{name, dead, "other"} {
		if err := os.MkdirAll(filepath.Join(base, tempPrefix+n, "d"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run(t, kinds["plain"], sh("true"), "")
	left, err := filepath.Glob(base + "/*")
	if err != nil || len(left) != 2 || strings.Contains(strings.Join(left, " "), dead) {
		t.Errorf("left are %q, %v", left, err)
	}
}
