package api

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"ringfence/internal/sys/ipc"
)

// TestStranger: another user is refused by the kernel's word on who connects, also
// where the socket would let everyone in.
func TestStranger(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, to connect as another user")
		}
		t.Skip("needs root, to connect as another user")
	}
	dir, err := os.MkdirTemp("", "rf")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s", "engine.sock")
	l, err := ipc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{dir: 0o755, filepath.Dir(path): 0o755, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	refused := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	s := NewServer(newFake(), ServerOptions{Log: func(err error) { refused <- err }})
	go func() { served <- s.Serve(ctx, l) }()
	if n, err := connectAs(65534, path); n != 0 || err != nil {
		t.Errorf("a stranger read %d bytes, %v", n, err)
	}
	if err := <-refused; !strings.Contains(err.Error(), "65534") {
		t.Errorf("refused with %v", err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// connectAs connects to the socket at path from a thread of another user and
// returns how much it can read. The thread ends with its goroutine.
func connectAs(uid int, path string) (int, error) {
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		n, err := func() (int, error) {
			if _, _, no := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); no != 0 {
				return 0, no
			}
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				return 0, err
			}
			defer syscall.Close(fd)
			if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
				return 0, err
			}
			return syscall.Read(fd, make([]byte, 1))
		}()
		done <- result{n, err}
	}()
	r := <-done
	return r.n, r.err
}
