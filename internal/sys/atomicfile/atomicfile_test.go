package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// only fails unless dir holds exactly the named entries.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("directory holds %q, want %q", got, names)
	}
}

func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for i, mode := range []os.FileMode{0o600, 0o644, 0o666} {
		want := fmt.Sprint("content ", i)
		write := Write
		switch i {
		case 1:
			write = WriteSoon
		case 2:
			write, want = WriteBlocks, strings.Repeat(want, 1000)
		}
		if err := write(path, []byte(want), mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("mode %v, %v; want %v", fi.Mode(), err, mode)
		}
	}
	only(t, dir, "f")
}

func TestWriteReplacesLinkNotTarget(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "f")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
		t.Errorf("the target of the link now holds %q, %v", got, err)
	}
	if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("path is %v, %v; want a regular file", fi.Mode(), err)
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if Write(path, []byte("x"), 0o600) == nil || WriteSoon(path, []byte("x"), 0o600) == nil {
		t.Error("wrote over a directory")
	}
	if err := CreateNew(path, []byte("x"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("CreateNew over a directory: %v, want fs.ErrExist", err)
	}
	if err := Write(filepath.Join(dir, "none", "f"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing directory: %v, want fs.ErrNotExist", err)
	}
	only(t, dir, "f")
}

func TestCreateNewOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	var wg sync.WaitGroup
	won := make(chan string, 16)
	for i := range cap(won) {
		wg.Go(func() {
			content := fmt.Sprint("writer ", i)
			switch err := CreateNew(path, []byte(content), 0o600); {
			case err == nil:
				won <- content
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(won)
	if len(won) != 1 {
		t.Fatalf("%d calls succeeded, want 1", len(won))
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != <-won {
		t.Errorf("file holds %q, %v", got, err)
	}
	only(t, dir, "f")
}

// TestOutputStaysWhatItIs: a device or a pipe that a person named is written to, not
// replaced by a file, and neither is a link to a file.
func TestOutputStaysWhatItIs(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pipe, link, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := errors.Join(os.Symlink(fmt.Sprintf("/dev/fd/%d", w.Fd()), pipe), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, pipe} {
		if err := WriteOutput(path, []byte(filepath.Base(path)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	piped, err := io.ReadAll(r)
	if err != nil || string(piped) != "pipe" {
		t.Errorf("through the pipe came %q, %v", piped, err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "link" {
		t.Errorf("the file has %q, %v", got, err)
	}
	for _, path := range []string{link, pipe} {
		if fi, err := os.Lstat(path); err != nil || fi.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s became %v, %v", path, fi.Mode(), err)
		}
	}
}
