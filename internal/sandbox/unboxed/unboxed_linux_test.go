package unboxed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/pty"
)

func sh(script string) sandbox.Spec {
	return sandbox.Spec{
		Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"},
		Profile: sandbox.ProfileServer,
	}
}

func run(t *testing.T, s sandbox.Spec, stdin string) sandbox.Output {
	t.Helper()
	out, err := sandbox.Run(t.Context(), Tier{}, s, []byte(stdin))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// U1.
func TestSaysThatItConfinesNothing(t *testing.T) {
	r, err := Tier{}.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := run(t, sh("true"), "")
	for _, r := range []sandbox.Report{r, out.Report} {
		if r.Confines() || r.Complete() || r.String() != "box: none" {
			t.Errorf("%+v", r)
		}
	}
}

// U2.
func TestInheritsNothing(t *testing.T) {
	t.Setenv("UNBOXED_SECRET", "leak")
	leak, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, leak.Fd(), syscall.F_SETFD, 0); e != 0 {
		t.Fatal(e)
	}
	given, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	s := sh(`env | sort; pwd; readlink /proc/$$/fd/3; for i in 0 1 2 3 4 5 6 7 8 9 10 11 12; do [ -e /proc/$$/fd/$i ] && printf '%s ' $i; done; cat; echo err >&2; exit 7`)
	s.Dir, s.Files = t.TempDir(), []*os.File{given}
	out := run(t, s, "input")
	// sh itself sets PWD.
	want := fmt.Sprintf("PATH=/usr/bin:/bin\nPWD=%s\n%[1]s\n/etc/passwd\n0 1 2 3 input", s.Dir)
	if string(out.Stdout) != want || string(out.Stderr) != "err\n" || out.Exit.Status() != 7 {
		t.Errorf("%q %q %v, want %q", out.Stdout, out.Stderr, out.Exit, want)
	}
	bare := sandbox.Spec{Argv: []string{"/usr/bin/env"}}
	if out := run(t, bare, ""); len(out.Stdout) != 0 {
		t.Errorf("with no environment the program sees %q", out.Stdout)
	}
}

func TestStartErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	noDir := sh("true")
	noDir.Dir = "/nonexistent"
	for name, c := range map[string]struct {
		ctx  context.Context
		spec sandbox.Spec
		want error
	}{
		"zero spec":      {t.Context(), sandbox.Spec{}, sandbox.ErrNotBuilt},
		"ended":          {ended, sh("true"), sandbox.ErrNotBuilt},
		"missing":        {t.Context(), sandbox.Spec{Argv: []string{"/nonexistent"}}, sandbox.ErrNotFound},
		"not executable": {t.Context(), sandbox.Spec{Argv: []string{"/etc/passwd"}}, sandbox.ErrNotFound},
		"no directory":   {t.Context(), noDir, sandbox.ErrNotBuilt},
	} {
		if _, err := (Tier{}).Start(c.ctx, c.spec); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// B4: whatever ends the box, the tree is gone: also what ignores signals, is in
// another group, or has lost its parent.
func TestNothingSurvives(t *testing.T) {
	tree := `(trap '' HUP INT TERM; echo $$; sleep 1000 & set -m; sleep 1000 & wait) & (sleep 1000 &) ; sleep 1000 & `
	for name, end := range map[string]struct {
		tail string
		wall time.Duration
		do   func(sandbox.Box, context.CancelFunc)
		want sandbox.Exit
	}{
		"exit":     {"echo ready; exit 3", 0, func(sandbox.Box, context.CancelFunc) {}, sandbox.Exit{Cause: sandbox.CauseExit, Code: 3}},
		"signal":   {"echo ready; kill -11 $$", 0, func(sandbox.Box, context.CancelFunc) {}, sandbox.Exit{Cause: sandbox.CauseSignal, Signal: 11}},
		"asked":    {"trap 'exit 5' TERM; echo ready; wait", 0, func(b sandbox.Box, _ context.CancelFunc) { _ = b.Terminate() }, sandbox.Exit{Cause: sandbox.CauseExit, Code: 5}},
		"kill":     {"echo ready; wait", 0, func(b sandbox.Box, _ context.CancelFunc) { b.Kill() }, sandbox.Exit{Cause: sandbox.CauseKill}},
		"context":  {"echo ready; wait", 0, func(_ sandbox.Box, c context.CancelFunc) { c() }, sandbox.Exit{Cause: sandbox.CauseKill}},
		"deadline": {"echo ready; wait", 300 * time.Millisecond, func(sandbox.Box, context.CancelFunc) {}, sandbox.Exit{Cause: sandbox.CauseDeadline}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := sh(tree + end.tail)
			s.Limits.Wall = end.wall
			marker := "UNBOXED_TEST=" + filepath.Base(t.TempDir()) + name
			s.Env = append(s.Env, marker)
			b, err := Tier{}.Start(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 64)
			for seen := ""; !strings.Contains(seen, "ready"); {
				n, err := b.Stdout().Read(buf)
				if err != nil {
					t.Fatal(err)
				}
				seen += string(buf[:n])
			}
			end.do(b, cancel)
			exit, err := b.Wait()
			if err != nil || exit != end.want {
				t.Errorf("%v, %v, want %v", exit, err, end.want)
			}
			if _, err := io.ReadAll(b.Stdout()); err != nil {
				t.Error(err)
			}
			if left := running(marker); len(left) > 0 {
				t.Errorf("still running: %v", left)
			}
			if err := b.Kill(); err != nil {
				t.Errorf("Kill after the end: %v", err)
			}
		})
	}
}

// running lists the processes that have marker in their environment and are not
// about to be gone.
func running(marker string) (left []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.Contains(string(b), marker) {
			// A killed process keeps its memory until it is scheduled once more.
			status, _ := os.ReadFile(filepath.Join(filepath.Dir(n), "status"))
			if _, pending, _ := strings.Cut(string(status), "SigPnd:\t"); !strings.HasPrefix(pending, "0000000000000100") {
				left = append(left, n)
			}
		}
	}
	return left
}

// A process that left group, session and parents is beyond this tier; it must not
// make us wait for ever for the pipe that it holds.
func TestEscapedWriterDoesNotBlock(t *testing.T) {
	s := sh(`mkfifo f; setsid sh -c 'echo >f; exec sleep 5' & read x <f; echo out`)
	s.Dir = t.TempDir()
	done := make(chan sandbox.Output, 1)
	go func() {
		out, err := sandbox.Run(t.Context(), Tier{}, s, nil)
		if err != nil {
			t.Error(err)
		}
		done <- out
	}()
	select {
	case out := <-done:
		if string(out.Stdout) != "out\n" {
			t.Errorf("%q", out.Stdout)
		}
	case <-time.After(4 * time.Second):
		t.Error("blocked by a process outside the box")
	}
}

func TestStreamsOfTheCaller(t *testing.T) {
	master, slave, err := pty.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	s := sh("stty -echo; echo out >/dev/tty; echo err >&2; exit 4")
	s.Stdin, s.Stdout = slave, slave
	b, err := Tier{}.Start(t.Context(), s)
	slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if _, err := io.ReadFull(master, line); err != nil || string(line) != "out\r\n" {
		t.Errorf("%q %v", line, err)
	}
	if n, err := b.Stdout().Read(line); n != 0 || err != io.EOF {
		t.Errorf("the box has a standard output of its own: %d %v", n, err)
	}
	if _, err := b.Stdin().Write(line); err == nil || b.Stdin().Close() != nil {
		t.Error("the box has a standard input of its own")
	}
	text, err := io.ReadAll(b.Stderr())
	exit, ended := b.Wait()
	if err != nil || ended != nil || string(text) != "err\n" || exit.Code != 4 {
		t.Errorf("%q %v %v %v", text, err, exit, ended)
	}
}

func TestConfirm(t *testing.T) {
	refused := errors.New("no")
	s := sh("echo ran >ran")
	s.Dir = t.TempDir()
	s.Confirm = func(r sandbox.Report) error {
		if r.Confines() {
			t.Errorf("%v", r)
		}
		return refused
	}
	if _, err := (Tier{}).Start(t.Context(), s); !errors.Is(err, refused) || !errors.Is(err, sandbox.ErrNotBuilt) {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir + "/ran"); err == nil {
		t.Error("it ran though it was refused")
	}
}

func TestOutputIsBounded(t *testing.T) {
	s := sh(`head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2; echo end >&2`)
	s.Limits.Output = 1 << 20
	out := run(t, s, "")
	if len(out.Stdout) != 1<<20 || len(out.Stderr) != 1<<20 || out.Dropped != 3000000+2000004-2<<20 || out.Exit.Status() != 0 {
		t.Errorf("%d, %d, dropped %d, %v", len(out.Stdout), len(out.Stderr), out.Dropped, out.Exit)
	}
}

// The program dies with us, even when we are killed.
func TestDiesWithParent(t *testing.T) {
	if dir := os.Getenv("UNBOXED_TEST_PARENT"); dir != "" {
		s := sh("echo $$ >" + dir + "/pid.tmp; mv " + dir + "/pid.tmp " + dir + "/pid; sleep 1000")
		if _, err := (Tier{}).Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	dir := t.TempDir()
	parent := exec.Command(os.Args[0], "-test.run=^TestDiesWithParent$")
	parent.Env = []string{"UNBOXED_TEST_PARENT=" + dir}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	var pid string
	for pid == "" {
		if b, err := os.ReadFile(dir + "/pid"); err == nil {
			pid = strings.TrimSpace(string(b))
		} else if time.Now().After(deadline) {
			t.Fatal("no child")
		}
	}
	parent.Process.Kill()
	parent.Wait()
	for {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s outlived its parent", pid)
		}
	}
}
