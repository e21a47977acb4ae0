package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// initHome is a person's home with settings of three programs.
func initHome(t *testing.T) (home string, files map[string]string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("PATH", filepath.Join(home, "bin"))
	t.Setenv("RINGFENCE_HOME", filepath.Join(home, "own"))
	files = map[string]string{
		".claude.json":          "{\n  \"numStartups\": 3 // more\n}\n",
		".codex/config.toml":    "model = \"x\" # mine\n",
		".gemini/settings.json": "{\"ui\": {}}",
	}
	for name, text := range files {
		writeTestFile(t, filepath.Join(home, name), text)
	}
	return home, files
}

func writeTestFile(t *testing.T, file, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func initRun(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := Main(append([]string{"init"}, args...), strings.NewReader(""), &out, &errs); code != want {
		t.Fatalf("init %v: %d, want %d\n%s%s", args, code, want, &out, &errs)
	}
	return out.String() + errs.String()
}

// TestInit: what would change is shown, nothing changes without a yes, what has changed is
// not changed again, and undone everything is what it was.
func TestInit(t *testing.T) {
	home, files := initHome(t)
	said := initRun(t, codeDenied)
	for _, want := range []string{"+++ " + home + "/.claude.json", "+[mcp_servers.ringfence]", "+{\"ui\": {},", "Change "} {
		if !strings.Contains(said, want) && want != "Change " {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	unchanged := func() {
		t.Helper()
		for name, text := range files {
			if got, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(got) != text {
				t.Errorf("%s is %q, %v", name, got, err)
			}
		}
	}
	unchanged()
	initRun(t, codeDone, "--yes")
	for name := range files {
		got, err := os.ReadFile(filepath.Join(home, name))
		if err != nil || !bytes.Contains(got, []byte("ringfence")) {
			t.Errorf("%s is %q, %v", name, got, err)
		}
		if fi, err := os.Stat(filepath.Join(home, name)); err != nil || fi.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
	if again := initRun(t, codeDone, "--yes"); !strings.Contains(again, "nothing to change") {
		t.Errorf("said %q", again)
	}
	initRun(t, codeDone, "--undo", "--yes")
	unchanged()
	for _, made := range []string{".claude/settings.json", ".codex/hooks.json", "own/servers.json"} {
		if _, err := os.Stat(filepath.Join(home, made)); err == nil {
			t.Errorf("%s stays", made)
		}
	}
}

// TestInitChangedSince: a file that somebody has changed since keeps that change, and loses
// what is ours.
func TestInitChangedSince(t *testing.T) {
	home, _ := initHome(t)
	initRun(t, codeDone, "--yes", "claude")
	file := filepath.Join(home, ".claude.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	writeTestFile(t, file, strings.Replace(string(text), "3", "4", 1))
	initRun(t, codeDone, "--undo", "--yes")
	if got, err := os.ReadFile(file); err != nil || !strings.Contains(string(got), "4, // more") || strings.Contains(string(got), "\"ringfence\"") {
		t.Errorf("%s, %v", got, err)
	}
}

// TestInitLinked: a file that is a link stays one.
func TestInitLinked(t *testing.T) {
	home, files := initHome(t)
	file, dotfiles := filepath.Join(home, ".claude.json"), filepath.Join(home, "dotfiles.json")
	if err := os.Rename(file, dotfiles); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dotfiles, file); err != nil {
		t.Fatal(err)
	}
	initRun(t, codeDone, "--yes", "claude")
	if fi, err := os.Lstat(file); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", fi, err)
	}
	initRun(t, codeDone, "--undo", "--yes", "claude")
	if got, err := os.ReadFile(dotfiles); err != nil || string(got) != files[".claude.json"] {
		t.Errorf("%q, %v", got, err)
	}
}

// TestInitBroken: a broken file is named with its place, and nothing is changed.
func TestInitBroken(t *testing.T) {
	home, _ := initHome(t)
	writeTestFile(t, filepath.Join(home, ".codex/config.toml"), "model = \n")
	if said := initRun(t, codeFailed, "--yes"); !strings.Contains(said, "config.toml:1:") {
		t.Errorf("said %q", said)
	}
	if got, err := os.ReadFile(filepath.Join(home, ".gemini/settings.json")); err != nil || string(got) != "{\"ui\": {}}" {
		t.Errorf("%q, %v", got, err)
	}
	if said := initRun(t, codeUsage, "claud"); !strings.Contains(said, `did you mean "claude"?`) {
		t.Errorf("said %q", said)
	}
}
