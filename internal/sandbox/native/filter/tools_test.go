//go:build linux

package filter

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestTools runs each testdata/tools/*.txtar in the program of an agent: the script
// "run", beside the other files, ends well and prints "want".
func TestTools(t *testing.T) {
	names, err := filepath.Glob("testdata/tools/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases (%v)", err)
	}
	options := asJSON(t, Options{Agent: true, Namespaces: true, Unix: true, Inet: true, RouteNetlink: true})
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			tools, ok := strings.CutPrefix(string(a.Comment), "needs: ")
			if !ok {
				t.Fatal("the first line does not say what the case needs")
			}
			for tool := range strings.FieldsSeq(tools) {
				if _, err := exec.LookPath(tool); err != nil {
					need(t, tool)
				}
			}
			dir, files := t.TempDir(), map[string]string{}
			for _, f := range a.Files {
				files[f.Name] = string(f.Data)
				path := filepath.Join(dir, f.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, f.Data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cmd := self(t, markRun, options, "sh", "-ec", files["run"])
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "GOCACHE="+goCache(t))
			var complaints strings.Builder
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil || string(out) != files["want"] {
				t.Errorf("%v; got:\n%s\nwant:\n%s\nand on standard error:\n%s", err, out, files["want"], complaints.String())
			}
		})
	}
}

// goCache is where compiled packages are kept, which is below HOME otherwise.
func goCache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("GOCACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "go-build")
}
