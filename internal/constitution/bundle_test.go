package constitution

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

func testKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", ed25519.SeedSize)))
}

func compiled(t *testing.T, layer, text string) *Compiled {
	t.Helper()
	c, err := Compile(Source{Name: "c.md", Text: []byte(text), Layer: layer}, Options{Granting: layer == ""})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// inForce returns the constitution of the bundle in dir, checked as at run time.
func inForce(t *testing.T, dir string) string {
	t.Helper()
	_, b, err := policy.LoadBundle(os.DirFS(dir), policy.Options{
		Trusted: []ed25519.PublicKey{testKey().Public().(ed25519.PublicKey)}, Binding: policy.Binding{Workspace: "/w", Home: "/h"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b.Constitution)
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "bundle")
	const first, second = "The agent may read files in the workspace.", "The agent may push."
	if err := Write(dir, compiled(t, "", first), "v1", testKey()); err != nil {
		t.Fatal(err)
	}
	if got := inForce(t, dir); got != first {
		t.Errorf("in force: %q", got)
	}
	if err := Write(dir, compiled(t, "", second), "v1", testKey()); err != nil {
		t.Fatal(err)
	}
	if got := inForce(t, dir); got != second {
		t.Errorf("in force: %q", got)
	}
	if err := Write(filepath.Join(dir, "..", "lower"), compiled(t, "user", "Pushing needs approval."), "v1", testKey()); err != nil {
		t.Fatal(err)
	}
	rest, err := filepath.Glob(filepath.Join(dir, "..", "*"))
	if err != nil || len(rest) != 2 {
		t.Errorf("left behind: %v %v", rest, err)
	}
}

// TestLastGoodStays makes every step of a replacement fail; what was in force
// stays in force.
func TestLastGoodStays(t *testing.T) {
	const good = "The agent may read files in the workspace."
	cases := map[string]func(t *testing.T, dir string) error{
		"a scenario fails": func(t *testing.T, dir string) error {
			c := compiled(t, "", "The agent may push.")
			c.Scenarios[len(c.Scenarios)-1].Verdict = act.Deny.String()
			c.Scenarios[0].Verdict = act.Allow.String()
			return Write(dir, c, "v1", testKey())
		},
		"the policy says something else": func(t *testing.T, dir string) error {
			c := compiled(t, "", "The agent may push.")
			c.Cedar = compiled(t, "", "The agent may commit.").Cedar
			return Write(dir, c, "v1", testKey())
		},
		"the policy does not load": func(t *testing.T, dir string) error {
			c := compiled(t, "", "The agent may push.")
			c.Cedar = []byte("permit (nobody);")
			return Write(dir, c, "v1", testKey())
		},
		"there is no key": func(t *testing.T, dir string) error {
			return Write(dir, compiled(t, "", "The agent may push."), "v1", nil)
		},
		"a lower layer says something else": func(t *testing.T, dir string) error {
			c := compiled(t, "user", "Pushing needs approval.")
			c.Cedar = compiled(t, "user", "Committing needs approval.").Cedar
			return Write(dir, c, "v1", testKey())
		},
	}
	for name, attempt := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bundle")
			if err := Write(dir, compiled(t, "", good), "v1", testKey()); err != nil {
				t.Fatal(err)
			}
			if err := attempt(t, dir); err == nil {
				t.Error("written")
			}
			if got := inForce(t, dir); got != good {
				t.Errorf("in force: %q", got)
			}
			if rest, err := filepath.Glob(dir + ".*"); err != nil || rest != nil {
				t.Errorf("left behind: %v %v", rest, err)
			}
		})
	}
}

// TestCutOff finds the last good bundle again where a replacement was cut off
// between its two steps.
func TestCutOff(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bundle")
	if err := Write(dir, compiled(t, "", "The agent may push."), "v1", testKey()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+suffixOld); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, compiled(t, "", "The agent may push."), "v1", nil); err == nil {
		t.Fatal("written without a key")
	}
	if err := recoverOld(dir); err != nil {
		t.Fatal(err)
	}
	if got := inForce(t, dir); got != "The agent may push." {
		t.Errorf("in force: %q", got)
	}
}

// TestForeignDirectory does not replace a directory that holds something else.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(file, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Write(dir, compiled(t, "", "The agent may push."), "v1", testKey())
	if err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if err := Write(file, compiled(t, "", "The agent may push."), "v1", testKey()); err == nil {
		t.Error("a file was replaced by a bundle")
	}
}

// TestScenarioFails compiles nothing of which the policy decides otherwise.
func TestScenarioFails(t *testing.T) {
	c := compiled(t, "", "The agent may push to main.\n\nDeleting files needs approval.")
	data, err := marshalScenarios(c.Scenarios)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseScenarios(data)
	if err != nil || len(again) != len(c.Scenarios) {
		t.Fatalf("%d of %d read back: %v", len(again), len(c.Scenarios), err)
	}
	c.Scenarios = again
	if err := verify(c); err != nil {
		t.Fatal(err)
	}
	last := &c.Scenarios[len(c.Scenarios)-1]
	last.Verdict = map[string]string{"deny": "allow", "allow": "deny", "escalate": "deny"}[last.Verdict]
	err = verify(c)
	var bad *Errors
	if !errors.As(err, &bad) || len(bad.Findings) != 1 || bad.Findings[0].Line != 3 || bad.Findings[0].Clause != "c2" {
		t.Errorf("error %v", err)
	}
	if _, err := ParseScenarios([]byte("{}\n{\"verdict\":1}\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v", err)
	}
	if b := ScenarioBinding(); b.Workspace == "" || b.Home == "" {
		t.Error("no binding")
	}
}
