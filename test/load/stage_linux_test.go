package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence/test/rig"
)

// A stage is a home with a policy, a list of guests, and one of us that listens.
type stage struct {
	*rig.Home
	t               *testing.T
	guest, tool     string
	policy, servers string
	names           []string
}

// newStage lists guests of these modes. "far" is one over HTTP.
func newStage(t *testing.T, modes ...string) *stage {
	t.Helper()
	dir := t.TempDir()
	bin, err := rig.Build(t.Context(), dir)
	if err == nil {
		err = rig.GoBuild(t.Context(), dir+"/guest", "ringfence/test/load/testdata/guest")
	}
	s := &stage{t: t, names: modes, tool: echoTool(t)}
	if err == nil {
		s.Home, err = rig.New(bin)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.must(s.Close()) })
	s.guest = filepath.Join(s.Person, "guest")
	s.must(os.Link(dir+"/guest", s.guest))
	list := map[string]any{}
	for _, mode := range modes {
		settings := map[string]any{"annotations": "everything", "timeout": "2s"}
		if mode == "far" {
			list[mode] = map[string]any{"type": "http", "url": s.far(), "ringfence": settings}
			continue
		}
		settings["paths"] = []string{s.guest}
		list[mode] = map[string]any{"command": s.guest, "args": []string{mode, s.tool}, "ringfence": settings}
	}
	sentences := []string{"may do anything in the workspace"}
	for _, mode := range modes {
		sentences = append(sentences, "may use the tools "+mode+".*")
	}
	if s.servers, err = s.Servers(list); err == nil {
		s.policy, err = s.Policy(t.Context(), sentences...)
	}
	s.must(err)
	return s
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// echoTool is the definition of echo, as it was captured.
func echoTool(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../corpus/tools/server-everything.json")
	var captured struct{ Tools []json.RawMessage }
	if err == nil {
		err = json.Unmarshal(data, &captured)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range captured.Tools {
		if strings.Contains(string(tool), `"name":"echo"`) || strings.Contains(string(tool), `"name": "echo"`) {
			var line strings.Builder
			if err := json.NewEncoder(&line).Encode(tool); err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(line.String())
		}
	}
	t.Fatal("server-everything has no echo")
	return ""
}

// far starts a guest that serves HTTP and returns its URL.
func (s *stage) far() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	at := l.Addr().String()
	s.must(l.Close())
	c := exec.Command(s.guest, "steady", s.tool, at)
	s.must(c.Start())
	s.t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	return "http://" + at + "/"
}

func (s *stage) mcp(more ...string) *exec.Cmd {
	return s.Command(s.t.Context(), append([]string{"mcp", "--servers", s.servers, "--policy", s.policy, "--ask", "never", "-w", s.Work}, more...)...)
}

// A door is one of us that listens.
type door struct {
	cmd        *exec.Cmd
	url, token string
	errs       sync.WaitGroup
	goroutines int // of what it said when it was told to quit
}

var listensAt = regexp.MustCompile(`MCP at (\S+), with the token in (\S+)`)

func (s *stage) listen() *door {
	s.t.Helper()
	d := &door{cmd: s.mcp("--listen", "127.0.0.1:0")}
	errs, err := d.cmd.StderrPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	s.must(err)
	s.t.Cleanup(func() { _, _ = d.cmd.Process.Kill(), d.cmd.Wait() })
	lines := bufio.NewReader(errs)
	for said := ""; d.url == ""; {
		line, err := lines.ReadString('\n')
		if said += line; err != nil {
			s.t.Fatalf("it does not listen: %s", said)
		}
		if m := listensAt.FindStringSubmatch(line); m != nil {
			token, err := os.ReadFile(m[2])
			s.must(err)
			d.url, d.token = m[1], strings.TrimSpace(string(token))
		}
	}
	d.errs.Go(func() {
		for {
			line, err := lines.ReadString('\n')
			if strings.HasPrefix(line, "goroutine ") {
				d.goroutines++
			}
			if err != nil {
				return
			}
		}
	})
	return d
}

// quit has a door say what runs in it, and end, and returns how many goroutines that is.
func (d *door) quit() (int, error) {
	if err := d.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return 0, err
	}
	d.errs.Wait()
	_ = d.cmd.Wait() // it has been told to end badly
	return d.goroutines, nil
}

// A state is what a process has of the machine.
type state struct{ memory, descriptors, threads int64 } // memory in bytes, not of files

func stateOf(pid int) (s state, err error) {
	at := fmt.Sprintf("/proc/%d/", pid)
	roll, err := os.ReadFile(at + "smaps_rollup")
	if err != nil {
		return s, err
	}
	if _, rest, ok := strings.Cut(string(roll), "\nAnonymous:"); !ok {
		return s, errors.New("the kernel does not say how much memory is anonymous")
	} else if _, err = fmt.Sscan(rest, &s.memory); err != nil {
		return s, err
	}
	s.memory *= 1024
	fds, err := os.ReadDir(at + "fd")
	if err != nil {
		return s, err
	}
	tasks, err := os.ReadDir(at + "task")
	s.descriptors, s.threads = int64(len(fds)), int64(len(tasks))
	return s, err
}

func (s state) String() string {
	return fmt.Sprintf("%.1f MB, %d descriptors, %d threads", float64(s.memory)/1e6, s.descriptors, s.threads)
}

// settles waits until pid has about what it had, and says both. Memory that is not used any
// more is given back with time; descriptors are closed at once, and not by the collector
// of garbage, which runs every two minutes.
func (s *stage) settles(what string, pid int, before state) {
	s.t.Helper()
	for begun := time.Now(); ; <-time.After(200 * time.Millisecond) {
		now, err := stateOf(pid)
		s.must(err)
		few, small := now.descriptors <= before.descriptors+someMore, now.memory <= before.memory+mostMore
		if !few && time.Since(begun) < 20*time.Second || !small && time.Since(begun) < 3*time.Minute {
			continue
		}
		s.t.Logf("%s had %s, has %s", what, before, now)
		if !few || !small {
			s.t.Errorf("%s keeps too much", what)
		}
		return
	}
}

// guests counts the processes of guests that we have started, in whatever boxes.
func (s *stage) guests() (n int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		line, err := os.ReadFile(d + "/cmdline")
		if err == nil && strings.HasPrefix(string(line), s.guest+"\x00") && !strings.Contains(string(line), "\x00127.0.0.1:") {
			n++
		}
	}
	return n
}

// files names what lies in the home and its folders.
func (s *stage) files() (all []string) {
	s.must(filepath.WalkDir(s.Own, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, strings.TrimPrefix(path, s.Own))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has gone meanwhile
		}
		return err
	}))
	return all
}

// enginePID is the process of the engine.
func (s *stage) enginePID() int {
	s.t.Helper()
	c, err := s.Connect(s.t.Context())
	s.must(err)
	defer c.Close()
	return c.Hello().PID
}

// session is a client over HTTP with a session, which listens to nothing.
func (s *stage) session(client *http.Client, d *door) *poster {
	s.t.Helper()
	p := &poster{url: d.url, token: d.token, client: client, stop: func() {}}
	r, err := p.post(context.Background(), hello, "initialize", "")
	s.must(err)
	p.session = r.Header.Get("Mcp-Session-Id")
	discard(r, nil)
	if p.session == "" {
		s.t.Fatalf("there is no session: %s", r.Status)
	}
	return p
}

// once has a new client ask every server once, and returns when it has left.
func (s *stage) once(d *door, all *tally, client int) {
	s.t.Helper()
	p, err := newPoster(s.t.Context(), d.url, d.token, newBook(client, all), true)
	s.must(err)
	for _, name := range s.names {
		p.ask(context.Background(), name)
	}
	s.must(p.close())
}

func discard(r *http.Response, err error) {
	if err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
}
