package container

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"ringfence/internal/sandbox"
)

// serve answers at a socket of its own.
func serve(t *testing.T, h http.Handler) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "eng") // not of t: its name would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return filepath.Join(dir, "s")
}

// A fakeEngine is a block of testdata/engines.txt.
type fakeEngine struct {
	name, runtime, fail, is string
	ping                    map[string]string
	info                    map[string]any
	answers                 [][3]string
}

func (f fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, a := range f.answers {
		if strings.HasPrefix(r.URL.Path, a[0]) {
			status, _ := strconv.Atoi(a[1])
			w.WriteHeader(status)
			if a[2] != "ENDLESS" {
				_, _ = fmt.Fprint(w, a[2])
				return
			}
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, 1<<20))
			}
			return
		}
	}
	switch {
	case r.URL.Path == "/_ping":
		for k, v := range f.ping {
			w.Header().Set(k, v)
		}
	case strings.HasSuffix(r.URL.Path, "/info"):
		_ = json.NewEncoder(w).Encode(f.info)
	case strings.Contains(r.URL.Path, "/images/"):
		_, _ = fmt.Fprint(w, `{"Id": "sha256:00"}`)
	default:
		http.NotFound(w, r)
	}
}

func readEngines(t *testing.T) []fakeEngine {
	t.Helper()
	f, err := os.Open("testdata/engines.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []fakeEngine
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		word, rest, _ := strings.Cut(sc.Text(), " ")
		if word == "" || word == "#" {
			continue
		}
		if word == "case" {
			all = append(all, fakeEngine{
				name: rest, ping: map[string]string{"Api-Version": "1.41", "Server": "Docker/1 (linux)"},
				info: map[string]any{"OSType": "linux", "OperatingSystem": "Somewhere", "KernelVersion": "0", "SecurityOptions": []string{"name=seccomp,profile=default"}},
			})
			continue
		}
		c := &all[len(all)-1]
		switch word {
		case "ping":
			k, v, _ := strings.Cut(rest, "=")
			c.ping[k] = v
		case "info":
			more := map[string]any{}
			if err := json.Unmarshal([]byte(rest), &more); err != nil {
				t.Fatal(err)
			}
			maps.Copy(c.info, more)
		case "answer":
			a := strings.SplitN(rest, " ", 3)
			c.answers = append(c.answers, [3]string(a))
		case "runtime":
			c.runtime = rest
		case "fail":
			c.fail = rest
		case "is":
			c.is = rest
		default:
			t.Fatalf("engines.txt: no %q", word)
		}
	}
	return all
}

// K6, and that what a person can do is said.
func TestEngines(t *testing.T) {
	for _, c := range readEngines(t) {
		t.Run(c.name, func(t *testing.T) {
			socket := serve(t, c)
			tier := New(Options{Socket: socket, Runtime: Runtime(c.runtime), Image: "some/image:1", Dir: t.TempDir()})
			if c.is != "" {
				e, err := tier.connect(t.Context())
				if err != nil || e.evidence() != strings.ReplaceAll(c.is, "SOCKET", socket) {
					t.Errorf("%v, %v", e.evidence(), err)
				}
				return
			}
			_, err := tier.Start(t.Context(), sandbox.Spec{Argv: []string{"/bin/true"}})
			if want := strings.ReplaceAll(c.fail, "SOCKET", socket); !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v, want …%s…", err, want)
			}
			nothingLeftOf(t, tier.o.Dir)
		})
	}
}

func nothingLeftOf(t *testing.T, dir string) {
	t.Helper()
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("left of a set-up: %v, %v", names, err)
	}
}

// Who starts an engine, or lets somebody use it, is told how.
func TestNoEngine(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: dead}), syscall.Close(fd)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		socket  string
		runtime Runtime
		want    string
	}{
		{dead, RuntimeDocker, "connection refused; start it: systemctl --user start docker"},
		{dir + "/none", RuntimePodman, "no such file or directory; start it: systemctl --user start podman.socket"},
		{"/run/ringfence-none.sock", RuntimeAuto, "start it: sudo systemctl start docker"},
	} {
		tier := New(Options{Socket: c.socket, Runtime: c.runtime})
		if _, err := tier.Start(t.Context(), sandbox.Spec{Argv: []string{"/bin/true"}}); !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%v, want …%s…", err, c.want)
		}
		if _, err := tier.Probe(t.Context()); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("Probe: %v, want ErrUnsupported", err)
		}
		if n, err := tier.Sweep(t.Context()); n != 0 || err != nil {
			t.Errorf("Sweep: %d, %v; what cannot be used is told by what uses it", n, err)
		}
	}
	for want, err := range map[string]error{
		"usermod -aG docker":                         withAdvice(place{socket: "/var/run/docker.sock", kind: RuntimeDocker}, &net.OpError{Err: os.NewSyscallError("connect", syscall.EACCES)}),
		"neither Podman nor Docker":                  noEngine(RuntimeAuto),
		"start it: sudo systemctl start podman.sock": noEngine(RuntimePodman),
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want …%s…", err, want)
		}
	}
}

// A breakingProxy passes requests on to an engine, but for one.
type breakingProxy struct {
	httputil.ReverseProxy
	how   string
	which int64
	seen  atomic.Int64
}

// to names the engine.
func (p *breakingProxy) to(socket string) {
	p.Director = func(r *http.Request) { r.URL.Scheme, r.URL.Host = "http", "engine" }
	p.ErrorLog = log.New(io.Discard, "", 0)
	p.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
}

func (p *breakingProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.seen.Add(1) != p.which {
		p.ReverseProxy.ServeHTTP(w, r)
		return
	}
	switch p.how {
	case "refused":
		http.Error(w, `{"message": "injected"}`, http.StatusInternalServerError)
		return
	case "answer lost":
		p.ReverseProxy.ServeHTTP(&discard{header: http.Header{}}, r)
	}
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// A fault at any call to the engine leaves no effect, no container and no box that
// is less than was asked for.
func TestFaults(t *testing.T) {
	eachMode(t, func(t *testing.T, tier *Tier) {
		hows := []string{"refused", "not sent", "answer lost"}
		if tier.o.Runtime == RuntimePodman {
			hows = hows[2:] // the worst; it takes four times as long as Docker
		}
		for _, how := range hows {
			for n, more := int64(1), true; more; n++ {
				if n > 20 {
					t.Fatal("too many calls")
				}
				more = faultAt(t, tier, how, n)
			}
		}
	})
}

// faultAt starts a box whose nth call to the engine goes wrong, and reports whether
// there was one.
func faultAt(t *testing.T, tier *Tier, how string, n int64) bool {
	t.Helper()
	p := &breakingProxy{how: how, which: n}
	p.to(tier.o.Socket)
	o := tier.o
	o.Socket = serve(t, p)
	broken := New(o)
	broken.elsewhere = tier.elsewhere
	dir := world(t, boxCase{})
	s := sh("touch ran")
	s.Workspace, s.LaterWritable = sandbox.Workspace{Path: dir + "/ws", Mode: sandbox.ReadWrite}, true
	b, err := broken.Start(t.Context(), s)
	_, ran := os.Stat(dir + "/ws/ran")
	if err != nil && (!errors.Is(err, sandbox.ErrNotBuilt) || ran == nil) {
		t.Errorf("%s, call %d: %v, and the program ran: %v", how, n, err, ran == nil)
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, b.Stdout())
		if exit, err := b.Wait(); err == nil && exit.Status() != 0 {
			t.Errorf("%s, call %d: %v", how, n, exit)
		}
	}
	if list := left(t, tier); len(list) > 0 {
		t.Errorf("%s, call %d: a container is left", how, n)
	}
	nothingLeftOf(t, o.Dir)
	return p.seen.Load() >= n
}
