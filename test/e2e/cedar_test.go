package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCedarItself is R9, the part about the language: what the policies mean to the Go
// implementation of Cedar, by which the oracle of package policy is checked, they mean to
// Cedar's own, in Rust.
func TestCedarItself(t *testing.T) {
	dir := os.Getenv("RINGFENCE_TEST_NODE_DIR")
	if dir == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs RINGFENCE_TEST_NODE_DIR: scripts/need.sh")
		}
		t.Skip("needs RINGFENCE_TEST_NODE_DIR: scripts/need.sh")
	}
	cases := filepath.Join(t.TempDir(), "cases.jsonl")
	oracle := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestOracle$", "ringfence/internal/policy")
	oracle.Env = append(os.Environ(), "RINGFENCE_TEST_CEDAR_CASES="+cases)
	if out, err := oracle.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	node := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules/.bin/node"), "testdata/cedar.cjs", cases)
	node.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"))
	out, err := node.CombinedOutput()
	if err != nil || !strings.Contains(string(out), " differ 0\n") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
