package inplace

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWritesWithinTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil || f.Size() != 10 {
		t.Fatal(f, err)
	}
	for _, c := range []struct {
		at   int64
		text string
		want string
	}{{3, "abc", "012abc6789"}, {8, "yz", "012abc67yz"}, {9, "yz", ""}, {-1, "y", ""}, {11, "", ""}, {1 << 62, "y", ""}, {10, "", "012abc67yz"}} {
		_, err := f.WriteAt([]byte(c.text), c.at)
		got, e := os.ReadFile(path)
		if e != nil || (err == nil) != (c.want != "") || len(got) != 10 || c.want != "" && string(got) != c.want {
			t.Errorf("%q at %d: %v, %v; the file is %q, want %q", c.text, c.at, err, e, got, c.want)
		}
	}
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	var b [3]byte
	if _, err := f.ReadAt(b[:], 3); err != nil || string(b[:]) != "abc" {
		t.Errorf("read %q, %v", b, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Sync(); err == nil {
		t.Error("a closed file was flushed")
	}
}

func TestOpensFilesOnly(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "x"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link, filepath.Join(dir, "none"), "/dev/null"} {
		if f, err := Open(path); err == nil {
			t.Errorf("%s was opened", path)
			f.Close()
		}
	}
}
