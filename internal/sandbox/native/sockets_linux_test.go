package native

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// needPython skips, or fails where everything has to be there.
func needPython(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs /usr/bin/python3")
		}
		t.Skip("needs /usr/bin/python3")
	}
}

// A told is what came of a box.
type told struct {
	Stdout, Stderr []byte
	Denials        []sandbox.Denial
	Report         sandbox.Report
}

func watch(t *testing.T, tier Tier, s sandbox.Spec) told {
	t.Helper()
	box, err := tier.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(box.Stderr())
		errs <- b
	}()
	out, err := io.ReadAll(box.Stdout())
	o := told{Stdout: out, Stderr: <-errs}
	_, ended := box.Wait()
	if err := errors.Join(err, ended); err != nil {
		t.Fatal(err)
	}
	o.Denials, o.Report = box.Denials(), box.Report()
	return o
}

const reach = `
import os, socket, sys, threading
def unix(path, kind=socket.SOCK_STREAM):
    try:
        s = socket.socket(socket.AF_UNIX, kind)
        s.settimeout(5)
        s.connect(path)
        return "connected"
    except OSError as e:
        return e.strerror
ws, ro = sys.argv[1], sys.argv[2]
`

// Sockets of the host in trees that the box sees answer nobody in it (IPC-01), however
// they are named: directly, read-only, through links, descriptors, renamed directories.
const attackSockets = reach + `
print(unix(ws + "/host.sock"))
print(unix(ro + "/host.sock"))
os.chdir(ws); print(unix("host.sock"))
os.chdir("/tmp")
os.symlink(ro + "/host.sock", "link"); print(unix("link"))
os.symlink(ro, "up"); print(unix("up/host.sock"))
d = os.open(ro, os.O_RDONLY); print(unix("/proc/self/fd/%d/host.sock" % d))
p = os.open(ro + "/host.sock", os.O_PATH); print(unix("/proc/self/fd/%d" % p))
os.rename(ws + "/sub", ws + "/sub2"); print(unix(ws + "/sub2/host.sock"))
os.rename(ws + "/host.sock", ws + "/mine"); print(unix(ws + "/mine"))
os.link(ws + "/mine", ws + "/twin"); print(unix(ws + "/twin"))
s = socket.socket(socket.AF_UNIX); s.bind(ws + "/x"); os.unlink(ws + "/x"); os.rename(ws + "/twin", ws + "/x"); print(unix(ws + "/x"))
print(unix(ro + "/datagram", socket.SOCK_DGRAM))
try: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); print("datagrams")
except OSError as e: print(e.strerror)
a, b = socket.socketpair()
try: a.sendto(b"x", ro + "/host.sock"); print("sent")
except OSError as e: print(e.strerror)
a = socket.socket(socket.AF_UNIX)
try: a.sendto(b"x", ro + "/host.sock"); print("sent")
except OSError as e: print(e.strerror)
`

func TestSocketsOfTheHost(t *testing.T) {
	needPython(t)
	for name, change := range map[string]func(*sandbox.Spec){
		"held":      func(*sandbox.Spec) {},
		"unheld":    func(s *sandbox.Spec) { s.LaterWritable = true },
		"read-only": func(s *sandbox.Spec) { s.Workspace.Mode = sandbox.ReadOnly },
	} {
		w, ro := dir(t), dir(t)
		if err := os.Mkdir(w+"/sub", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{w + "/host.sock", w + "/sub/host.sock", ro + "/host.sock"} {
			listen(t, p)
			if err := os.Chmod(p, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err = errors.Join(err, unix.Bind(fd, &unix.SockaddrUnix{Name: ro + "/datagram"})); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		program := attackSockets
		if name == "read-only" {
			program = strings.Join(strings.Split(program, "\n")[:len(strings.Split(reach, "\n"))+6], "\n")
		}
		s := sandbox.Spec{
			Argv: []string{"/usr/bin/python3", "-c", program, w, ro}, Profile: sandbox.ProfileAgent, Network: sandbox.NetworkNone,
			Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}, ReadOnly: []string{ro},
		}
		change(&s)
		out := watch(t, full(), s)
		lines := strings.Split(strings.TrimSpace(string(out.Stdout)), "\n")
		refused := 0
		for _, l := range lines {
			if l == "Permission denied" || l == "None" { // "None" is a time-out: no connection either
				refused++
			}
		}
		want := map[bool]int{true: 5, false: 11}[name == "read-only"]
		if refused != want || slices.Contains(lines, "connected") || slices.Contains(lines, "sent") || slices.Contains(lines, "datagrams") {
			t.Errorf("%s: %q %q", name, lines, out.Stderr)
		}
		if !slices.ContainsFunc(out.Denials, func(d sandbox.Denial) bool { return d.Op == "connect" && d.Object == ro+"/host.sock" && d.Rule != "" }) {
			t.Errorf("%s: denials %+v", name, out.Denials)
		}
	}
}

// raceSockets swaps its own socket and the host's while it connects (IPC-01).
const raceSockets = reach + `
import ctypes
libc = ctypes.CDLL(None)
srv = socket.socket(socket.AF_UNIX); srv.bind(ws + "/own.sock"); srv.listen(1000)
tmp = socket.socket(socket.AF_UNIX); tmp.bind("/tmp/own.sock"); tmp.listen(1000)
def drain(s):
    while True: s.accept()[0].sendall(b"own\n")
for s in (srv, tmp): threading.Thread(target=drain, args=(s,), daemon=True).start()
os.symlink("/tmp/own.sock", "/tmp/l")
over = False
def swap():
    i = 0
    while not over:
        i += 1
        os.symlink([ro + "/host.sock", "/tmp/own.sock"][i % 2], "/tmp/n"); os.rename("/tmp/n", "/tmp/l")
        libc.renameat2(-100, (ws + "/own.sock").encode(), -100, (ws + "/host.sock").encode(), 2)
ts = [threading.Thread(target=swap)]
for x in ts: x.start()
out = {}
for i in range(10000):
    s = socket.socket(socket.AF_UNIX); s.settimeout(None)
    try:
        s.connect(["/tmp/l", ws + "/own.sock"][i % 2]); k = s.recv(10).decode()
    except OSError as e: k = e.strerror
    s.close(); out[k] = out.get(k, 0) + 1
over = True
for x in ts: x.join()
print(sorted(out)); print(sum(out.values()))
`

func TestSocketRace(t *testing.T) {
	needPython(t)
	for _, later := range []bool{false, true} {
		w, ro := dir(t), dir(t)
		listen(t, w+"/host.sock")
		listen(t, ro+"/host.sock")
		for _, p := range []string{w + "/host.sock", ro + "/host.sock"} {
			if err := os.Chmod(p, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		s := sandbox.Spec{
			Argv: []string{"/usr/bin/python3", "-c", raceSockets, w, ro}, Profile: sandbox.ProfileAgent, Network: sandbox.NetworkNone, LaterWritable: later,
			Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}, ReadOnly: []string{ro},
		}
		out := watch(t, full(), s)
		got := string(out.Stdout)
		if strings.Contains(got, "outside") || !strings.Contains(got, "own") || !strings.Contains(got, "Permission denied") || !strings.HasSuffix(got, "\n10000\n") {
			t.Errorf("later %v: %q %q", later, got, out.Stderr)
		}
	}
}

// Sockets of the box's own work as they do without a box (IPC-01, harmless).
const ownSockets = reach + `
import faulthandler; faulthandler.dump_traceback_later(20, exit=True)
import errno, multiprocessing, select, signal, time, stat
def echo(s):
    def f():
        while True:
            try: c = s.accept()[0]
            except OSError: return
            try: c.sendall(c.recv(10))
            except OSError: pass
            c.close()
    threading.Thread(target=f, daemon=True).start()
def ask(a, family=socket.AF_UNIX):
    c = socket.socket(family); c.connect(a); c.sendall(b"hello"); r = c.recv(10).decode(); p = c.getpeername(); c.close(); return r, p
os.umask(0o027)
for p in ("/tmp/s", "/dev/shm/s", ws + "/s", os.path.expanduser("~") + "/s", "\0abstract"):
    s = socket.socket(socket.AF_UNIX); s.bind(p); s.listen(); echo(s)
    assert s.getsockname() in (p, p.encode()), s.getsockname()
    r, peer = ask(p); assert r == "hello" and peer in (p, p.encode()), (r, peer)
    if p[0] == "/": assert stat.S_IMODE(os.stat(p).st_mode) == 0o750, oct(os.stat(p).st_mode)
    try: socket.socket(socket.AF_UNIX).bind(p); print("bound twice")
    except OSError as e: assert e.errno == errno.EADDRINUSE, e
os.chdir(ws)
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind("packets"); s.listen()
c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); c.connect("packets")
os.rename("s", "moved"); assert ask("moved")[0] == "hello"
os.mkdir("run"); s = socket.socket(socket.AF_UNIX); s.bind("run/.s.PGSQL.5432"); s.listen(); echo(s); assert ask("run/.s.PGSQL.5432")[0] == "hello"
for p, want in (("/tmp/none", errno.ENOENT), ("/etc/passwd", errno.ECONNREFUSED)):
    try: socket.socket(socket.AF_UNIX).connect(p); print("connected")
    except OSError as e: assert e.errno == want, (p, e)
# a queue that is full
s = socket.socket(socket.AF_UNIX); s.bind("/tmp/full"); s.listen(0)
first = socket.socket(socket.AF_UNIX); first.connect("/tmp/full")
n = socket.socket(socket.AF_UNIX); n.setblocking(False)
assert n.connect_ex("/tmp/full") == errno.EAGAIN
done = []
t = threading.Thread(target=lambda: (ask_full(), done.append(1)))
def ask_full(): c = socket.socket(socket.AF_UNIX); c.connect("/tmp/full")
t.start(); assert ask("/tmp/s")[0] == "hello" and not done
s.accept(); t.join(10); assert done
class Alarm(Exception): pass
def ring(*a): raise Alarm
signal.signal(signal.SIGALRM, ring); signal.setitimer(signal.ITIMER_REAL, .2)
c = socket.socket(socket.AF_UNIX); begun = time.time()
try: c.connect("/tmp/full"); print("connected")
except Alarm: assert time.time() - begun < 5
# TCP
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    l = socket.socket(family); l.bind((host, 0)); l.listen(); echo(l)
    assert ask(l.getsockname(), family)[0] == "hello"
    if family == socket.AF_INET: tcp = l.getsockname()
    c = socket.socket(family); c.setblocking(False)
    assert c.connect_ex(l.getsockname()) in (0, errno.EINPROGRESS)
    select.select([], [c], [], 5); assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    c.send(b"x"); c.setblocking(True); assert c.recv(10) == b"x"
    free = socket.socket(family); free.bind((host, 0))
    assert socket.socket(family).connect_ex(free.getsockname()) == errno.ECONNREFUSED
    c = socket.socket(family); c.settimeout(3); c.connect(l.getsockname()); c.close()
assert socket.socket().connect_ex(("192.0.2.1", 9)) == errno.ENETUNREACH
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
v.connect(u.getsockname()); v.send(b"u"); assert u.recv(9) == b"u"
assert socket.socket().connect_ex(("localhost", 1)) == errno.ECONNREFUSED
def work(q): q.put("worked")
m = multiprocessing.Manager(); q = m.Queue()
pr = multiprocessing.Process(target=work, args=(q,)); pr.start(); assert q.get() == "worked"; pr.join()
from multiprocessing.connection import Listener, Client
li = Listener(family="AF_UNIX"); threading.Thread(target=lambda: li.accept().send("c"), daemon=True).start(); assert Client(li.address).recv() == "c"
times = []
for i in range(2000):
    c = socket.socket(socket.AF_UNIX); b = time.perf_counter(); c.connect("/tmp/s"); times.append(time.perf_counter() - b); c.close()
times.sort(); print("connect: %.1f us" % (times[1000] * 1e6), file=sys.stderr)
times = []
for i in range(500):
    c = socket.socket(); b = time.perf_counter(); c.connect(tcp); times.append(time.perf_counter() - b); c.close()
times.sort(); print("connect, TCP: %.1f us" % (times[250] * 1e6), file=sys.stderr)
print("good")
`

func TestOwnSockets(t *testing.T) {
	needPython(t)
	for _, later := range []bool{false, true} {
		w := dir(t)
		s := sandbox.Spec{
			Argv: []string{"/usr/bin/python3", "-c", ownSockets, w, ""}, Profile: sandbox.ProfileAgent, Network: sandbox.NetworkNone, LaterWritable: later,
			Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}, Env: []string{"HOME=/home/someone"},
		}
		out := watch(t, full(), s)
		if string(out.Stdout) != "good\n" || len(out.Denials) > 0 {
			t.Errorf("later %v: %q %q %+v", later, out.Stdout, out.Stderr, out.Denials)
		}
		t.Logf("%s", out.Stderr)
		if !slices.Contains(out.Report.Inferred, layerSockets) || !strings.Contains(out.Report.Evidence[layerSockets], "pid 1") {
			t.Errorf("%+v", out.Report)
		}
	}
}

// Node serves HTTP over a Unix socket (IPC-01, harmless).
func TestNodeSocket(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs node")
		}
		t.Skip("needs node")
	}
	w := dir(t)
	s := sandbox.Spec{
		Argv: []string{node, "-e", `const h = require("http"), p = process.argv[1] + "/http.sock";
const s = h.createServer((q, r) => r.end("served\n")).listen(p, () => h.get({socketPath: p}, r => { r.pipe(process.stdout); r.on("end", () => s.close()) }))`, w},
		Profile: sandbox.ProfileAgent, Network: sandbox.NetworkNone, Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite},
	}
	if out := watch(t, full(), s); string(out.Stdout) != "served\n" {
		t.Errorf("%q %q", out.Stdout, out.Stderr)
	}
}

// FS-09 and FS-10: what has names elsewhere is neither linked nor written.
func TestHardLinks(t *testing.T) {
	for kind, tier := range kinds {
		w, ro := dir(t), dir(t)
		err := errors.Join(os.WriteFile(ro+"/file", []byte("kept\n"), 0o666), os.Chmod(ro+"/file", 0o666), os.WriteFile(w+"/old", []byte("kept\n"), 0o666), os.Chmod(w+"/old", 0o666),
			os.Link(w+"/old", ro+"/old"), os.Symlink(ro+"/file", w+"/soft"))
		if err != nil {
			t.Fatal(err)
		}
		s := sh(`cd ` + w + `
			ln ` + ro + `/file hard; ln -L soft hard; ln /proc/self/fd/5 hard 5<` + ro + `/file; ln -L /proc/self/fd/5 hard 5<` + ro + `/file
			mv ` + ro + `/file moved; ls hard
			echo x >old; echo x >>old; echo x 5<old >/proc/self/fd/5; truncate -s 0 old; chmod 600 old; cat old
			cp old copy; echo y >>copy; ln copy second; echo z >>second; echo n >copy; cat second
			rm old; echo new >old; cat old`)
		s.Workspace, s.ReadOnly = sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}, []string{ro}
		out := watch(t, tier, s)
		for _, p := range []string{ro + "/file", ro + "/old"} {
			if b, err := os.ReadFile(p); err != nil || string(b) != "kept\n" {
				t.Errorf("%s: %s: %q %v", kind, p, b, err)
			}
		}
		if got := string(out.Stdout); got != "kept\nn\nnew\n" {
			t.Errorf("%s: %q %q", kind, got, out.Stderr)
		}
		if !slices.ContainsFunc(out.Denials, func(d sandbox.Denial) bool { return d.Object == w+"/old" && strings.Contains(d.Rule, "other names") }) {
			t.Errorf("%s: %+v", kind, out.Denials)
		}
	}
}
