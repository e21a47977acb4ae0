package landlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// job is the variable that makes this program the one that restricts itself.
const job = "LANDLOCK_TEST_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(job); text != "" {
		os.Exit(restricted(text))
	}
	os.Exit(m.Run())
}

// A Job is what the restricted program does.
type Job struct {
	Rules *Rules // nil for none
	ByFD  []Path // granted by descriptor
	ABI   int    // of the kernel that is played, 0 for the real one
	Calls []string
	All   string // path for the test of all threads
}

// restricted does the job and prints one answer a line.
func restricted(text string) int {
	runtime.LockOSThread()
	var j Job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Println(err)
		return 1
	}
	if j.All != "" {
		fmt.Println(restrictedAll(j))
		return 0
	}
	if j.Rules != nil {
		if err := restrict(j); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	for _, c := range j.Calls {
		err := call(c)
		errno, known := errors.AsType[unix.Errno](err)
		switch {
		case err == nil:
			fmt.Println("ok")
		case known && err.Error() == errno.Error():
			fmt.Println(unix.ErrnoName(errno))
		default:
			fmt.Println(err)
		}
	}
	return 0
}

func restrict(j Job) error {
	for _, p := range j.ByFD {
		fd, err := unix.Open(p.Name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		j.Rules.Paths = append(j.Rules.Paths, Path{Name: p.Name, FD: fd, Access: p.Access})
	}
	make := New
	if j.ABI > 0 {
		make = func(r Rules) (*Ruleset, error) { return newAt(j.ABI, r) }
	}
	s, err := make(*j.Rules)
	if err != nil {
		return err
	}
	if err := s.Restrict(); err != nil {
		return err
	}
	return s.Close()
}

// A section is one set of rules and the calls under it.
type section struct {
	name  string
	rules []string
	calls []expected
}

type expected struct {
	line                string
	call, answer, twins string
	root                bool
}

func readSections(t *testing.T) []section {
	t.Helper()
	text, err := os.ReadFile("testdata/enforce.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []section
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, isName := strings.CutPrefix(line, "== ")
		what, answer, isCall := strings.Cut(line, " => ")
		switch {
		case line == "" || line[0] == '#':
		case isName:
			all = append(all, section{name: name})
		case isCall:
			e := expected{line: line, call: what, twins: "ok"}
			e.answer, e.twins, _ = strings.Cut(answer, " / ")
			if e.twins == "" {
				e.twins = "ok"
			}
			e.call, e.root = strings.CutPrefix(what, "root ")
			s := &all[len(all)-1]
			s.calls = append(s.calls, e)
		default:
			s := &all[len(all)-1]
			s.rules = append(s.rules, line)
		}
	}
	return all
}

// world makes what the calls are about and returns its names.
func world(t *testing.T) *strings.Replacer {
	t.Helper()
	top := t.TempDir()
	for _, d := range []string{"ro", "rw", "out"} {
		d = filepath.Join(top, d)
		for _, sub := range []string{"sub", "empty"} {
			if err := os.MkdirAll(filepath.Join(d, sub), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string]string{"file": "text", "sub/file": "text", "prog": "no format that the kernel knows"} {
			if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("../out/file", filepath.Join(d, "link")); err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReplacer("$ro", filepath.Join(top, "ro"), "$rw", filepath.Join(top, "rw"), "$out", filepath.Join(top, "out"))
}

// outside makes the process, the sockets and the ports that calls try to reach, and
// returns their names.
func outside(t *testing.T) *strings.Replacer {
	t.Helper()
	other := exec.Command("/bin/sh", "-c", "read x") // until its input ends
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = other.Wait() })
	abstract := fmt.Sprintf("@landlock-test-%d", os.Getpid())
	bound := func(family, kind int, at unix.Sockaddr) int {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, at)
		}
		if err == nil && kind == unix.SOCK_STREAM {
			err = unix.Listen(fd, 100)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	bound(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: abstract})
	sock := filepath.Join(t.TempDir(), "sock")
	bound(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: sock})
	bound(unix.AF_UNIX, unix.SOCK_DGRAM, &unix.SockaddrUnix{Name: abstract + "-datagrams"})
	port := func(fd int) string {
		a, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Itoa(a.(*unix.SockaddrInet4).Port)
	}
	local := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	listened := port(bound(unix.AF_INET, unix.SOCK_STREAM, local))
	// A port that was just given back is not given out again for a long while.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, local); err != nil {
		t.Fatal(err)
	}
	free := port(fd)
	unix.Close(fd)
	return strings.NewReplacer("$other", strconv.Itoa(other.Process.Pid), "$port", listened, "$free", free, "$abstract", abstract, "$sock", sock)
}

// run does the job in a process of its own and returns the answers.
func run(t *testing.T, j Job) []string {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{job + "=" + string(text)}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestEnforce(t *testing.T) {
	abi, err := ABI()
	if err != nil {
		t.Fatal(err)
	}
	names := outside(t)
	for _, s := range readSections(t) {
		t.Run(s.name, func(t *testing.T) {
			calls := slices.DeleteFunc(s.calls, func(e expected) bool { return e.root && os.Geteuid() != 0 })
			paths := world(t)
			j := parseRules(t, s.rules, func(s string) string { return names.Replace(paths.Replace(s)) })
			if j.Rules.MinABI = max(j.Rules.MinABI, j.ABI); j.Rules.MinABI > abi {
				if _, err := New(*j.Rules); !errors.Is(err, ErrTooOld) {
					t.Errorf("a ruleset that this kernel cannot hold: %v", err)
				}
				return
			}
			for _, e := range calls {
				j.Calls = append(j.Calls, names.Replace(paths.Replace(e.call)))
			}
			got := run(t, j)
			if len(got) != len(calls) {
				t.Fatalf("%d answers to %d calls: %q", len(got), len(calls), got)
			}
			for i, e := range calls {
				if got[i] != e.answer {
					t.Errorf("%s, got %s", e.line, got[i])
				}
				if e.answer != "ok" {
					unrestricted(t, calls[:i], e, names)
				}
			}
		})
	}
}

// unrestricted makes the call of e without rules, after those before that succeed,
// and wants another answer: else it was not Landlock that refused it.
func unrestricted(t *testing.T, before []expected, e expected, names *strings.Replacer) {
	t.Helper()
	paths := world(t)
	var j Job
	for _, b := range append(slices.Clone(before), e) {
		if b.answer == "ok" || b == e {
			j.Calls = append(j.Calls, names.Replace(paths.Replace(b.call)))
		}
	}
	got := run(t, j)
	if last := got[len(got)-1]; last != e.twins && e.answer != e.twins {
		t.Errorf("%s without rules: %s, want %s", e.call, last, e.twins)
	}
}

func parseRules(t *testing.T, lines []string, name func(string) string) Job {
	t.Helper()
	j := Job{Rules: &Rules{MinABI: 1}}
	for _, line := range lines {
		w := strings.Fields(name(line))
		switch w[0] {
		case "abi":
			n, err := strconv.Atoi(w[1])
			if err != nil {
				t.Fatal(err)
			}
			j.ABI = n
		case "grant":
			j.Rules.Paths = append(j.Rules.Paths, Path{Name: w[2], Access: parseAccess(t, w[1])})
		case "grant-fd":
			j.ByFD = append(j.ByFD, Path{Name: w[2], Access: parseAccess(t, w[1])})
		default:
			change(t, j.Rules, strings.Join(w, "="))
		}
	}
	return j
}

// L3, and that a failed New leaves no descriptor open.
func TestNewRefuses(t *testing.T) {
	paths := world(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	before := descriptors(t)
	for _, c := range []struct {
		p    Path
		want string
	}{
		{Path{Name: paths.Replace("$out/missing")}, "no such file"},
		{Path{Name: paths.Replace("$out/link")}, "symbolic link"},
		{Path{Name: paths.Replace("$out/file/x")}, "not a directory"},
		{Path{Name: "pipe", FD: pipe[0]}, "not a file of a mounted file system"},
		{Path{Name: "closed", FD: 999}, "bad file descriptor"},
	} {
		c.p.Access = Read
		s, err := New(Rules{MinABI: 1, Paths: []Path{{Name: "/", Access: Read}, c.p}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.p.Name) || s != nil {
			t.Errorf("%s: %v, want %s", c.p.Name, err, c.want)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// restrictedAll restricts all threads, some of which were there before, and probes on
// each, and on one that came after.
func restrictedAll(j Job) error {
	const threads = 8
	var ready sync.WaitGroup
	start, answers := make(chan bool), make(chan error)
	probe := func() {
		runtime.LockOSThread()
		ready.Done()
		<-start
		answers <- Canary(j.All)
	}
	ready.Add(threads)
	for range threads {
		go probe()
	}
	ready.Wait()
	s, err := New(*j.Rules)
	if err != nil {
		return err
	}
	if err := s.RestrictAll(); err != nil {
		return err
	}
	ready.Add(1)
	go probe()
	close(start)
	// What threads send each other still arrives: the runtime needs it.
	err = call("signal-own")
	for range threads + 1 {
		err = errors.Join(err, <-answers)
	}
	return err
}

func TestRestrictAll(t *testing.T) {
	dir := world(t).Replace("$out")
	got := run(t, Job{Rules: &Rules{MinABI: 1}, All: dir})
	// A program linked with cgo, as with the race detector, has threads that the
	// runtime does not know.
	if cgo := slices.Equal(got, []string{"setting no_new_privs on all threads: operation not supported"}); !cgo && !slices.Equal(got, []string{"<nil>"}) {
		t.Errorf("%q", got)
	}
}

// A restriction is for the calling thread alone, and Canary tells.
func TestCanary(t *testing.T) {
	dir := world(t).Replace("$out")
	if err := Canary(dir); err == nil || !strings.Contains(err.Error(), "not in force") {
		t.Errorf("without a restriction: %v", err)
	}
	if err := Canary(dir + "/missing"); err == nil || !strings.Contains(err.Error(), "proves nothing") {
		t.Errorf("where nothing is: %v", err)
	}
	if err := Canary("a\x00b"); err == nil {
		t.Error("a NUL")
	}
	err := onThread(func() error {
		s, err := New(Rules{MinABI: 1})
		if err != nil {
			return err
		}
		return errors.Join(s.Restrict(), Canary(dir), s.Close(), s.Close())
	})
	if err != nil {
		t.Error(err)
	}
	if err := Canary(dir); err == nil {
		t.Error("other threads are restricted too")
	}
}

// L5: what reaches the audit log is asked for.
func TestFlags(t *testing.T) {
	for abi := 1; abi <= NewestABI; abi++ {
		quiet, loud := Rules{}.flags(abi), Rules{Log: true}.flags(abi)
		if abi < 7 && quiet|loud != 0 || abi >= 7 && (quiet != flagLogSameExecOff|flagLogSubdomainsOff || loud != flagLogNewExecOn|flagLogSubdomainsOff) {
			t.Errorf("ABI %d: %#x and %#x", abi, quiet, loud)
		}
	}
}

// More than 16 restrictions are an error that says so.
func TestTooMany(t *testing.T) {
	err := onThread(func() error {
		for {
			s, err := New(Rules{MinABI: 1})
			if err != nil {
				return err
			}
			if err := errors.Join(s.Restrict(), s.Close()); err != nil {
				return err
			}
		}
	})
	if !strings.Contains(err.Error(), "more than 16") {
		t.Error(err)
	}
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	out := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		out <- f()
	}()
	return <-out
}
