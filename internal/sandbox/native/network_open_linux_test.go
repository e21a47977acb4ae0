package native

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// TestOpenNetwork: a box that was given the network of the machine has it, says that it
// is not held, and gets no nearer to the sockets of the machine that are no network.
func TestOpenNetwork(t *testing.T) {
	needPython(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	abstract, err := net.Listen("unix", "@ringfence-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("outside\n"))
			c.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := sandbox.Spec{
		Argv:    []string{"/usr/bin/python3", "-c", dialer, port, abstract.Addr().String()},
		Profile: sandbox.ProfileServer, Network: sandbox.NetworkOpen,
	}
	var told sandbox.Report
	s.Confirm = func(r sandbox.Report) error {
		told = r
		return nil
	}
	out := watch(t, full(), s)
	if want := "outside\nConnection refused\nloopback\n"; string(out.Stdout) != want {
		t.Errorf("%q, want %q; %s", out.Stdout, want, out.Stderr)
	}
	net := sandbox.LayerNetworkNamespace
	if told.Has(net) || !slices.Contains(told.Missing, net) || !strings.Contains(told.Evidence[net], "nothing of it is held") || told.Complete() {
		t.Errorf("the report says %s (%s)", told, told.Evidence[net])
	}
	if told.String() != out.Report.String() {
		t.Errorf("confirmed as %s, run as %s", told, out.Report)
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	s = sh("cat /etc/hosts")
	s.Network = sandbox.NetworkOpen
	if got := run(t, full(), s, ""); string(got.Stdout) != string(hosts) {
		t.Errorf("names are %q, want %q", got.Stdout, hosts)
	}
}

// squatter binds what is without a file, by itself and by turns with what is allowed.
const squatter = `
import ctypes, os, socket, struct, threading
def tried(name, what):
    try: what(); print(name, "ok")
    except OSError as e: print(name, e.strerror)
tried("abstract", lambda: socket.socket(socket.AF_UNIX).bind("\0ringfence-squat-%d" % os.getpid()))
tried("automatic", lambda: socket.socket(socket.AF_UNIX).bind(""))
tried("inet", lambda: socket.socket().bind(("127.0.0.1", 0)))
l = socket.socket(socket.AF_UNIX)
tried("file", lambda: l.bind("/tmp/s"))
tried("elsewhere", lambda: socket.socket(socket.AF_UNIX).bind("/usr/s"))
l.listen()
tried("connect", lambda: socket.socket(socket.AF_UNIX).connect("/tmp/s"))
tried("names", lambda: socket.getaddrinfo("localhost", 80))
libc = ctypes.CDLL(None, use_errno=True)
name = b"\0ringfence-race"
inet = struct.pack("=HH", socket.AF_INET, 0) + bytes([127, 0, 0, 1]) + bytes(8)
unix = struct.pack("=H", socket.AF_UNIX) + name
memory = ctypes.create_string_buffer(inet, len(unix) + 16)
a, b = socket.socket(), socket.socket(socket.AF_UNIX)
slot, over = os.dup(a.fileno()), False
def flip():
    while not over:
        ctypes.memmove(memory, unix, len(unix)); os.dup2(b.fileno(), slot)
        ctypes.memmove(memory, inet, len(inet)); os.dup2(a.fileno(), slot)
t = threading.Thread(target=flip); t.start()
for _ in range(300): libc.bind(slot, memory, len(inet))
over = True; t.join()
print("race", repr(b.getsockname()))
`

// The names without a file of a machine whose network a box was given are not to be had:
// others on the machine would find the box in the place of a service.
func TestOpenNetworkTakesNoNames(t *testing.T) {
	needPython(t)
	s := sandbox.Spec{Argv: []string{"/usr/bin/python3", "-c", squatter}, Profile: sandbox.ProfileServer, Network: sandbox.NetworkOpen}
	out := watch(t, full(), s)
	want := "abstract Permission denied\nautomatic Permission denied\ninet ok\nfile ok\nelsewhere Permission denied\nconnect ok\nnames ok\nrace ''\n"
	if string(out.Stdout) != want {
		t.Errorf("%q, want %q; %s", out.Stdout, want, out.Stderr)
	}
}
