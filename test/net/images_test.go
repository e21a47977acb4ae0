//go:build linux

package net_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/agent/image"
)

// packed puts the packages of an agent where they are kept, as npm fetches them: the servers
// of the tests have none.
func packed(t *testing.T, own string, tm image.Template, arch string) {
	t.Helper()
	list, err := tm.For(arch)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kept, to := filepath.Join(cache, "ringfence-tests", "packs"), filepath.Join(own, "images")
	if err := errors.Join(os.MkdirAll(kept, 0o700), os.MkdirAll(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		name := strings.ReplaceAll(strings.TrimPrefix(p.Name, "@"), "/", "-") + "-" + p.Version + ".tgz"
		if _, err := os.Stat(filepath.Join(kept, name)); err != nil {
			temp := t.TempDir()
			if out, err := exec.CommandContext(t.Context(), "npm", "pack", "--silent", "--pack-destination", temp, p.Name+"@"+p.Version).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			text, err := os.ReadFile(filepath.Join(temp, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(kept, name), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(filepath.Join(kept, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, strings.NewReplacer("/", "-", "+", "_").Replace(strings.TrimPrefix(p.Integrity, "sha512-"))+".tgz"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunInOwnImage: an agent that this machine does not have works in an image that was made
// for it, which is the same however often it is made.
func TestRunInOwnImage(t *testing.T) {
	inEngines(t, func(t *testing.T, name, socket, base string) {
		a := agents[0]
		p, m, at := agentPlace(t, a, `cat a.txt; command -v claude socat sudo; echo looked`)
		close(m.seen)
		p.Work = filepath.Join(p.Person, "work") // nobody in a container gets through the home of root
		p.node = "/nonexistent"                  // the agents of this machine
		p.boxes(t, map[string]any{"container": map[string]any{"host": "unix://" + socket, "runtime": name}})
		err := os.WriteFile(filepath.Join(p.Work, "a.txt"), []byte("swordfish\n"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
		defer cancel()
		run := func(args ...string) (string, error) {
			out, err := p.running(ctx, a, at, append([]string{"run", "--ask", "never", "--policy", p.policy, "--tier", "container", "--review"}, args...)...).CombinedOutput()
			return string(out), err
		}
		if out, err := run(a.name, "--version"); err == nil || !strings.Contains(out, "ringfence images build claude") {
			t.Errorf("without an image: %v\n%s", err, out)
		}
		built := func() string {
			tm, _, err := image.Lookup(a.name)
			if err != nil {
				t.Fatal(err)
			}
			packed(t, p.Own, tm, "amd64")
			if out, err := p.Run(ctx, "images", "build", a.name, "--base", base, "--ask", "never"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			list, err := p.Run(ctx, "images", "list", "--json")
			if err != nil || strings.Contains(string(list), `"stale"`) || !strings.Contains(string(list), `"agent":"claude"`) {
				t.Fatalf("%v\n%s", err, list)
			}
			return string(list)
		}
		first := built()
		if out, err := p.Run(ctx, "images", "prune", "--all"); err != nil || !strings.Contains(string(out), a.name) {
			t.Errorf("%v\n%s", err, out)
		}
		if again := built(); again != first {
			t.Errorf("made %s\nthen %s", first, again)
		}
		if out, err := run(a.name, "-p", "Look around."); err != nil || !strings.Contains(out, "all done") {
			t.Fatalf("%v\n%s", err, out)
		}
		_, _, sent := m.heard()
		for _, want := range []string{"swordfish", "/opt/ringfence/bin/claude", "looked"} {
			if !strings.Contains(sent, want) {
				t.Errorf("the model did not hear of %q", want)
			}
		}
		if strings.Contains(sent, "bin/socat") || strings.Contains(sent, "bin/sudo") {
			t.Error("the image has socat or sudo")
		}
		if out, err := run("--image", base, "--", "sh", "-c", "command -v claude || echo none"); err != nil || !strings.Contains(out, "none") {
			t.Errorf("in another image: %v\n%s", err, out)
		}
	})
}
