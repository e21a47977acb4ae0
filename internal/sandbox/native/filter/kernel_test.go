//go:build linux

package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Marks as the first argument of the test binary make it something else: a runner,
// which installs the program for the Options in the second argument and executes the
// others; or one of the calls below.
const (
	markRun   = "run-under-filter"   // OPTIONS PROGRAM ARGUMENT…
	markCall  = "calls-under-filter" // OPTIONS, and calls as JSON on standard input
	markBlob  = "blob-under-filter"  // OPTIONS, or "none" for no filter
	markFirst = "first-process"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 3 && os.Args[1] == markRun:
		err = runUnder(os.Args[2], os.Args[3:])
	case len(os.Args) == 3 && os.Args[1] == markCall:
		err = callUnder(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == markBlob:
		err = blobUnder(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == markFirst:
		err = firstProcess()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "under the filter:", err)
		os.Exit(125)
	}
	os.Exit(0)
}

func installFrom(options string, flags uintptr) error {
	var o Options
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	return install(o, flags)
}

func runUnder(options string, argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := installFrom(options, 0); err != nil {
		return err
	}
	return unix.Exec(path, argv, os.Environ())
}

// A probe is a call to make.
type probe struct {
	Number uint32
	Args   [6]uint64
}

// callUnder makes the calls on standard input and prints the error number of each.
func callUnder(options string) error {
	var probes []probe
	if err := json.NewDecoder(os.Stdin).Decode(&probes); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := installFrom(options, 0); err != nil {
		return err
	}
	for _, p := range probes {
		a := p.Args
		_, _, e := unix.RawSyscall6(uintptr(p.Number), uintptr(a[0]), uintptr(a[1]), uintptr(a[2]), uintptr(a[3]), uintptr(a[4]), uintptr(a[5]))
		fmt.Println(int(e))
	}
	return nil
}

// install puts the program for o on this thread, or with flags on more.
func install(o Options, flags uintptr) error {
	program, err := Build(o)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if e != 0 {
		return fmt.Errorf("installing %d instructions: %w", len(program), e)
	}
	return nil
}

// need skips the test without what, and fails it where everything must be there.
func need(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("needs %s", what)
	}
	t.Skipf("needs %s", what)
}

// self returns a command that runs this test binary.
func self(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(me, args...)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// killedBy is the signal that ended a command, 0 if it ended otherwise.
func killedBy(err error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0
	}
	return status.Signal()
}

// TestKernel makes the calls of testdata/verdicts.txt under the installed program.
// What would be handed over is answered ENOSYS where nobody listens (seccomp(2)).
func TestKernel(t *testing.T) {
	a, err := host()
	if err != nil {
		need(t, "an architecture with a table")
	}
	batches := map[Options][]vector{}
	for _, v := range readVectors(t) {
		_, ok := v.number(a)
		switch {
		case !ok || !v.try:
		case v.fate == "killed":
			nr, _ := v.number(a)
			cmd := self(t, markCall, asJSON(t, v.options))
			cmd.Stdin = strings.NewReader(asJSON(t, []probe{{nr, v.args}}))
			if out, err := cmd.CombinedOutput(); killedBy(err) != syscall.SIGSYS {
				t.Errorf("%s: got %v and %q, want SIGSYS", v.at, err, out)
			}
		default:
			batches[v.options] = append(batches[v.options], v)
		}
	}
	for o, vectors := range batches {
		tryBatch(t, a, o, vectors)
	}
}

func tryBatch(t *testing.T, a arch, o Options, vectors []vector) {
	t.Helper()
	var probes []probe
	for _, v := range vectors {
		nr, _ := v.number(a)
		probes = append(probes, probe{nr, v.args})
	}
	cmd := self(t, markCall, asJSON(t, o))
	cmd.Stdin = strings.NewReader(asJSON(t, probes))
	out, err := cmd.CombinedOutput()
	results := strings.Fields(string(out))
	if err != nil || len(results) != len(vectors) {
		t.Fatalf("%+v: %d calls: %v\n%s", o, len(vectors), err, out)
	}
	for i, v := range vectors {
		got, err := strconv.Atoi(results[i])
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"allowed": 0, "handed over": int(unix.ENOSYS), "EOPNOTSUPP": int(unix.EOPNOTSUPP)}[v.fate]
		for e := range 133 {
			if unix.ErrnoName(unix.Errno(e)) == v.fate {
				want = e
			}
		}
		if got != want {
			t.Errorf("%+v: %s: the kernel says %d %s", o, v.at, got, unix.ErrnoName(unix.Errno(got)))
		}
	}
}

// TestOtherTablesOnKernel calls by the table of 32 bits and of x32.
func TestOtherTablesOnKernel(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		need(t, "amd64")
	}
	if out, err := self(t, markBlob, "none").CombinedOutput(); err != nil {
		need(t, fmt.Sprintf("a kernel that takes int 0x80 (%v: %s)", err, out))
	}
	for _, o := range []Options{{}, {Agent: true, Unix: true}, {Init: true}} {
		if out, err := self(t, markBlob, asJSON(t, o)).CombinedOutput(); killedBy(err) != syscall.SIGSYS {
			t.Errorf("%+v: int 0x80: got %v and %q, want SIGSYS", o, err, out)
		}
		cmd := self(t, markCall, asJSON(t, o))
		cmd.Stdin = strings.NewReader(asJSON(t, []probe{{Number: x32Bit | unix.SYS_GETPID}}))
		if out, err := cmd.CombinedOutput(); killedBy(err) != syscall.SIGSYS {
			t.Errorf("%+v: x32: got %v and %q, want SIGSYS", o, err, out)
		}
	}
}

// blobUnder asks for the process id by int 0x80.
func blobUnder(options string) error {
	code, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	// mov eax, 20 (getpid of the 32-bit table); int 0x80; ret
	copy(code, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3})
	if err := unix.Mprotect(code, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return err
	}
	runtime.LockOSThread()
	if options != "none" {
		if err := installFrom(options, 0); err != nil {
			return err
		}
	}
	entry := &struct{ code *byte }{&code[0]}
	(*(*func())(unsafe.Pointer(&entry)))()
	return nil
}

// TestFirstProcess confines a Go program as pid 1 of a box is.
func TestFirstProcess(t *testing.T) {
	if out, err := self(t, markFirst).CombinedOutput(); err != nil || string(out) != "done\n" {
		t.Errorf("got %v\n%s", err, out)
	}
}

// firstProcess starts a child, confines all its threads, and does what pid 1 does.
func firstProcess() error {
	dir, err := os.MkdirTemp("", "filter")
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "100")
	if err := child.Start(); err != nil {
		return err
	}
	if err := install(Options{Init: true}, unix.SECCOMP_FILTER_FLAG_TSYNC); err != nil {
		return err
	}
	errs := []error{firstFiles(dir), firstThreads(), child.Process.Kill()}
	if err := child.Wait(); killedBy(err) != syscall.SIGKILL {
		errs = append(errs, fmt.Errorf("the child ended with %w", err))
	}
	if err := exec.Command("true").Run(); err == nil || !errors.Is(err, unix.EPERM) {
		errs = append(errs, fmt.Errorf("starting a program: %w, want EPERM", err))
	}
	if _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != unix.EPERM {
		errs = append(errs, fmt.Errorf("making a socket: %w, want EPERM", err))
	}
	if err := unix.Exec("/proc/self/exe", []string{"x"}, nil); err != unix.EPERM {
		errs = append(errs, fmt.Errorf("executing: %w, want EPERM", err))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

// firstFiles does what is done for held names.
func firstFiles(dir string) error {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	_, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	_, proc := os.ReadFile("/proc/self/status")
	return errors.Join(
		err, proc, os.WriteFile(a, []byte("x"), 0o600), os.Chmod(a, 0o640), os.Rename(a, b), os.Link(b, a), os.Symlink("b", filepath.Join(dir, "c")),
		os.Truncate(a, 0), os.Mkdir(filepath.Join(dir, "d"), 0o700), unix.Mkfifo(filepath.Join(dir, "e"), 0o600), os.RemoveAll(dir),
	)
}

// firstThreads makes the runtime start threads, collect, and wait for time.
func firstThreads() error {
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			runtime.LockOSThread() // and ends the thread
			_ = bytes.Repeat([]byte{1}, 1<<20)
		})
	}
	all.Wait()
	runtime.GC()
	<-time.After(time.Millisecond)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_, err = w.Write([]byte("x"))
	return errors.Join(err, w.Close(), r.Close())
}
