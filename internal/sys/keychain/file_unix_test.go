//go:build unix

package keychain

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestUnsafeFiles(t *testing.T) {
	spoil := map[string]func(path string) error{
		"group readable": func(p string) error { return os.Chmod(p, 0o640) },
		"world readable": func(p string) error { return os.Chmod(p, 0o604) },
		"second name":    func(p string) error { return os.Link(p, p+"2") },
		"link": func(p string) error {
			return errors.Join(os.Rename(p, p+"2"), os.Symlink(p+"2", p))
		},
		"fifo": func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
		"other owner": func(p string) error {
			if os.Geteuid() != 0 { // only root can give files away
				return os.Chmod(p, 0o604)
			}
			return os.Chown(p, 65534, 65534)
		},
	}
	for name, f := range spoil {
		path := filepath.Join(t.TempDir(), "k")
		if _, err := LoadOrCreate(path); err != nil {
			t.Fatal(err)
		}
		if err := f(path); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadOrCreate(path); !errors.Is(err, ErrUnsafeFile) {
			t.Errorf("%s: %v, want ErrUnsafeFile", name, err)
		}
	}
}

// A creator that was killed between giving the key its name and removing the
// temporary one must not leave a home that no engine can start in.
func TestCreatorKilledBetweenItsTwoNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	want, err := LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, filepath.Join(filepath.Dir(path), ".key-123.tmp")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := LoadOrCreate(path); err != nil || !got.Equal(want) {
			t.Fatalf("%v; want the same key", err)
		}
	}
}
