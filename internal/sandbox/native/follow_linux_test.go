package native

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// written runs a script that ends well in a writable workspace, and returns what it
// was denied.
func written(t *testing.T, tier Tier, s sandbox.Spec, w string) (denied string, report sandbox.Report) {
	t.Helper()
	s.Workspace = sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}
	box, err := tier.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(box.Stderr())
	if exit, ended := box.Wait(); err != nil || ended != nil || exit.Status() != 0 {
		t.Fatalf("%v %v %v: %s", exit, err, ended, out)
	}
	for _, d := range box.Denials() {
		denied += d.Op + strings.TrimPrefix(d.Object, w) + "\n"
	}
	return denied, box.Report()
}

// Hooks that the configuration of a repository puts elsewhere are held there.
func TestHooksElsewhereAreHeld(t *testing.T) {
	for kind, tier := range kinds {
		w := dir(t)
		out, err := exec.Command("sh", "-c", `cd `+w+` && git init -q . && printf '[include]\n\tpath = ../conf\n' >>.git/config &&
			mkdir tools tools/hooks && printf '[core]\n\thooksPath = tools/hooks\n' >conf && ln -s tools soft && git config core.fsmonitor soft/watch`).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		denied, report := written(t, tier, sh(`cd `+w+`
			echo x >tools/hooks/pre-commit; echo x >>conf; mv tools other; rm soft; echo x >tools/watch; echo ok >tools/free; true`), w)
		if want := "create/tools/hooks/pre-commit\nwrite/conf\nrename/tools\ndelete/soft\ncreate/tools/watch\n"; denied != want {
			t.Errorf("%s: refused were %q, want %q", kind, denied, want)
		}
		if e := report.Evidence[sandbox.LayerHeld]; !strings.Contains(e, w+`/tools/hooks" (core.hookspath in `+w+"/conf)") {
			t.Errorf("%s: the report does not say that it was followed: %s", kind, e)
		}
	}
}

// Files that quoted words of commands and hooks name are held; a command that cannot be
// followed is told.
func TestCommandsAreFollowedOrTold(t *testing.T) {
	for kind, tier := range kinds {
		w := dir(t)
		out, err := exec.Command("sh", "-c", `cd `+w+` && git init -q . && git config core.editor '"./my ed.sh" -w' && git config filter.x.clean '$D/x.sh' &&
			printf '#!/bin/sh\n./lint.sh\n' >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && touch lint.sh 'my ed.sh' && chmod +x *.sh`).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		denied, report := written(t, tier, sh(`cd `+w+`; echo x >lint.sh; echo x >'my ed.sh'; echo ok >free; true`), w)
		if want := "not-heldfilter.x.clean in " + w + "/.git/config\nwrite/lint.sh\nwrite/my ed.sh\n"; denied != want {
			t.Errorf("%s: refused were %q, want %q", kind, denied, want)
		}
		if e := report.Evidence[sandbox.LayerHeld]; !strings.Contains(e, `git runs "$D/x.sh" outside of boxes`) {
			t.Errorf("%s: the report does not tell it: %s", kind, e)
		}
	}
}

// A file of the workspace that has another name elsewhere is not written, also where
// nothing is held by its name.
func TestSharedFileWhereLaterIsWritable(t *testing.T) {
	for kind, tier := range kinds {
		top := dir(t)
		w, out := top+"/w", top+"/outside"
		for _, err := range []error{os.Mkdir(w, 0o755), os.WriteFile(out, []byte("kept"), 0o666), os.Link(out, w+"/shared")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		s := sh(`cd ` + w + `; echo x >shared; echo x >>shared; truncate -s 0 shared; echo later >.envrc; mkdir -p .git/hooks; echo x >.git/hooks/pre-commit`)
		s.LaterWritable = true
		denied, _ := written(t, tier, s, w)
		if b, err := os.ReadFile(out); string(b) != "kept" {
			t.Errorf("%s: a file outside is %q, %v", kind, b, err)
		}
		if strings.Contains(denied, ".envrc") || strings.Contains(denied, ".git") {
			t.Errorf("%s: refused were %q", kind, denied)
		}
	}
}

// In an overlay what a Spec holds is held, and what runs later is not: that is when the
// changes are applied.
func TestHeldInOverlay(t *testing.T) {
	s, ws, upper := reviewed(t, os.Getuid(), `echo x >old; rm old; mkdir -p .git/hooks && echo x >.git/hooks/pre-commit && echo x >.envrc && cat old`)
	s.Held = []string{ws + "/old"}
	out := run(t, full(), s, "")
	if out.Exit.Status() != 0 || string(out.Stdout) != "old\n" {
		t.Errorf("%v: %q %s", out.Exit, out.Stdout, out.Stderr)
	}
	if _, err := os.Stat(upper + "/.git/hooks/pre-commit"); err != nil {
		t.Error(err)
	}
}
