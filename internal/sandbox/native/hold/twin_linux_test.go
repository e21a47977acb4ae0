package hold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// An op is one system call. A, B are paths, D and E stand for directories that are
// open: 0 is none, 1 and 2 are "d" and "d/e" as they were at the start.
type op struct {
	Call  string
	A, B  string
	D, E  int
	Flags int
	Mode  uint32
}

// A done is what came of an op.
type done struct {
	Errno  int
	Status string // of what was opened
}

// runOps issues the ops that it reads and writes what came of them.
func runOps([]string) error {
	var ops []op
	if err := json.NewDecoder(os.Stdin).Decode(&ops); err != nil {
		return err
	}
	dirs := [3]int{unix.AT_FDCWD}
	for i, name := range []string{"d", "d/e"} {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		dirs[i+1] = fd
	}
	all := make([]done, len(ops))
	for i, o := range ops {
		all[i] = issue(o, dirs)
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func issue(o op, dirs [3]int) done {
	d, e := dirs[o.D], dirs[o.E]
	a, b := cString(o.A), cString(o.B)
	call := func(nr uintptr, args ...uintptr) done {
		args = append(args, make([]uintptr, 6-len(args))...)
		_, _, e := unix.Syscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5])
		return done{Errno: int(e)}
	}
	dd, ee, flags, mode := uintptr(d), uintptr(e), uintptr(o.Flags), uintptr(o.Mode)
	switch o.Call {
	case "open":
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, dd, a, flags, mode, 0, 0)
		if errno != 0 {
			return done{Errno: int(errno)}
		}
		return done{Status: tryOut(int(fd), o)}
	case "tmpfile":
		fd, _, errno := unix.Syscall6(unix.SYS_OPENAT, dd, a, unix.O_TMPFILE|unix.O_RDWR|flags, mode, 0, 0)
		if errno != 0 {
			return done{Errno: int(errno)}
		}
		defer unix.Close(int(fd))
		err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), e, o.B, unix.AT_SYMLINK_FOLLOW)
		return done{Status: fmt.Sprint(err)}
	case "mkdir":
		return call(unix.SYS_MKDIRAT, dd, a, mode)
	case "mknod":
		return call(unix.SYS_MKNODAT, dd, a, mode, 0)
	case "symlink":
		return call(unix.SYS_SYMLINKAT, a, ee, b)
	case "link":
		return call(unix.SYS_LINKAT, dd, a, ee, b, flags)
	case "rename":
		return call(unix.SYS_RENAMEAT2, dd, a, ee, b, flags)
	case "unlink":
		return call(unix.SYS_UNLINKAT, dd, a, flags)
	case "truncate":
		return call(unix.SYS_TRUNCATE, a, mode)
	case "chmod":
		return call(unix.SYS_FCHMODAT, dd, a, mode)
	case "chmod2":
		return call(unix.SYS_FCHMODAT2, dd, a, mode, flags)
	case "umask":
		unix.Umask(int(o.Mode))
		return done{}
	case "chdir":
		return call(unix.SYS_CHDIR, a)
	}
	return done{Errno: -1}
}

func cString(s string) uintptr {
	if s == "<null>" {
		return 0
	}
	b := append([]byte(s), 0)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

// kept keeps the strings of calls alive.
var kept [][]byte

// tryOut uses a descriptor, and says what it is.
func tryOut(fd int, o op) string {
	defer unix.Close(fd)
	status, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	closing, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	n, werr := unix.Write(fd, []byte(o.A))
	const told = unix.O_ACCMODE | unix.O_APPEND | unix.O_NONBLOCK | unix.O_PATH
	return fmt.Sprintf("%o %d %v %v %o %d %v %v", status&told, closing, st.Mode, st.Nlink, st.Size, n, werr, err)
}

var (
	names = []string{
		"a", "b", "c", "d", "d/e", "d/x", "d/e/y", "l", "d/l", "./a", "d/../b", "a/", "d/", "d//", "d/.", "d/..", ".", "..", "", "l/x", "d/l/y",
		"a/b", "missing/x", "<null>", "\xff\xfe", "d/e/../x", "//", "new", "d/new", "new/", strings.Repeat("n", 255), strings.Repeat("n", 256),
		"/proc/self/cwd/a", "/proc/self/cwd//new", "/proc/thread-self/cwd/d/../x", "/proc/self/fd/9999/a", "/dev/cwd/a",
		strings.Repeat("d/../", 300) + "a", strings.Repeat("d/../", 1000) + "a",
	}
	openFlags = []int{
		unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_CREAT, unix.O_RDWR | unix.O_CREAT | unix.O_EXCL, unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC,
		unix.O_RDONLY | unix.O_CREAT, unix.O_WRONLY | unix.O_APPEND, unix.O_WRONLY | unix.O_TRUNC, unix.O_RDWR | unix.O_DIRECTORY, unix.O_WRONLY | unix.O_CREAT | unix.O_DIRECTORY,
		unix.O_PATH | unix.O_RDWR, unix.O_PATH | unix.O_CREAT, unix.O_ACCMODE, unix.O_RDONLY | unix.O_CREAT | unix.O_EXCL, unix.O_TMPFILE, unix.O_TMPFILE | unix.O_RDWR, tmpfileBit | unix.O_RDWR,
	}
	extraFlags = []int{0, 0, unix.O_NOFOLLOW, unix.O_CLOEXEC, unix.O_CLOEXEC | unix.O_APPEND, unix.O_SYNC}
	calledOps  = []string{
		"open", "open", "open", "open", "tmpfile", "mkdir", "mknod", "symlink", "symlink", "link", "link", "rename", "rename", "rename", "unlink", "unlink",
		"truncate", "chmod", "chmod2", "umask", "chdir",
	}
)

func drawOp(t *rapid.T) op {
	o := op{
		Call: rapid.SampledFrom(calledOps).Draw(t, "call"),
		A:    rapid.SampledFrom(names).Draw(t, "a"), B: rapid.SampledFrom(names).Draw(t, "b"),
		D: rapid.IntRange(0, 2).Draw(t, "d"), E: rapid.IntRange(0, 2).Draw(t, "e"),
		Mode: uint32(rapid.SampledFrom([]int{0o644, 0o777, 0o600, 0o666, 0o400, 0o1755}).Draw(t, "mode")),
	}
	switch o.Call {
	case "open":
		if rapid.IntRange(0, 9).Draw(t, "device") == 0 {
			o.A = "/dev/null"
		}
		// Not blocking: a pipe would keep both twins for ever.
		o.Flags = unix.O_NONBLOCK | rapid.SampledFrom(openFlags).Draw(t, "flags") | rapid.SampledFrom(extraFlags).Draw(t, "more")
	case "tmpfile":
		o.Flags = rapid.SampledFrom([]int{0, unix.O_EXCL, unix.O_CLOEXEC}).Draw(t, "flags")
	case "mknod":
		o.Mode |= rapid.SampledFrom([]uint32{0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFDIR}).Draw(t, "kind")
	case "link":
		o.Flags = rapid.SampledFrom([]int{0, unix.AT_SYMLINK_FOLLOW, 1}).Draw(t, "flags")
	case "rename":
		o.Flags = rapid.SampledFrom([]int{0, 0, unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE, 3, 8}).Draw(t, "flags")
	case "unlink":
		o.Flags = rapid.SampledFrom([]int{0, unix.AT_REMOVEDIR, 1}).Draw(t, "flags")
	case "chmod2":
		o.Flags = rapid.SampledFrom([]int{0, unix.AT_SYMLINK_NOFOLLOW, unix.AT_EMPTY_PATH, 1}).Draw(t, "flags")
	case "umask":
		o.Mode = rapid.SampledFrom([]uint32{0, 0o022, 0o077, 0o007}).Draw(t, "umask")
	}
	return o
}

// TestTwin: where nothing is held, calls that are performed for a program leave what
// they would leave by themselves, and say the same.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		checkTwin(t, rt, rapid.SliceOfN(rapid.Custom(drawOp), 1, 60).Draw(rt, "ops"))
	})
}

// TestTwinsFound: the calls of testdata/twins.jsonl, a list in each line, did not once.
func TestTwinsFound(t *testing.T) {
	text, err := os.ReadFile("testdata/twins.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var ops []op
		if err := json.Unmarshal(line, &ops); err != nil {
			t.Fatal(err)
		}
		checkTwin(t, t, ops)
	}
}

// A failer is a test, or one round of a property.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// checkTwin has ops done in both trees of a new twin.
func checkTwin(t *testing.T, f failer, ops []op) {
	text, err := json.Marshal(ops)
	if err != nil {
		f.Fatal(err)
	}
	b := newTwin(t)
	plain := exec.Command("/proc/self/exe", "ops")
	plain.Dir, plain.Stdin, plain.Stderr = b.dir+"/w", bytes.NewReader(text), os.Stderr
	unix.Umask(0o022)
	want, err := plain.Output()
	if err != nil {
		f.Fatal(err)
	}
	got, err := b.start(confinement{Dir: b.ws + "/w", Free: []string{b.dir}}, bytes.NewReader(text), "/proc/self/exe", "ops")
	if err != nil {
		f.Fatal(err, got)
	}
	compare(f, ops, want, []byte(got))
	if a, b := tree(f, b.dir), tree(f, b.ws); a != b {
		f.Fatalf("by itself:\n%s\nperformed:\n%s", a, b)
	}
}

// newTwin returns a box with two equal trees, of which dir is for no box.
func newTwin(t *testing.T) *box {
	b := newBox(t)
	for _, top := range []string{b.dir + "/w", b.ws + "/w"} {
		err := errors.Join(os.MkdirAll(top+"/d/e", 0o755), os.WriteFile(top+"/a", []byte("a"), 0o644), os.Symlink("d", top+"/l"), os.Symlink("../new", top+"/d/l"))
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func compare(t failer, ops []op, want, got []byte) {
	var w, g []done
	if err := errors.Join(json.Unmarshal(want, &w), json.Unmarshal(got, &g)); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	for i := range ops {
		if w[i] != g[i] {
			t.Fatalf("op %d, %+v: by itself %+v, performed %+v", i, ops[i], w[i], g[i])
		}
	}
}

// tree describes everything beneath top.
func tree(t failer, top string) string {
	var b strings.Builder
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if errors.Is(err, fs.ErrPermission) || unix.Lstat(name, &st) != nil {
			return nil //nolint:nilerr // what cannot be looked at is so in the other tree too
		}
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(top, name)
		if len(rel) > 80 {
			rel = rel[:80]
		}
		content := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			content, _ = os.Readlink(name)
		case unix.S_IFREG:
			b, _ := os.ReadFile(name)
			content = string(b[:min(len(b), 60)])
		}
		fmt.Fprintf(&b, "%q %o %d %q\n", rel, st.Mode, st.Nlink, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
