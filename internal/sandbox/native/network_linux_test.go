package native

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// listen makes a Unix socket that answers every connection with a word.
func listen(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 8); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, _, err := unix.Accept(fd)
			if err != nil {
				return
			}
			_, _ = unix.Write(c, []byte("outside\n"))
			unix.Close(c)
		}
	}()
	t.Cleanup(func() { _ = unix.Shutdown(fd, unix.SHUT_RDWR); <-done; unix.Close(fd) })
}

// dial is a program for boxes: it connects to the Unix sockets and TCP ports that it
// is given, and says what came of it.
const dialer = `
import socket, sys
for a in sys.argv[1:]:
    try:
        s = socket.socket(socket.AF_UNIX if "/" in a or a[0] == "@" else socket.AF_INET)
        s.settimeout(5)
        s.connect(a.replace("@", "\0") if a[0] in "/@" else ("127.0.0.1", int(a)))
        print(s.recv(100).decode(), end="")
    except OSError as e:
        print(e.strerror)
l = socket.socket()
l.bind(("127.0.0.1", 0)); l.listen()
c = socket.create_connection(l.getsockname()); l.accept()[0].send(b"loopback\n")
print(c.recv(100).decode(), end="")
`

// A box by policy has the way out and nothing else; its own loopback works.
func TestWayOut(t *testing.T) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs /usr/bin/python3")
		}
		t.Skip("needs /usr/bin/python3")
	}
	d := dir(t)
	way, other := d+"/way", d+"/other"
	listen(t, way)
	listen(t, other)
	listen(t, "@"+d)
	s := sandbox.Spec{
		Argv: []string{"/usr/bin/python3", "-c", dialer, way, other, "@" + d, "22"}, Profile: sandbox.ProfileAgent,
		Network: sandbox.NetworkPolicy, Egress: way,
	}
	out := run(t, full(), s, "")
	if want := "outside\nNo such file or directory\nConnection refused\nConnection refused\nloopback\n"; string(out.Stdout) != want {
		t.Errorf("%q %q, want %q", out.Stdout, out.Stderr, want)
	}
	if _, err := kinds["plain"].Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "network by policy needs user namespaces") {
		t.Errorf("without namespaces: %v", err)
	}
	// Without a network a command makes no socket at all.
	s.Network, s.Egress, s.Profile = sandbox.NetworkNone, "", sandbox.ProfileCode
	s.Limits.AddressSpace = sandbox.Unlimited
	for kind, tier := range kinds {
		out := run(t, tier, s, "")
		if want := strings.Repeat("Address family not supported by protocol\n", 4); string(out.Stdout) != want {
			t.Errorf("%s: %q %q, want %q", kind, out.Stdout, out.Stderr, want)
		}
	}
}

// Boxes of root run as somebody else each, who owns nothing on the machine; the files
// of their workspaces stay those of their owner.
func TestRootIsSomebodyElse(t *testing.T) {
	if os.Getuid() != 0 {
		return // an ordinary user is himself: TestFiles sees his files
	}
	for _, owner := range []int{0, 1234} {
		d := dir(t)
		if err := os.Chown(d, owner, owner); err != nil {
			t.Fatal(err)
		}
		s := sh("id -u; id -g; id -G; echo x >new; stat -c '%u %g' new .; cat /proc/self/uid_map | tr -s ' '; chown 5 new 2>/dev/null || echo no")
		s.Workspace = sandbox.Workspace{Path: d, Mode: sandbox.ReadWrite}
		seen := map[string]bool{}
		for range 2 {
			out := run(t, full(), s, "")
			want := fmt.Sprintf("%d\n%[1]d\n%[1]d\n%[1]d %[1]d\n%[1]d %[1]d\n 0 ", owner)
			rest, ok := strings.CutPrefix(string(out.Stdout), want)
			outer, size, _ := strings.Cut(rest, " ")
			if !ok || size != "65536\nno\n" || seen[outer] {
				t.Errorf("%q %q, want %q; blocks %v", out.Stdout, out.Stderr, want, seen)
			}
			seen[outer] = true
			var st unix.Stat_t
			if err := unix.Stat(d+"/new", &st); err != nil || int(st.Uid) != owner || int(st.Gid) != owner {
				t.Errorf("on the host the new file is of %d:%d, %v", st.Uid, st.Gid, err)
			}
		}
	}
}

// A file system whose owners cannot be mapped is no workspace for root.
func TestWorkspaceThatCannotBeMapped(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	d := os.Getenv("NATIVE_TEST_OVERLAY")
	if d == "" {
		cmd := exec.Command(self, "-test.run=^TestWorkspaceThatCannotBeMapped$", "-test.v")
		cmd.Env = append(os.Environ(), "NATIVE_TEST_OVERLAY="+dir(t))
		// A mount namespace of its own: what is mounted there is nowhere else.
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, name := range []string{"lower", "upper", "work", "ws"} {
		if err := os.Mkdir(d+"/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", d+"/ws", "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", d)); err != nil {
		t.Fatal(err)
	}
	s := sh("true")
	s.Workspace = sandbox.Workspace{Path: d + "/ws", Mode: sandbox.ReadWrite}
	b, err := full().Start(t.Context(), s)
	if err == nil {
		b.Kill()
	}
	if err == nil || !strings.Contains(err.Error(), "does not let the owners of files be mapped") {
		t.Errorf("%v", err)
	}
	s.Workspace.Mode = sandbox.ReadOnly // of which nothing has to stay
	if out := run(t, full(), s, ""); out.Exit.Status() != 0 {
		t.Errorf("%v", out.Exit)
	}
	if err := unix.Unmount(d+"/ws", 0); err != nil {
		t.Fatal(err)
	}
}
