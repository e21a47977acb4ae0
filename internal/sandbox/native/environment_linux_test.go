package native

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

func TestEnvironmentAndDescriptors(t *testing.T) {
	t.Setenv("NATIVE_SECRET", "leak")
	leak, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	if _, err := unix.FcntlInt(leak.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	for name, tier := range kinds {
		given, err := os.Open("/etc/passwd")
		if err != nil {
			t.Fatal(err)
		}
		defer given.Close()
		s := sh(`exec 3<&3; env | sort; pwd; head -c 4 <&3; for i in 4 5 6 7 8 9 63; do (: <&$i) 2>/dev/null && echo open $i; done; umask; cat; echo err >&2; exit 7`)
		s.Workspace = sandbox.Workspace{Path: dir(t), Mode: sandbox.ReadOnly}
		s.Files = []*os.File{given}
		out := run(t, tier, s, "input")
		temp := regexp.MustCompile("TMPDIR=/\\S+/" + tempPrefix + "\\S+\n")
		if (name == "plain") != temp.Match(out.Stdout) {
			t.Errorf("%s: a directory for temporary files: %q", name, out.Stdout)
		}
		out.Stdout = temp.ReplaceAll(out.Stdout, nil)
		want := fmt.Sprintf("PATH=/usr/bin:/bin\nPWD=%s\n%[1]s\nroot0022\ninput", s.Workspace.Path)
		if string(out.Stdout) != want || string(out.Stderr) != "err\n" || out.Exit.Status() != 7 {
			t.Errorf("%s: %q %q %v, want %q", name, out.Stdout, out.Stderr, out.Exit, want)
		}
		if out := run(t, tier, sandbox.Spec{Argv: []string{"/usr/bin/env"}}, ""); len(temp.ReplaceAll(out.Stdout, nil)) != 0 {
			t.Errorf("%s: with no environment the program sees %q", name, out.Stdout)
		}
	}
}
