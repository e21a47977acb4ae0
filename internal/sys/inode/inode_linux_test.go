package inode

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// I1.
func TestRenameNoReplace(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, n), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir)
	for _, taken := range []string{"b", "link"} {
		if err := RenameNoReplace(d, "a", d, taken); !errors.Is(err, fs.ErrExist) {
			t.Errorf("over %s: %v", taken, err)
		}
	}
	if err := RenameNoReplace(d, "a", d, "x/y"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("with a slash: %v", err)
	}
	if err := RenameNoReplace(d, "missing", d, "c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if err := RenameNoReplace(d, "a", d, "c"); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "c")); string(b) != "a" {
		t.Errorf("c holds %q", b)
	}
}

func TestTimesOf(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := TimesOf(open(t, name))
	if err != nil || got.Accessed.Before(start) || !got.Born.IsZero() && got.Born.Before(start) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestKeepOwner(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root to give files away")
		}
		t.Skip("needs root to give files away")
	}
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	for _, n := range []string{old, fresh} {
		if err := os.WriteFile(n, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(old, 12345, 23456); err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(old)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, fresh)
	if err := KeepOwner(f, was); err != nil {
		t.Fatal(err)
	}
	now, _ := f.Stat()
	if a, b := now.Sys(), was.Sys(); owner(a) != owner(b) {
		t.Errorf("owner %v, want %v", owner(a), owner(b))
	}
}

func owner(sys any) [2]uint32 {
	st := sys.(*syscall.Stat_t)
	return [2]uint32{st.Uid, st.Gid}
}
