package proc

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestNoCores: a process that said so and dies of an abort leaves no core.
func TestNoCores(t *testing.T) {
	if os.Getenv("TEST_NO_CORES") != "" {
		if err := NoCores(); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestNoCores$")
	cmd.Env, cmd.Dir = append(os.Environ(), "TEST_NO_CORES=1", "GOTRACEBACK=crash"), t.TempDir()
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.CoreDump() {
		t.Errorf("%v, core %v", err, status.CoreDump())
	}
}
