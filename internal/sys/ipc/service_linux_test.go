package ipc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A service of ours is answered; that of another user, who may have put his
// socket where ours is expected, is not.
func TestDialService(t *testing.T) {
	if path := os.Getenv("IPC_TEST_SERVE"); path != "" {
		if _, err := Listen(path); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("up\n")
		select {}
	}
	dir := t.TempDir()
	ours := filepath.Join(dir, "d", "s")
	l, err := Listen(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := DialService(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, to be two users")
		}
		t.Skip("needs root, to be two users")
	}
	theirs := filepath.Join(stranger(t), "s")
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestDialService$")
	cmd.Env = append(os.Environ(), "IPC_TEST_SERVE="+theirs)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := DialService(t.Context(), theirs); !errors.Is(err, ErrStranger) {
		t.Errorf("the service of another user: %v, want ErrStranger", err)
	}
}

// stranger makes a directory of user 65534 that he can reach.
func stranger(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ipc-stranger") // not of t: the parents of t.TempDir may be closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	return dir
}
