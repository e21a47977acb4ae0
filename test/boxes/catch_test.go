//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/boxtest"
	"ringfence/internal/sandbox/container"
	"ringfence/internal/sandbox/native"
	"ringfence/internal/sandbox/unboxed"
)

// What runs in boxes that hold nothing runs in a machine of its own: namespaces in
// which an ordinary user is root, where nothing else can be harmed. The test starts
// itself again there, as pid 1, with the name of a weak tier in this variable.
const weakTier = "RINGFENCE_TEST_WEAK_TIER"

func TestMain(m *testing.M) {
	native.Child()
	container.Child()
	if len(os.Args) > 1 && os.Args[1] == "-inside" { // as the program starts itself
		if err := command(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	name := os.Getenv(weakTier)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := onOwnMachine(name, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func onOwnMachine(name string, out io.Writer) error {
	// The attacks on whoever started the box reach this process. What it ignored, its
	// children would.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	// What multiplies here must not use up the numbers of the real machine.
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 800, Max: 800}); err != nil {
		return fmt.Errorf("limiting processes: %w", err)
	}
	for _, m := range []struct{ what, at string }{
		{"proc", "/proc"}, {"tmpfs", "/tmp"}, {"tmpfs", "/var/tmp"}, {"tmpfs", "/dev/shm"}, {"tmpfs", "/run"},
	} {
		if err := unix.Mount(m.what, m.at, m.what, unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("the loopback: %w", err)
	}
	o := boxtest.Options{Sparse: true, Dir: "/tmp", Without: []boxtest.Class{boxtest.HostDoS}}
	switch name {
	case "namespaces":
		o.Without = append(o.Without, boxtest.Harmless)
	case "careless":
		o.Without, o.Only = nil, regexp.MustCompile("^("+strings.Join(carelessness, "|")+")$")
	}
	outcomes, err := boxtest.Check(context.Background(), weak[name], o)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(outcomes)
}

// onWeak returns how the cases go on a weak tier.
func onWeak(t *testing.T, name string) []boxtest.Outcome {
	t.Helper()
	dir := t.TempDir()
	open(t, dir)
	self, err := copySelf(dir)
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = ordinary, ordinary
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), weakTier+"="+name)
	cmd.Dir = "/"
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		Credential:  &syscall.Credential{NoSetGroups: true},
	}
	if err := cmd.Start(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("user namespaces are needed: %v", err)
		}
		t.Skipf("needs user namespaces: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, problems.Bytes())
	}
	var outcomes []boxtest.Outcome
	if err := json.Unmarshal(out.Bytes(), &outcomes); err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	return outcomes
}

// open lets every user reach a temporary directory.
func open(t *testing.T, dir string) {
	t.Helper()
	for d := dir; d != "/" && d != filepath.Clean(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSuiteCatches shows that each attack is one: where nothing holds it, the suite
// says so; and honest work works there.
func TestSuiteCatches(t *testing.T) {
	cases, err := boxtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	uncaught := map[string]string{}
	for _, c := range cases {
		uncaught[c.ID+" "+c.Name] = c.Uncaught
	}
	for _, o := range onWeak(t, "unboxed") {
		switch why := uncaught[o.ID+" "+o.Name]; {
		case o.Class == boxtest.Harmless && why != "":
		case o.Class == boxtest.Harmless:
			// Without a box it may also leave traces.
			o.Why = slices.DeleteFunc(o.Why, func(w string) bool {
				return strings.HasPrefix(w, "changed outside") || strings.HasPrefix(w, "left on the machine")
			})
			if o.Verdict == boxtest.Broken && len(o.Why) > 0 {
				t.Errorf("%s does not work without a box: %s", o, strings.Join(o.Why, "\n\t"))
			}
		case o.Verdict == boxtest.Skipped, o.Verdict == boxtest.Unclaimed:
		case o.Verdict != boxtest.Broken && why == "":
			t.Errorf("%s is not caught: %s\n\t%s", o, o.Verdict, strings.Join(o.Answers, "\n\t"))
		}
	}
}

// TestSuiteTellsLayersApart shows that a tier with some of the layers fails where it
// lacks one, and not elsewhere.
func TestSuiteTellsLayersApart(t *testing.T) {
	outcomes := onWeak(t, "namespaces")
	for id, want := range map[string]boxtest.Verdict{
		"BX-01 writing to what is outside":   boxtest.Broken,
		"PR-12 parts of the kernel":          boxtest.Broken,
		"PR-01 tracing at all":               boxtest.Broken,
		"FS-18 hooks that are not there yet": boxtest.Broken,
		"IPC-01 services by their sockets":   boxtest.Broken,
		"X2 layer seccomp":                   boxtest.Broken,
		"X2 layer landlock":                  boxtest.Broken,
		"X2 layer a-layer-that-nobody-knows": boxtest.Broken,
		"IPC-09 services on the loopback":    boxtest.Held,
		"IPC-08 what processes share by key": boxtest.Held,
		"SBX-012 namespaces":                 boxtest.Held,
		"SBX-012 a namespace of users":       boxtest.Held,
	} {
		for _, o := range outcomes {
			if o.ID+" "+o.Name == id && o.Verdict != want {
				t.Errorf("%s is %s, not %s: %s", o, o.Verdict, want, strings.Join(o.Why, "\n\t"))
			}
		}
		if !slices.ContainsFunc(outcomes, func(o boxtest.Outcome) bool { return o.ID+" "+o.Name == id }) {
			t.Errorf("no outcome %q", id)
		}
	}
	said := func(o boxtest.Outcome) bool {
		return strings.Contains(strings.Join(o.Why, " "), "claims seccomp, and this contradicts it")
	}
	if !slices.ContainsFunc(outcomes, said) {
		t.Error("nothing contradicts a Report that claims a filter which is not there")
	}
}

// carelessness are the cases that look at what tiers do around the program.
var carelessness = []string{
	"SBX-1.9 descriptors", "PR-22 the environment", "PR-18 daemons", "PR-18 what does not end",
	"SBX-1.9 every status", "SBX-1.9 death by every signal", "PR-17 processes without end",
	"PR-17 descriptors without end", "PR-17 threads without end",
}

// TestSuiteCatchesCarelessness shows that what tiers do around the program counts.
func TestSuiteCatchesCarelessness(t *testing.T) {
	outcomes := onWeak(t, "careless")
	for _, id := range carelessness {
		i := slices.IndexFunc(outcomes, func(o boxtest.Outcome) bool { return o.ID+" "+o.Name == id && o.N != 0 })
		if i < 0 {
			t.Errorf("no outcome %q", id)
		} else if outcomes[i].Verdict != boxtest.Broken {
			t.Errorf("%s is %s", outcomes[i], outcomes[i].Verdict)
		}
	}
}

// weak are tiers that hold too little, each in its own way.
var weak = map[string]sandbox.Tier{"unboxed": unconfined{}, "namespaces": namespaced{}, "careless": careless{}}

// unconfined has nothing. What a program did to the limits of this process, which is
// pid 1 of its machine, is undone when the program has ended.
type unconfined struct{ unboxed.Tier }

type unconfinedBox struct{ sandbox.Box }

// Start implements [sandbox.Tier].
func (t unconfined) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	s.Home = sandbox.Home{}
	if s.Ways.Tools != 0 {
		if err := onMachine(s.Ways); err != nil {
			return nil, err
		}
		s.Network, s.Egress, s.Ways = sandbox.NetworkOpen, "", sandbox.Ways{}
	}
	b, err := t.Tier.Start(ctx, s)
	return unconfinedBox{b}, err
}

// onMachine lets tools listen where everybody can ask them.
func onMachine(w sandbox.Ways) error {
	s, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(w.Tools))))
	if err != nil {
		return err
	}
	tcp, ok := s.(*net.TCPListener)
	if !ok {
		return errors.New("tools listen on no port of TCP")
	}
	f, err := tcp.File()
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	var l sandbox.Listening
	l.Add(5, f)
	return w.Take(l)
}

func (b unconfinedBox) Wait() (sandbox.Exit, error) {
	e, err := b.Box.Wait()
	var l unix.Rlimit
	err = errors.Join(err, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	l.Cur = l.Max
	return e, errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &l))
}

// namespaced has namespaces and nothing else, and claims more.
type namespaced struct{ unboxed.Tier }

// Start implements [sandbox.Tier].
func (t namespaced) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Argv = append([]string{"/usr/bin/unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc", "--"}, s.Argv...)
	b, err := t.Tier.Start(ctx, s)
	return claiming{b}, err
}

type claiming struct{ sandbox.Box }

// Report implements [sandbox.Box].
func (claiming) Report() sandbox.Report {
	return sandbox.Report{Tier: "none", Enforced: []string{
		sandbox.LayerSeccomp, "landlock=abi7", sandbox.LayerUserNamespace, sandbox.LayerPIDNamespace, sandbox.LayerMountNamespace, "a-layer-that-nobody-knows",
	}}
}

// careless starts the program as a child like any other: it inherits everything,
// nothing ends it, and nobody looks how it ended.
type careless struct{ unboxed.Tier }

type carelessBox struct {
	sandbox.Box
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr io.Reader
	wait           func() error
}

// Start implements [sandbox.Tier].
func (careless) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), s.Env...), s.WorkingDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	// It is patient for a moment only: what is never ended would keep the test.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	_ = stop
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	wait := sync.OnceValue(func() error {
		_, err := cmd.Process.Wait()
		return err
	})
	return &carelessBox{cmd: cmd, stdin: in, stdout: &out, stderr: strings.NewReader(""), wait: wait}, nil
}

func (b *carelessBox) Stdin() io.WriteCloser { return b.stdin }
func (b *carelessBox) Stdout() io.Reader     { _ = b.wait(); return b.stdout }
func (b *carelessBox) Stderr() io.Reader     { return b.stderr }
func (b *carelessBox) Report() sandbox.Report {
	return sandbox.Report{Tier: "none"}
}

func (b *carelessBox) Wait() (sandbox.Exit, error) {
	return sandbox.Exit{Cause: sandbox.CauseExit}, b.wait()
}
