package subtree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostile is a directory with one thing of each kind in it.
func hostile(t *testing.T) (path string, d *Dir) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path = root + "/in"
	err = errors.Join(
		os.MkdirAll(path+"/dir", 0o750), os.WriteFile(root+"/secret", []byte("s"), 0o600), os.WriteFile(path+"/file", []byte("f"), 0o640),
		os.Symlink("../secret", path+"/out"), os.Symlink("dir", path+"/link"), os.Symlink("/", path+"/root"),
		unix.Mkfifo(path+"/fifo", 0o600), os.WriteFile(path+"/new\nline", nil, 0o600), unix.Chmod(path+"/file", 0o4755))
	if err != nil {
		t.Fatal(err)
	}
	if d, err = Open(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return path, d
}

// T1 and T2, as a table: what each name is, and whether it opens.
func TestNames(t *testing.T) {
	_, d := hostile(t)
	for name, want := range map[string]struct {
		kind      Kind
		dir, file bool
	}{
		"dir": {Directory, true, false}, "file": {File, false, true}, "out": {Link, false, false}, "link": {Link, false, false},
		"root": {Link, false, false}, "fifo": {Other, false, false}, "new\nline": {File, false, true},
	} {
		if i, err := d.Lstat(name); err != nil || i.Kind != want.kind {
			t.Errorf("%q is a %v, %v; want a %v", name, i.Kind, err, want.kind)
		}
		sub, err := d.Open(name)
		if (err == nil) != want.dir {
			t.Errorf("opening directory %q: %v", name, err)
		}
		if err == nil {
			sub.Close()
		}
		f, info, err := d.OpenFile(name)
		if (err == nil) != want.file || err == nil && info.Kind != File {
			t.Errorf("opening file %q: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
	if i, _ := d.Lstat("file"); i.Perm != 0o4755 {
		t.Errorf("permissions %o", i.Perm)
	}
	for _, name := range []string{"", ".", "..", "../secret", "dir/x", "/etc/passwd", "a\x00b"} {
		_, lerr := d.Lstat(name)
		_, oerr := d.Open(name)
		_, _, ferr := d.OpenFile(name)
		_, cerr := d.Create(name)
		for _, err := range []error{lerr, oerr, ferr, cerr, d.Remove(name), d.RemoveAll(name), d.Rename("file", name), d.Rename(name, "x"), d.Mkdir(name, 0), d.Symlink("x", name)} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	if _, err := d.Names(6); !errors.Is(err, ErrTooMany) {
		t.Errorf("7 names where 6 are taken: %v", err)
	}
	if all, err := d.Names(7); err != nil || len(all) != 7 {
		t.Errorf("%q, %v", all, err)
	}
}

func TestChanging(t *testing.T) {
	path, d := hostile(t)
	when := time.Unix(1_700_000_000, 123_456_789)
	f, err := d.Create("new")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := d.Create("out"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("creating through a link: %v", err)
	}
	for _, name := range []string{"out", "link", "fifo"} {
		if err := d.Chmod(name, 0o777); err == nil {
			t.Errorf("the mode of %s was changed", name)
		}
	}
	err = errors.Join(d.Chmod("new", 0o640), d.Touch("new", when), d.Touch("out", when), d.Rename("new", "out"), d.Mkdir("made", 0o500))
	if err != nil {
		t.Fatal(err)
	}
	if i, err := d.Lstat("out"); err != nil || i.Kind != File || i.Perm != 0o640 || !i.Modified.Equal(when) {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err := d.Lstat("made"); err != nil || i.Perm != 0o500 {
		t.Errorf("%+v, %v", i, err)
	}
	if err := errors.Join(d.Exchange("out", "file"), d.Exchange("out", "file")); err != nil {
		t.Error(err)
	}
	if err := d.RenameNew("out", "file"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("renaming over a file: %v", err)
	}
	if b, err := os.ReadFile(path + "/../secret"); string(b) != "s" {
		t.Errorf("the file outside: %q, %v", b, err)
	}
}

// A hole of a terabyte is copied in no time, and takes no room.
func TestCopySparse(t *testing.T) {
	path, d := hostile(t)
	const size = 1 << 40
	f, err := os.OpenFile(path+"/sparse", os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt([]byte("middle"), size/2)
	}
	if err = errors.Join(err, f.Truncate(size)); err != nil {
		t.Fatal(err)
	}
	to, err := d.Create("copy")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(to, f, size, 3); !errors.Is(err, ErrTooMuch) {
		t.Errorf("more data than was taken: %v", err)
	}
	data, err := Copy(to, f, size, 1<<20)
	if err = errors.Join(err, to.Close()); err != nil || data < 6 || data > 1<<20 {
		t.Fatalf("%d bytes, %v", data, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path+"/copy", &st); err != nil || st.Size != size || st.Blocks > 256 {
		t.Errorf("%d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
	got, _ := os.Open(path + "/copy")
	defer got.Close()
	b := make([]byte, 6)
	if _, err := got.ReadAt(b, size/2); err != nil || string(b) != "middle" {
		t.Errorf("%q, %v", b, err)
	}
}

// T3: what is deeper than any number of descriptors goes too, and what may not be read.
func TestRemoveAllIsDeep(t *testing.T) {
	path, d := hostile(t)
	const deep = 6000
	dir, err := unix.Open(path+"/dir", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range deep {
		if err := unix.Mkdirat(dir, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(dir, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(dir)
		if err != nil {
			t.Fatal(err)
		}
		dir = next
	}
	if err := errors.Join(unix.Symlinkat(path+"/..", dir, "up"), unix.Fchmod(dir, 0), unix.Close(dir), os.Chmod(path+"/dir", 0)); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveAll("dir"); err != nil {
		t.Fatal(err)
	}
	left, err := d.Names(100)
	if err != nil || slices.ContainsFunc(left, func(n string) bool { return strings.HasPrefix(n, "dir") }) {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := errors.Join(d.RemoveAll("root"), d.RemoveAll("nothing")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + "/../secret"); err != nil {
		t.Error(err)
	}
}
