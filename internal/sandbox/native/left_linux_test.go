package native

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// TestRebaseLeftBehind: what a rebase that a box has begun would run here is told, also
// where there was one; a rebase that ended, or was not touched, is not.
func TestRebaseLeftBehind(t *testing.T) {
	for script, told := range map[string]bool{
		"GIT_SEQUENCE_EDITOR='sed -i s/^pick/edit/' git rebase -q -i HEAD~1; echo 'exec touch /pwned' >>" + rebaseTodo: true,
		"GIT_SEQUENCE_EDITOR=true git rebase -q -i HEAD~1":                                                             false,
		"mkdir -p .git/rebase-merge; echo 'exec id' >" + rebaseTodo:                                                    true,
		"true": false,
		"ls":   false,
	} {
		w := dir(t)
		made := exec.Command("/bin/sh", "-ec", "git init -q .; git config user.name a; git config user.email a; for i in 1 2; do echo $i >f; git add f; git commit -qm $i; done")
		made.Dir = w
		if out, err := made.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if script == "ls" {
			if err := errors.Join(os.Mkdir(w+"/.git/rebase-merge", 0o755), os.WriteFile(filepath.Join(w, rebaseTodo), []byte("exec ours\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		s := sh("cd " + w + "; export HOME=" + w + "; " + script)
		s.Workspace, s.Profile = sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}, sandbox.ProfileAgent
		box, err := full().Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := box.Wait(); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, d := range box.Denials() {
			found = found || d.Op == sandbox.OpNotHeld && strings.HasSuffix(d.Object, rebaseTodo)
		}
		if found != told {
			t.Errorf("%s: told is %v: %+v", script, found, box.Denials())
		}
	}
}
