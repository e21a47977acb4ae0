package ipc

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenDialPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d", "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
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
	for side, conn := range map[string]net.Conn{"client": client, "server": server} {
		p, err := PeerOf(conn)
		if err != nil || p.HasUID && p.UID != uint32(os.Geteuid()) || p.PID != 0 && p.PID != os.Getpid() {
			t.Errorf("%s: peer is %+v, %v; want this process", side, p, err)
		}
	}
}

func TestSocketInTheWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !errors.Is(err, ErrLocked) {
		t.Errorf("second Listen: %v, want ErrLocked", err)
	}
	if c, err := Dial(t.Context(), path); err != nil {
		t.Errorf("the first listener lost its socket: %v", err)
	} else {
		c.Close()
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	again, err := Listen(path)
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	again.Close()

	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil {
		t.Error("listened over a file")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
		t.Errorf("the file in the way is now %q, %v", got, err)
	}
}

func TestOpenDirectoryRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(dir, "s")); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("directory open to all: %v", err)
	}
}

func TestProcTexts(t *testing.T) {
	st, err := parseStat("7 (a) b) (c)) S 1 7 42 34817 7 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2\n")
	if err != nil || st != (procStat{sid: 42, tty: 34817, start: "987654"}) {
		t.Errorf("parseStat: %+v, %v", st, err)
	}
	for _, bad := range []string{"", "7 (x", "7 (x) S 1", "7 (x) S 1 7 a 0 7 4 1 2 3 4 5 6 7 8 20 0 1 0 9 1"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("parseStat accepted %q", bad)
		}
	}
	for device, want := range map[int]string{
		0: "", 34817: "/dev/pts/1", 136<<8 | 0x100000 | 5: "/dev/pts/261", 137 << 8: "/dev/pts/256",
		4<<8 | 1: "/dev/tty1", 4<<8 | 65: "/dev/ttyS1", 5<<8 | 1: "device 5:1",
	} {
		if got := ttyName(device); got != want {
			t.Errorf("ttyName(%#x) = %q, want %q", device, got, want)
		}
	}
	if uid, err := parseEUID("Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t5\t5\t5\n"); err != nil || uid != 2 {
		t.Errorf("parseEUID: %d, %v", uid, err)
	}
	if _, err := parseEUID("Name:\tUid:\t1\t2\t3\t4\n"); err == nil {
		t.Error("parseEUID accepted a program name as user id")
	}
}
