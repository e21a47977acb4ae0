package api

import (
	"context"
	"encoding/json"
	"errors"
	"net"
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

// TestGuest: another user who was let in to answer does that, and nothing else; a third
// is refused.
func TestGuest(t *testing.T) {
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
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a.sock")
	l, err := ipc.ListenForOthers(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	h := newFake()
	s := NewServer(h, ServerOptions{Home: "/h", Guests: func(uid uint32) bool { return uid == 65534 }})
	go func() { served <- s.Serve(ctx, l) }()
	c, err := Connect(ctx, Options{Dial: func(context.Context) (net.Conn, error) { return dialAs(65534, path) }})
	if err != nil {
		t.Fatal(err)
	}
	if told := c.Hello(); told.Home != "" || told.PID != 0 {
		t.Errorf("a guest is told %+v", told)
	}
	qs, err := c.Questions(ctx)
	if err != nil || len(qs) == 0 {
		t.Fatalf("%v, %v", qs, err)
	}
	if err := c.Answer(ctx, qs[0].ID, Choice{Yes: true}); err != nil {
		t.Error(err)
	}
	_, opened := c.OpenSession(ctx, OpenRequest{Principal: "p/a"})
	_, resumed := c.ResumeSession(ctx, "s-1", "token-s-1")
	_, told := c.Status(ctx)
	for name, err := range map[string]error{
		"open": opened, "resume": resumed, "status": told, "stop": c.Stop(ctx, true),
		"ledger": c.LedgerEntries(ctx, LedgerQuery{}, func(json.RawMessage) error { return nil }),
	} {
		if !errors.Is(err, &Error{Code: CodeRefused}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, uid := range []int{65533, 0} { // nor is this user let in here
		if n, err := connectAs(uid, path); n != 0 || err != nil {
			t.Errorf("user %d read %d bytes, %v", uid, n, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// dialAs connects from a thread of another user.
func dialAs(uid int, path string) (net.Conn, error) {
	fd, err := socketAs(uid, path)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return net.FileConn(f)
}

// connectAs connects to the socket at path as another user and returns how much it can
// read.
func connectAs(uid int, path string) (int, error) {
	fd, err := socketAs(uid, path)
	if err != nil {
		return 0, err
	}
	defer syscall.Close(fd)
	return syscall.Read(fd, make([]byte, 1))
}

// socketAs connects to the socket at path from a thread of another user, which ends with
// its goroutine.
func socketAs(uid int, path string) (int, error) {
	type result struct {
		fd  int
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		fd, err := func() (int, error) {
			if _, _, no := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); no != 0 {
				return 0, no
			}
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err == nil {
				err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
			}
			return fd, err
		}()
		done <- result{fd, err}
	}()
	r := <-done
	return r.fd, r.err
}
