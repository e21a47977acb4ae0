package readback

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// job is the variable that makes this program one to be read, or one that reads.
const job = "READBACK_TEST_JOB"

func TestMain(m *testing.M) {
	if what := os.Getenv(job); what != "" {
		runtime.LockOSThread() // it stays the main thread, whose facts are read
		if err := work(what); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func work(what string) error {
	switch what {
	case "confined":
		if err := confine(); err != nil {
			return err
		}
	case "undumpable":
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
	case "reads":
		f, err := Read(os.Getppid())
		if err != nil {
			return err
		}
		fmt.Println(f.PID, len(f.Hidden["namespaces"].Error()) > 0, f.Namespaces, f.Seccomp, len(f.Limits) > 0, f.Against(Facts{Namespaces: map[string]uint64{"mnt": 1}}))
		return nil
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func confine() error {
	limit := unix.Rlimit{Cur: 50, Max: 50}
	var none [2]unix.CapUserData
	filter := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	for c := 0; unix.Prctl(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0) == nil; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return err
		}
	}
	return errors.Join(
		unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", "/tmp", "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID, ""),
		unix.Chdir("/tmp"),
		unix.Setrlimit(unix.RLIMIT_NOFILE, &limit),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		setFilter(&unix.SockFprog{Len: 1, Filter: &filter}),
		unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]),
	)
}

// A worker is this program at a job, until its input ends.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func start(t *testing.T, what string, attr *syscall.SysProcAttr) worker {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{job + "=" + what}
	cmd.SysProcAttr = attr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return worker{cmd, in}
}

// read reads w in both ways and wants the same.
func (w worker) read(t *testing.T) Facts {
	t.Helper()
	f, err := Read(w.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(w.cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	g, err := ReadPidfd(fd)
	if err != nil {
		t.Fatal(err)
	}
	if f.PID != g.PID || fmt.Sprint(f.Namespaces) != fmt.Sprint(g.Namespaces) || fmt.Sprint(f.Mounts) != fmt.Sprint(g.Mounts) {
		t.Errorf("by number %+v\nby descriptor %+v", f, g)
	}
	return f
}

func TestReadConfined(t *testing.T) {
	id := os.Geteuid()
	w := start(t, "confined", &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	})
	f := w.read(t)
	ours, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if f.Seccomp != SeccompFilter || f.SeccompFilters != 1 || !f.NoNewPrivs || !f.Caps.None() || f.CoreDumping {
		t.Errorf("seccomp %d with %d filters, no_new_privs %v, %+v", f.Seccomp, f.SeccompFilters, f.NoNewPrivs, f.Caps)
	}
	differ := []string{"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "user", "uts"}
	if got := f.Against(ours); !slices.Equal(got, differ) || len(ours.Against(ours)) > 0 {
		t.Errorf("other namespaces are %q", got)
	}
	if f.UID != [4]uint32{uint32(id), uint32(id), uint32(id), uint32(id)} || !slices.Equal(f.NSpid, []int{f.PID, 1}) {
		t.Errorf("user %v, process %v", f.UID, f.NSpid)
	}
	if l := f.Limits["Max open files"]; l != (Limit{50, 50, "files"}) {
		t.Errorf("%+v", l)
	}
	m, ok := f.MountOf("/tmp/x")
	if !ok || m.Type != "tmpfs" || !m.ReadOnly() || !m.Has("nosuid") || m.Has("nodev") || m.Propagates() {
		t.Errorf("%+v", m)
	}
	if f.Cwd != "/tmp" || f.Root != "/" || len(f.Hidden) > 0 || len(f.Cgroups) != len(ours.Cgroups) {
		t.Errorf("in %s of %s, hidden %v, groups %v", f.Cwd, f.Root, f.Hidden, f.Cgroups)
	}
	if ours.Seccomp != SeccompOff && ours.SeccompFilters == 0 {
		t.Errorf("ours: %+v", ours)
	}
}

func TestDumpable(t *testing.T) {
	var attr *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{7, 65534}}}
	}
	f := start(t, "undumpable", attr).read(t)
	if f.Dumpable != No {
		t.Errorf("dumpable: %d", f.Dumpable)
	}
	if attr != nil && (!slices.Equal(f.Groups, []uint32{7, 65534}) || f.UID[0] != 65534) {
		t.Errorf("groups %v, user %v", f.Groups, f.UID)
	}
	want := Yes
	if os.Geteuid() == 0 {
		want = Unknown // root's own files are root's in either case
	}
	if f := start(t, "plain", nil).read(t); f.Dumpable != want {
		t.Errorf("dumpable: %d, want %d", f.Dumpable, want)
	}
}

// R3: what an ordinary user may not see is said to be hidden.
func TestHidden(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, to read as somebody else")
		}
		t.Skip("needs root, to read as somebody else")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{job + "=reads"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("%d true map[] 0 true []\n", os.Getpid()); err != nil || string(out) != want {
		t.Errorf("%s, %v, want %s", out, err, want)
	}
}

// R1: no facts of a process that has ended, reaped or not.
func TestGone(t *testing.T) {
	w := start(t, "plain", nil)
	fd, err := unix.PidfdOpen(w.cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, reaped := range []bool{false, true} {
		w.in.Close()
		if err := unix.Waitid(unix.P_PID, w.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil && !reaped {
			t.Fatal(err)
		}
		if reaped {
			_ = w.cmd.Wait()
		}
		if _, err := Read(w.cmd.Process.Pid); !errors.Is(err, ErrGone) {
			t.Errorf("reaped %v: %v", reaped, err)
		}
		if _, err := ReadPidfd(fd); !errors.Is(err, ErrGone) {
			t.Errorf("reaped %v, by descriptor: %v", reaped, err)
		}
	}
	for _, pid := range []int{0, -1} {
		if _, err := Read(pid); err == nil {
			t.Errorf("process %d", pid)
		}
	}
	if _, err := ReadPidfd(0); err == nil {
		t.Error("a descriptor of something else")
	}
}

// R1, while processes end: there are whole facts, or there is ErrGone.
func TestDying(t *testing.T) {
	gone, whole := 0, 0
	for range 300 {
		cmd := exec.Command("/bin/true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for {
			f, err := Read(cmd.Process.Pid)
			if errors.Is(err, ErrGone) {
				gone++
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			whole++
			if len(f.Namespaces) == 0 || len(f.Limits) == 0 || len(f.Mounts) == 0 || len(f.Cgroups) == 0 || f.Root == "" || f.Cwd == "" {
				t.Fatalf("half read: %+v", f)
			}
		}
		_ = cmd.Wait()
	}
	t.Logf("%d whole, %d gone", whole, gone)
}

// A mount with every odd byte in its path is read as it is.
func TestOddMount(t *testing.T) {
	f, err := Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Mounts {
		if !strings.HasPrefix(m.Point, "/") || m.Type == "" || len(m.Options) == 0 || len(m.Super) == 0 {
			t.Errorf("%+v", m)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		if _, err := Read(os.Getpid()); err != nil {
			b.Fatal(err)
		}
	}
}
