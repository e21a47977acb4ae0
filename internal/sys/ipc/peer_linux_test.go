package ipc

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// checkSelf fails unless the peer of conn is this process.
func checkSelf(t *testing.T, side string, conn net.Conn) {
	t.Helper()
	p, err := PeerOf(conn)
	if err != nil {
		t.Fatal(err)
	}
	sid, _, errno := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
	exe, err := os.Executable()
	if errno != 0 || err != nil {
		t.Fatal(errno, err)
	}
	if !p.Known || !p.HasUID || p.PID != os.Getpid() || p.UID != uint32(os.Geteuid()) || p.GID != uint32(os.Getegid()) ||
		p.SID != int(sid) || p.Exe != exe {
		t.Errorf("%s: peer is %+v, want this process (session %d, %s)", side, p, sid, exe)
	}
}

func TestPeerThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDialAndLeave$")
	cmd.Env = append(os.Environ(), "IPC_TEST_SOCKET="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := PeerOf(conn)
	if err != nil || p.Known || p.SID != 0 || p.Exe != "" || p.UID != uint32(os.Geteuid()) {
		t.Errorf("peer that has ended: %+v, %v; want its user and nothing else", p, err)
	}
}

func TestPeerIsDescribed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	checkSelf(t, "client", client)
	checkSelf(t, "server", server)
}

// TestDialAndLeave is the child of TestPeerThatIsGone.
func TestDialAndLeave(t *testing.T) {
	if path := os.Getenv("IPC_TEST_SOCKET"); path != "" {
		if _, err := Dial(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
}
