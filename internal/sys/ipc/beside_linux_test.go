package ipc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A program in a box has our user, and may come to listen where our engine is expected.
func TestListenerInABox(t *testing.T) {
	if path := os.Getenv("IPC_TEST_BOXED"); path != "" {
		if _, err := Listen(path); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("up\n")
		select {}
	}
	for name, c := range map[string]struct {
		flags uintptr
		want  error
	}{
		"beside us":                     {0, nil},
		"in a user namespace":           {unix.CLONE_NEWUSER, ErrApart},
		"in a user and a pid namespace": {unix.CLONE_NEWUSER | unix.CLONE_NEWPID, ErrApart},
	} {
		path := filepath.Join(t.TempDir(), "s")
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestListenerInABox$")
		cmd.Env = append(os.Environ(), "IPC_TEST_BOXED="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: c.flags}
		if c.flags != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		conn, peer, err := DialOwn(t.Context(), path)
		if !errors.Is(err, c.want) || err == nil && peer.PID != cmd.Process.Pid {
			t.Errorf("%s: %+v, %v, want %v", name, peer, err, c.want)
		}
		if err == nil {
			conn.Close()
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
	if err := Beside(0); !errors.Is(err, ErrApart) {
		t.Errorf("a process without a number here: %v", err)
	}
}
