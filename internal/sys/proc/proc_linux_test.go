package proc

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// within is the longest that a test waits for something that must happen.
const within = 10 * time.Second

func await(t *testing.T, c *Child) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(within):
		t.Fatal("the child did not end")
	}
}

// alive reports whether pid is a process that is not a zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	s, ok := parseStat(b)
	return ok && !s.zombie
}

func TestDetachGivesExactlyWhatIsNamed(t *testing.T) {
	t.Setenv("PROC_TEST_SECRET", "leak")
	dir := t.TempDir()
	leak, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	// As a careless parent would leave it: open across exec.
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, leak.Fd(), syscall.F_SETFD, 0); e != 0 {
		t.Fatal(e)
	}
	log := filepath.Join(dir, "log")
	c, err := Detach(Command{
		Argv: []string{"/bin/sh", "-c", `echo "a=$A secret=$PROC_TEST_SECRET"; pwd; ls /proc/self/fd | tr '\n' ' '; echo; cat; echo sid $(cut -d' ' -f6 /proc/$$/stat) pid $$`},
		Env:  []string{"A=1", "PATH=/usr/bin:/bin"},
		Dir:  dir,
		Log:  log,
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, c)
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	// 3 is the directory that ls itself reads.
	want := fmt.Sprintf("a=1 secret=\n%s\n0 1 2 3 \nsid %d pid %[2]d\n", dir, c.Pid())
	if string(b) != want {
		t.Errorf("child saw\n%s\nwant\n%s", b, want)
	}
	if fi, _ := os.Stat(log); fi.Mode().Perm() != 0o600 {
		t.Errorf("log has mode %v", fi.Mode())
	}
}

func TestDetachRefuses(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Command{
		"no program":       {},
		"relative program": {Argv: []string{"sh"}},
		"relative log":     {Argv: []string{"/bin/true"}, Log: "x"},
		"log is a pipe":    {Argv: []string{"/bin/true"}, Log: pipe},
		"log is a device":  {Argv: []string{"/bin/true"}, Log: "/dev/null"},
		"missing program":  {Argv: []string{"/nonexistent"}},
	} {
		if _, err := Detach(c); err == nil {
			t.Errorf("%s: started", name)
		}
	}
}

func TestChildKillAfterEnd(t *testing.T) {
	c, err := Detach(Command{Argv: []string{"/bin/false"}})
	if err != nil {
		t.Fatal(err)
	}
	await(t, c)
	if c.Err() == nil {
		t.Error("status 1 is no error")
	}
	if err := c.Kill(); err != nil {
		t.Error(err)
	}
}

// The tree has members of each sort: a child, a grandchild that ignores
// signals, one in another group, and one whose parent has died but which is in
// the session still.
func TestKillTree(t *testing.T) {
	script := `
		sleep 1000 & echo $!
		(trap '' HUP INT TERM; sleep 1001 & echo $!; wait) &
		set -m; sleep 1002 & echo $!; set +m
		(sleep 1003 & echo $!)
		echo done; wait`
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	done := false
	for sc := bufio.NewScanner(out); (!done || len(pids) < 4) && sc.Scan(); {
		if sc.Text() == "done" {
			done = true
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(sc.Text()))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, n)
	}
	if err := KillTree(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("leader ended well")
	}
	for deadline := time.Now().Add(within); ; {
		left := 0
		for _, p := range pids {
			if alive(p) {
				left++
			}
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %v still run", left, pids)
		}
	}
}

func TestKillTreeSparesUs(t *testing.T) {
	for _, pid := range []int{-1, 0, 1, os.Getpid()} {
		if KillTree(pid) == nil {
			t.Errorf("process %d would be killed", pid)
		}
	}
}

func TestExecutable(t *testing.T) {
	p, err := Executable()
	if err != nil || !filepath.IsAbs(p) {
		t.Errorf("%q, %v", p, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a) b) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 77 0 0"))
	f.Add([]byte("1 ("))
	f.Add([]byte(") ("))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := parseStat(b); ok && s.pid <= 0 {
			t.Errorf("pid %d", s.pid)
		}
	})
}
