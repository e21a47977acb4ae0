package native

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// What the host runs later is held in a writable workspace, in both kinds of boxes,
// and everything else works.
func TestHeldFiles(t *testing.T) {
	for kind, tier := range kinds {
		w := dir(t)
		if out, err := exec.Command("git", "init", "-q", w).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if err := errors.Join(os.WriteFile(w+"/keep", []byte("kept\n"), 0o644), os.Mkdir(w+"/sub", 0o755)); err != nil {
			t.Fatal(err)
		}
		s := sh(`cd ` + w + `
			echo x >.git/hooks/pre-commit; echo x >>.git/config; mkdir sub/.git; echo x >.envrc; mv .git elsewhere
			echo y >keep; rm keep; mv sub other; echo ok >file; mkdir -p a/b/c; echo z >a/b/c/d; mv a/b e; chmod 600 file; cat file e/c/d
			ln file link; ln -s file soft; rm link; touch -d 2001-01-01 file; ls`)
		s.Workspace = sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}
		s.Held = []string{w + "/keep"}
		box, err := tier.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(box.Stdout())
		exit, ended := box.Wait()
		if err != nil || ended != nil || exit.Status() != 0 {
			t.Fatalf("%s: %v %v %v", kind, exit, err, ended)
		}
		if want := "ok\nz\na\ne\nfile\nkeep\nother\nsoft\n"; string(out) != want {
			t.Errorf("%s: %q, want %q", kind, out, want)
		}
		var got []string
		for _, d := range box.Denials() {
			later := d.Op != sandbox.OpNotHeld && d.Object != w+"/keep"
			if d.Rule == "" || !d.Observed || d.Count < 1 || strings.HasPrefix(d.Fix, "--review") != later {
				t.Errorf("%s: %+v", kind, d)
			}
			got = append(got, d.Op+strings.TrimPrefix(d.Object, w))
		}
		want := []string{"create/.git/hooks/pre-commit", "write/.git/config", "not-held/sub", "create/.envrc", "rename/.git", "write/keep", "delete/keep", "not-held/other"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: refused were %q, want %q", kind, got, want)
		}
		if !slices.Contains(box.Report().Inferred, sandbox.LayerHeld) {
			t.Errorf("%s: the report does not say that names are held: %v", kind, box.Report())
		}
	}
}
