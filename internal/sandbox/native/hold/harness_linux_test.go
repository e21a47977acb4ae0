package hold

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test binary is also what runs in the boxes of these tests: with the word
// "program" it confines itself and executes the rest of its arguments, with "ops" it
// issues the calls that it reads, with "flip" and "flood" it attacks, with "measure" and "small" it is measured.
const nobody = 65534

func TestMain(m *testing.M) {
	modes := map[string]func(args []string) error{"program": program, "ops": runOps, "flip": flip, "flood": flood, "measure": measure, "small": small}
	if len(os.Args) > 1 && modes[os.Args[1]] != nil {
		if err := modes[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
			os.Exit(99)
		}
		os.Exit(0)
	}
	fuzzing := slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzz") })
	if os.Getuid() == 0 && !fuzzing {
		os.Exit(asNobody())
	}
	os.Exit(m.Run())
}

// asNobody runs these tests again as an ordinary user: root may do too much.
func asNobody() int {
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool {
		return strings.HasPrefix(a, "-test.testlogfile") || strings.HasPrefix(a, "-test.coverprofile") || strings.HasPrefix(a, "-test.gocoverdir")
	})
	c := exec.Command("/proc/self/exe", args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	err := c.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "running the tests as an ordinary user:", err)
		return 1
	}
	return 0
}

// A box is a program under hold.
type box struct {
	t       testing.TB
	dir     string // what it may change by itself
	ws      string // what is held
	options Options

	served  error // what Serve is expected to return
	ctx     context.Context
	mu      sync.Mutex
	denials []Denial
	births  []string
}

func newBox(t testing.TB) *box {
	t.Helper()
	top, err := os.MkdirTemp("", "hold")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unlockTree(top)
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	b := &box{t: t, ctx: t.Context(), dir: filepath.Join(top, "out"), ws: filepath.Join(top, "ws")}
	for _, d := range []string{b.dir, b.ws} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.options = Options{
		Rules: Rules{Writable: []string{b.ws}},
		OnDenial: func(d Denial) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.denials = append(b.denials, d)
		},
		OnBirth: func(p string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.births = append(b.births, strings.TrimPrefix(p, b.ws+"/"))
		},
	}
	return b
}

// refused returns the denials so far, each once, as "create .envrc".
func (b *box) refused() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, d := range b.denials {
		line := d.Op + " " + strings.TrimPrefix(d.Path, b.ws+"/")
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}

// unlockTree makes every directory beneath top one that can be read and emptied.
func unlockTree(top string) {
	_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			return os.Chmod(name, 0o700)
		}
		return nil
	})
}

// confinement is what program is told.
type confinement struct {
	Dir      string // made its working directory
	Free     []string
	Unlocked bool // no Landlock
}

// run executes argv in ws, and returns what it wrote and how it ended.
func (b *box) run(stdin string, argv ...string) (string, error) {
	b.t.Helper()
	return b.start(confinement{Dir: b.ws, Free: []string{b.dir}}, strings.NewReader(stdin), argv...)
}

func (b *box) start(c confinement, stdin io.Reader, argv ...string) (string, error) {
	b.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer unix.Close(pair[0])
	spec, err := json.Marshal(c)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"program", string(spec)}, argv...)...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &out
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + b.dir, "TMPDIR=" + b.dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	cmd.ExtraFiles = []*os.File{theirs}
	unix.Umask(0o022)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	theirs.Close()
	listener, err := receiveListener(pair[0])
	if err != nil {
		cmd.Wait()
		b.t.Fatalf("no listener: %v; %s", err, &out)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(b.ctx, listener, b.options) }()
	if _, err := unix.Write(pair[0], []byte{1}); err != nil {
		b.t.Error(err)
	}
	err = cmd.Wait()
	if e := <-served; !errors.Is(e, b.served) {
		b.t.Errorf("serving: %v", e)
	}
	return out.String(), err
}

func receiveListener(socket int) (int, error) {
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(socket, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return -1, errors.Join(err, io.ErrUnexpectedEOF)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return -1, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, err
	}
	return fds[0], nil
}

// program confines itself, hands its listener over, and becomes args[1:].
func program(args []string) error {
	const socket = 3
	var c confinement
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if !c.Unlocked {
		if err := lock(c.Free); err != nil {
			return err
		}
	}
	if err := unix.Chdir(c.Dir); err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	listener, err := filterCalls()
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(socket, []byte{1}, unix.UnixRights(listener), nil, 0); err != nil {
		return err
	}
	if _, err := unix.Read(socket, make([]byte, 1)); err != nil {
		return err
	}
	unix.Close(socket)
	unix.Close(listener)
	return unix.Exec(path, args[1:], os.Environ())
}

// lock is the Landlock domain that a program has under hold: it may read and
// execute everything, and change only what is free and devices.
func lock(free []string) error {
	const all, looks = 1<<16 - 1, 1<<0 | 1<<2 | 1<<3 // ABI 5; execute, read file, read directory
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all}
	set, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return e
	}
	rules := map[string]uint64{"/": looks, "/dev": looks | 1<<1 | 1<<15, "/proc": looks | 1<<1}
	for _, f := range free {
		rules[f] = all
	}
	for name, access := range rules {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
		_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, set, 1, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
		unix.Close(fd)
		if e != 0 {
			return e
		}
	}
	_, _, e = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0)
	if e != 0 {
		return e
	}
	return unix.Close(int(set))
}

// filterCalls installs the filter that the package comment asks for.
func filterCalls() (listener int, err error) {
	const data, load, jeq, jset, ret = 0, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ, unix.BPF_JMP | unix.BPF_JSET, unix.BPF_RET
	f := []unix.SockFilter{
		{Code: load, K: 4},
		{Code: jeq, K: nativeArch, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: data},
	}
	answer := func(nr int, verdict uint32) {
		f = append(f, unix.SockFilter{Code: jeq, K: uint32(nr), Jf: 1}, unix.SockFilter{Code: ret, K: verdict})
	}
	flags := func(nr, arg int) {
		f = append(f, unix.SockFilter{Code: jeq, K: uint32(nr), Jf: 4},
			unix.SockFilter{Code: load, K: uint32(16 + 8*arg)},
			unix.SockFilter{Code: jset, K: 0x400243, Jf: 1},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_USER_NOTIF},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	}
	for nr := range calls {
		switch nr {
		case unix.SYS_OPENAT:
			flags(int(nr), 2)
		case sysOpen:
			flags(int(nr), 1)
		default:
			answer(int(nr), unix.SECCOMP_RET_USER_NOTIF)
		}
	}
	answer(unix.SYS_OPENAT2, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS))
	f = append(f, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}
