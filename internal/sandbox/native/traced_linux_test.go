package native

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// inBox is set where a test is the program of a box.
const inBox = "NATIVE_TEST_IN_BOX"

// What is traced so that it ends with its box notices nothing of it: it is stopped,
// continued and signalled as ever, threads and programs come and go.
func TestTracedProgramsNoticeNothing(t *testing.T) {
	if os.Getenv(inBox) != "" {
		inTracedBox(t)
		return
	}
	exe := copyOfTest(t)
	for kind, tier := range kinds {
		s := sandbox.Spec{
			Argv: []string{exe, "-test.run=^TestTracedProgramsNoticeNothing$", "-test.v"}, Env: []string{inBox + "=1"},
			Profile: sandbox.ProfileAgent,
		}
		if out := run(t, tier, s, ""); out.Exit.Status() != 0 || !strings.Contains(string(out.Stdout), "--- PASS") {
			t.Errorf("%s: %v %s %s", kind, out.Exit, out.Stdout, out.Stderr)
		}
	}
}

// copyOfTest returns a copy of this program, whose own directory may be closed to who runs
// it.
func copyOfTest(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	exe := dir(t) + "/test"
	if err := os.WriteFile(exe, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return exe
}

func inTracedBox(t *testing.T) {
	for range 20 {
		if err := exec.Command("/bin/true").Run(); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var last unix.WaitStatus
	wait := func(options int) unix.WaitStatus {
		var status unix.WaitStatus
		for {
			if _, err := unix.Wait4(cmd.Process.Pid, &status, options, nil); err != unix.EINTR {
				return status
			}
		}
	}
	for range 3 {
		_ = unix.Kill(cmd.Process.Pid, unix.SIGSTOP) // it is our child
		if last = wait(unix.WUNTRACED); !last.Stopped() || last.StopSignal() != unix.SIGSTOP {
			t.Errorf("after SIGSTOP: %#x", last)
		}
		_ = unix.Kill(cmd.Process.Pid, unix.SIGCONT)
		if last = wait(unix.WCONTINUED); !last.Continued() {
			t.Errorf("after SIGCONT: %#x", last)
		}
	}
	_ = unix.Kill(cmd.Process.Pid, unix.SIGTRAP)
	if last = wait(0); !last.Signaled() || last.Signal() != unix.SIGTRAP {
		t.Errorf("after SIGTRAP: %#x", last)
	}
	err := exec.Command("/bin/sh", "-c", "kill -USR1 $$").Run()
	if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGUSR1 { //nolint:errorlint,forcetypeassert // of the standard library
		t.Errorf("after SIGUSR1: %v", err)
	}
}
