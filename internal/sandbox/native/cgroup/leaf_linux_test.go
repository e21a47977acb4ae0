package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// job is the variable that makes this program one of those that leaves hold back.
const job = "CGROUP_TEST_JOB"

func TestMain(m *testing.M) {
	if what := os.Getenv(job); what != "" {
		if err := work(what); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work does one job, once it was told to start by a line of input.
func work(what string) error {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	switch what {
	case "eat":
		b := make([]byte, 512<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	case "spin":
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		}
	case "fork":
		never, hold, err := os.Pipe()
		if err != nil {
			return err
		}
		defer hold.Close()
		denied := 0
		for range 40 {
			cat := exec.Command("/bin/cat")
			cat.Stdin = never
			if err := cat.Start(); errors.Is(err, unix.EAGAIN) {
				denied++
			}
		}
		fmt.Println("denied", denied)
		_, err = in.ReadString('\n')
		return err
	case "daemons":
		// A bomb of daemons, each of a session of its own.
		fmt.Println("started")
		return exec.Command("/bin/sh", "-c", "while :; do setsid /bin/sh -c 'sleep 1000 & sleep 1000' & done 2>/dev/null").Run()
	case "own":
		return own(in)
	case "make":
		l, err := Make(context.Background(), "as-somebody", Limits{Memory: 64 << 20, Processes: 10, CPUs: 1})
		if err != nil {
			return err
		}
		fmt.Println(l.Enforced(), len(l.Missing()), l.Missing()[Memory])
		return l.Remove(context.Background())
	}
	return nil
}

// own makes a leaf, puts a process in it, and is gone without a word.
func own(in *bufio.Reader) error {
	name, err := NewName()
	if err != nil {
		return err
	}
	l, err := Make(context.Background(), name, Limits{Processes: 10})
	if err != nil {
		return err
	}
	left := exec.Command("/bin/sleep", "60")
	if err := left.Start(); err != nil {
		return err
	}
	if err := l.Add(left.Process.Pid); err != nil {
		return err
	}
	fmt.Println(name, strings.Join(l.Dirs(), " "))
	_, err = in.ReadString('\n')
	return err
}

// A worker is this program at a job.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, what string, attr *syscall.SysProcAttr) worker {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{job + "=" + what, "PATH=/usr/bin:/bin", "GOMAXPROCS=2"}
	cmd.SysProcAttr = attr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); in.Close(); _ = cmd.Wait() })
	return worker{cmd, in, bufio.NewReader(out)}
}

// begin tells w to start.
func (w worker) begin(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		t.Fatal(err)
	}
}

func (w worker) line(t *testing.T) string {
	t.Helper()
	s, err := w.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

// leaf makes a leaf that enforces what is wanted, for as long as the test runs.
func leaf(t *testing.T, limits Limits, want ...string) *Leaf {
	t.Helper()
	return leafWithout(t, nil, limits, want...)
}

// leafWithout does so on this machine less the mounts whose lines have one of the
// words in drop. Where that leaves no limits, none are wanted.
func leafWithout(t *testing.T, drop []string, limits Limits, want ...string) *Leaf {
	t.Helper()
	name, err1 := NewName()
	m, err2 := machine()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	all := strings.SplitAfter(m.mountinfo, "\n")
	m.mountinfo = strings.Join(slices.DeleteFunc(all, func(line string) bool {
		return slices.ContainsFunc(drop, func(d string) bool { return strings.Contains(line, d) })
	}), "")
	if slices.Contains(drop, " - cgroup ") && !strings.Contains(m.mountinfo, " - cgroup ") {
		limits, want = Limits{}, nil
	}
	l, err := m.make(t.Context(), name, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dirs, after := l.Dirs(), context.WithoutCancel(t.Context())
		if err := errors.Join(l.Kill(after), l.Remove(after), l.Remove(after)); err != nil {
			t.Error(err)
		}
		for _, d := range dirs {
			if _, err := os.Stat(d); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left", d)
			}
		}
	})
	if len(l.Missing()) > 0 || !slices.Equal(l.Enforced(), want) {
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs a machine whose control groups are ours: %v", l.Missing())
		}
		t.Skipf("needs a machine whose control groups are ours: %v", l.Missing())
	}
	return l
}

func TestMemoryBomb(t *testing.T) {
	l := leaf(t, Limits{Memory: 64 << 20}, Memory, Swap)
	w := start(t, "eat", nil)
	if err := l.Add(w.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	w.begin(t)
	err := w.cmd.Wait()
	status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != unix.SIGKILL {
		t.Errorf("it ended with %v", err)
	}
	if u := l.Usage(); u.OOMKills != 1 || u.MemoryPeak < 32<<20 || u.MemoryPeak > 65<<20 {
		t.Errorf("usage %+v", u)
	}
}

func TestForkBomb(t *testing.T) {
	l := leaf(t, Limits{Processes: 20}, PIDs)
	w := start(t, "fork", nil)
	if err := l.Add(w.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	w.begin(t)
	n, err := strconv.Atoi(strings.TrimPrefix(w.line(t), "denied "))
	if err != nil || n < 20 {
		t.Errorf("%d of 40 forks were denied, %v", n, err)
	}
	if u := l.Usage(); u.PIDsDenied < 1 {
		t.Errorf("usage %+v", u)
	}
}

func TestProcessorTime(t *testing.T) {
	l := leaf(t, Limits{CPUs: 0.1}, CPU)
	w := start(t, "spin", nil)
	if err := l.Add(w.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	w.begin(t)
	if err := w.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if u := l.Usage(); u.ThrottledMicros < 10_000 {
		t.Errorf("usage %+v", u)
	}
}

// G4: each way to kill ends daemons that are still multiplying, or at least what there
// is, and nothing else.
func TestKill(t *testing.T) {
	stranger := start(t, "spin", nil)
	one := leaf(t, Limits{Processes: 5, Memory: 1 << 20}, Memory, Swap, PIDs)
	version1 := slices.ContainsFunc(one.places, func(p place) bool { return p.version == 1 })
	for _, c := range []struct {
		name   string
		daemon bool
		drop   []string
	}{
		{"as it is", true, nil},
		{"version 1 alone", true, []string{" - cgroup2 "}},
		{"without freezing", true, []string{" - cgroup2 ", "freezer"}},
		{"version 2 alone", false, []string{" - cgroup "}},
		{"nothing but signals", false, []string{" - cgroup2 ", "freezer", "pids"}},
		{"nothing but freezing", false, []string{" - cgroup2 ", "pids"}},
	} {
		if c.drop != nil && !version1 {
			continue // this machine has but one way
		}
		t.Run(c.name, func(t *testing.T) {
			if c.daemon {
				killDaemons(t, leafWithout(t, c.drop, Limits{Processes: 100}, PIDs))
			} else {
				killMany(t, leafWithout(t, c.drop, Limits{Memory: 1 << 30}, Memory, Swap))
			}
		})
	}
	stranger.begin(t)
	if err := stranger.cmd.Wait(); err != nil {
		t.Errorf("a process outside: %v", err)
	}
}

func killDaemons(t *testing.T, l *Leaf) {
	t.Helper()
	w := start(t, "daemons", nil)
	if err := l.Add(w.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	w.begin(t)
	w.line(t)
	for l.Usage().PIDsDenied < 1 { // until there is no room for more
	}
	began := time.Now()
	if err := l.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
	if empty, err := l.Empty(); !empty || err != nil {
		t.Errorf("empty: %v, %v", empty, err)
	}
}

func killMany(t *testing.T, l *Leaf) {
	t.Helper()
	w := start(t, "fork", nil)
	if err := l.Add(w.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	w.begin(t)
	w.line(t)
	if err := l.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
}

// A process can be born in the leaf.
func TestBornInside(t *testing.T) {
	l := leaf(t, Limits{Processes: 30}, PIDs)
	if l.FD() < 0 {
		return // no version 2 here: see Leaf.FD
	}
	w := start(t, "spin", &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: l.FD()})
	in, err := members(l.places[0].dir)
	if err != nil || !slices.Contains(in, w.cmd.Process.Pid) {
		t.Errorf("%v, %v", in, err)
	}
}

func TestAddRefuses(t *testing.T) {
	l := leaf(t, Limits{Processes: 30}, PIDs)
	gone := exec.Command("/bin/true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := l.Add(gone.Process.Pid); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a process that has ended: %v", err)
	}
}

// The leaf of an owner that died is swept, with what is in it; that of a living one
// is not.
func TestSweep(t *testing.T) {
	mine := leaf(t, Limits{Processes: 10}, PIDs)
	w := start(t, "own", nil)
	w.begin(t)
	words := strings.Fields(w.line(t))
	name, dirs := words[0], words[1:]
	sweep := func() []string {
		t.Helper()
		ours := func(n string) bool { return (n == name || n == mine.Name()) && OwnerDead(n) }
		gone, err := Sweep(t.Context(), ours)
		if err != nil {
			t.Fatal(err)
		}
		return gone
	}
	if gone := sweep(); len(gone) > 0 {
		t.Errorf("swept %q while the owner lives", gone)
	}
	w.begin(t)
	if err := w.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if gone := sweep(); !slices.Equal(gone, []string{name}) {
		t.Errorf("swept %q, want %q", gone, name)
	}
	for _, d := range dirs {
		if _, err := os.Stat(d); err == nil {
			t.Errorf("%s is left", d)
		}
	}
	if _, err := os.Stat(mine.Dirs()[0]); err != nil {
		t.Error(err)
	}
}

func TestOwnerDead(t *testing.T) {
	name, err := NewName()
	if err != nil {
		t.Fatal(err)
	}
	w := strings.Split(name, "-")
	for with, dead := range map[int]string{0: "0123456789abcdef", 2: "4194304", 3: "1"} {
		other := slices.Clone(w)
		other[with] = dead
		if !OwnerDead(strings.Join(other, "-")) {
			t.Errorf("%q is taken for alive", other)
		}
	}
	elsewhere := slices.Clone(w)
	elsewhere[1] = "1"
	for _, alive := range []string{name, strings.Join(elsewhere, "-"), "", "a", "a-b-c-d-e", name + "-x", "x" + name} {
		if OwnerDead(alive) {
			t.Errorf("%q is taken for dead", alive)
		}
	}
	if err := checkName(name); err != nil {
		t.Error(err)
	}
}

// An ordinary user gets a leaf that says what it lacks, and no error.
func TestOrdinaryUser(t *testing.T) {
	var attr *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	// The program must be one that he can reach.
	w := start(t, "make", attr)
	w.begin(t)
	got := w.line(t)
	if !strings.HasPrefix(got, "[] 3 ") || !strings.Contains(got, "permission denied; start it as root") && !strings.Contains(got, "systemd-run") {
		t.Error(got)
	}
}

// Many at once get in nobody's way.
func TestMany(t *testing.T) {
	for range 32 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			l := leaf(t, Limits{Processes: 20}, PIDs)
			w := start(t, "fork", nil)
			if err := l.Add(w.cmd.Process.Pid); err != nil {
				t.Fatal(err)
			}
			w.begin(t)
			w.line(t)
			if err := l.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		if left, _ := filepath.Glob("/sys/fs/cgroup/*/" + Prefix + "*-" + strconv.Itoa(os.Getpid()) + "-*"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}
