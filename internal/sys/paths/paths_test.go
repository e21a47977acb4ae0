package paths

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHome(t *testing.T) {
	user, wd := t.TempDir(), t.TempDir()
	t.Setenv("HOME", user)
	t.Chdir(wd)
	for env, want := range map[string]string{
		"":         filepath.Join(user, ".ringfence"),
		"/srv/h/":  "/srv/h",
		"here/..":  wd,
		"./nested": filepath.Join(wd, "nested"),
	} {
		t.Setenv(EnvHome, env)
		if got, err := Home(); err != nil || got != want {
			t.Errorf("%s=%q: %q, %v; want %q", EnvHome, env, got, err, want)
		}
	}
}

func TestEnsureHome(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "a", "b")
	t.Setenv(EnvHome, home)
	if got, err := EnsureHome(); err != nil || got != home {
		t.Fatalf("%q, %v", got, err)
	}
	if fi, err := os.Stat(home); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v; want 0700", fi.Mode(), err)
	}
	for mode, safe := range map[os.FileMode]bool{0o755: true, 0o770: false, 0o702: false, 0o700: true} {
		if err := os.Chmod(home, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := EnsureHome(); (err == nil) != safe || !safe && !errors.Is(err, ErrUnsafeHome) {
			t.Errorf("mode %04o: %v, want safe %v", mode, err, safe)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(home, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := EnsureHome(); !errors.Is(err, ErrUnsafeHome) {
			t.Errorf("home of another user: %v, want ErrUnsafeHome", err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvHome, file)
	if _, err := EnsureHome(); err == nil {
		t.Error("a file was accepted as home")
	}
}

func TestEngineSocket(t *testing.T) {
	short := filepath.Join(t.TempDir(), "h")
	if got, err := EngineSocket(short); len(short) < 90 && (err != nil || got != filepath.Join(short, "engine.sock")) {
		t.Errorf("short home: %q, %v", got, err)
	}

	run, err := os.MkdirTemp("/tmp", "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", run)
	first, err := EngineSocket(long)
	if err != nil || !strings.HasPrefix(first, run) || len(first) > maxSocket {
		t.Fatalf("long home: %q, %v", first, err)
	}
	if fi, err := os.Stat(filepath.Dir(first)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("directory of the socket: %v, %v", fi.Mode(), err)
	}

	t.Setenv("XDG_RUNTIME_DIR", "")
	if got, err := EngineSocket(long); err != nil || got != first {
		t.Errorf("another environment: %q, %v; want %q", got, err, first)
	}

	if err := os.RemoveAll(filepath.Join(run, "ringfence")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(run, "ringfence"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(run, "ringfence"), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", run)
	got, err := EngineSocket(long)
	if err != nil || strings.HasPrefix(got, run) {
		t.Errorf("unsafe runtime directory: %q, %v; want a path elsewhere", got, err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(got)) })
}
