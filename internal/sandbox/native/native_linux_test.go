package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// ordinary is the user that all tests run as once more when they are run as root.
const ordinary = 65534

func TestMain(m *testing.M) {
	Child()
	if os.Getenv(inBox) != "" {
		os.Exit(m.Run())
	}
	// All temporary files are in one directory, so that those left behind show.
	dir, err := os.MkdirTemp("", "native-")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Setenv("TMPDIR", dir), setStage(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if status == 0 && os.Getuid() == 0 && !slices.ContainsFunc(os.Args, isBench) {
		status = again()
	}
	os.RemoveAll(dir)
	os.Exit(status)
}

func isBench(arg string) bool {
	return strings.HasPrefix(arg, "-test.bench=") || strings.HasPrefix(arg, "-test.fuzz=") || strings.HasPrefix(arg, "-test.list=")
}

// again runs all tests as an ordinary user.
func again() int {
	dir, err := os.MkdirTemp("", "native-")
	if err == nil {
		err = os.Chown(dir, ordinary, ordinary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(self, slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool {
		return strings.HasPrefix(a, "-test.coverprofile") || strings.HasPrefix(a, "-test.testlogfile") || strings.HasPrefix(a, "-test.gocoverdir")
	})...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	fmt.Printf("as user %d:\n", ordinary)
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "as an ordinary user:", err)
		return 1
	}
	return 0
}

// kinds are the two kinds of boxes.
var kinds = map[string]Tier{"full": {}, "plain": {fault: fault{plain: true}}}

func full() Tier { return kinds["full"] }

// setStage gives boxes a stage that can be one. This program cannot where it was built
// with cgo, as for the race detector: see decision 0004.
func setStage(dir string) error {
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0)
	if !errors.Is(e, unix.ENOTSUP) {
		return nil // it can
	}
	exe := os.Getenv("NATIVE_TEST_STAGE") // of the test that started this one
	if exe == "" {
		exe = filepath.Join(dir, "stage")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", exe, "ringfence/cmd/ringfence")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building a stage: %w: %s", err, out)
		}
		if err := os.Setenv("NATIVE_TEST_STAGE", exe); err != nil {
			return err
		}
	}
	for name, tier := range kinds {
		tier.fault.stage = exe
		kinds[name] = tier
	}
	return nil
}

func sh(script string) sandbox.Spec {
	return sandbox.Spec{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

func run(t *testing.T, tier sandbox.Tier, s sandbox.Spec, stdin string) sandbox.Output {
	t.Helper()
	out, err := sandbox.Run(t.Context(), tier, s, []byte(stdin))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// dir returns a temporary directory by its real path, which everybody can pass.
func dir(t *testing.T) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// lacksGroupsOnly reports whether all is in force that does not need control groups,
// which not everybody can have.
func lacksGroupsOnly(r sandbox.Report, but ...string) bool {
	return r.Confines() && !r.Permissive && !slices.ContainsFunc(r.Missing, func(l string) bool {
		return !strings.HasPrefix(l, sandbox.LayerCgroup+"=") && !slices.Contains(but, l)
	})
}

func TestReportIsWhatTheProgramSees(t *testing.T) {
	layers := []string{
		sandbox.LayerUserNamespace, sandbox.LayerMountNamespace, sandbox.LayerPIDNamespace, sandbox.LayerNetworkNamespace,
		sandbox.LayerIPCNamespace, sandbox.LayerUTSNamespace, sandbox.LayerCgroupNamespace, sandbox.LayerUnprivileged,
		sandbox.LayerLandlock, sandbox.LayerSeccomp, sandbox.LayerNoNewPrivileges, sandbox.LayerNoCapabilities, sandbox.LayerRlimits,
	}
	script := `grep -E '^(Seccomp|NoNewPrivs|Cap...):' /proc/self/status | tr -d '\n\t'; for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done`
	out := run(t, full(), sh(script), "")
	if !lacksGroupsOnly(out.Report) || out.Report.Tier != TierName {
		t.Errorf("%v", out.Report)
	}
	for _, l := range layers {
		if !out.Report.Has(l) || out.Report.Evidence[l] == "" {
			t.Errorf("no %s in %v, or no evidence", l, out.Report)
		}
	}
	status, links, _ := strings.Cut(string(out.Stdout), "user:")
	none := strings.Repeat("0", 16)
	if want := fmt.Sprintf("CapInh:%[1]sCapPrm:%[1]sCapEff:%[1]sCapBnd:%[1]sCapAmb:%[1]sNoNewPrivs:1Seccomp:2", none); status != want {
		t.Errorf("the program sees\n%s\nwant\n%s", status, want)
	}
	for line := range strings.Lines("user:" + links) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		inode := strings.Trim(rest, "[]")
		ours, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil || strings.Contains(ours, inode) {
			t.Errorf("%s: the program is in ours, %s (%v)", name, ours, err)
		}
		if evidence := out.Report.Evidence[spaces[name]]; !strings.Contains(evidence, "inode "+inode+",") {
			t.Errorf("%s: %s, the program sees %s", name, evidence, inode)
		}
	}
	r := run(t, kinds["plain"], sh("true"), "").Report
	for i, l := range layers {
		if want := i >= 8; r.Has(l) != want {
			t.Errorf("without namespaces: %s is %v in %v", l, !want, r)
		}
	}
}

// The kernel must agree that nothing can be raised again.
func TestLimits(t *testing.T) {
	for name, tier := range kinds {
		s := sh(`ulimit -t; ulimit -v; ulimit -n; ulimit -c; ulimit -t 31; ulimit -n 65; ulimit -v unlimited; head -c 700000000 /dev/zero | tail -c 600000000 >/dev/null || echo no memory`)
		out := run(t, tier, s, "")
		if got, want := string(out.Stdout), "30\n524288\n64\n0\nno memory\n"; got != want && !strings.HasPrefix(got, "30\n524288\n64\n0\n") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if n := strings.Count(string(out.Stderr), "ermitted"); n < 1 {
			t.Errorf("%s: a limit could be raised: %s", name, out.Stderr)
		}
		s = sh("while :; do :; done")
		s.Limits.CPU = 1e9
		if out := run(t, tier, s, ""); out.Exit != (sandbox.Exit{Cause: sandbox.CauseSignal, Signal: 9}) && out.Exit != (sandbox.Exit{Cause: sandbox.CauseSignal, Signal: int(unix.SIGXCPU)}) {
			t.Errorf("%s: a loop beyond its time ended with %v", name, out.Exit)
		}
	}
}

// A box counts its own processes: many boxes of one user do not starve each other.
func TestProcessesAreCountedByBox(t *testing.T) {
	s := sh(`i=0; while [ $i -lt 40 ]; do sleep 1000 & i=$((i+1)); done 2>/dev/null; echo $i; cat`)
	s.Limits.Processes = 30
	other := sh(`sleep 0; echo ok`)
	other.Limits.Processes = 10
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b, err := full().Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Kill()
	if out := run(t, full(), other, ""); string(out.Stdout) != "ok\n" {
		t.Errorf("beside a full box: %q %q", out.Stdout, out.Stderr)
	}
	out := run(t, full(), func() sandbox.Spec {
		s := sh(`i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; echo all`)
		s.Limits.Processes = 30
		return s
	}(), "")
	if strings.Contains(string(out.Stdout), "all") {
		t.Errorf("100 processes, 30 allowed")
	}
}

// What this process may not have a box cannot have: it gets what there is (a person
// whose own hard limit is low was refused every box).
func TestLimitsWithinOurs(t *testing.T) {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]int64{{int64(own.Max) + 1, int64(own.Max)}, {int64(own.Max), int64(own.Max)}, {64, 64}} {
		if got := (limit{"descriptors", unix.RLIMIT_NOFILE, c[0]}).within(); got.value != c[1] {
			t.Errorf("%d within %d is %d", c[0], own.Max, got.value)
		}
	}
}

// A machine without memory ends boxes before what is its own.
func TestFirstToGoWithoutMemory(t *testing.T) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	out := run(t, full(), sh("cat /proc/self/oom_score_adj; echo 0 >/proc/self/oom_score_adj"), "")
	if want := fmt.Sprintln(max(own, 500)); string(out.Stdout) != want || out.Exit.Status() == 0 {
		t.Errorf("%q %q %v, want %q", out.Stdout, out.Stderr, out.Exit, want)
	}
}

// What a limit refused is said afterwards.
func TestLimitsAreExplained(t *testing.T) {
	for op, c := range map[string]struct {
		script   string
		change   func(*sandbox.Limits)
		observed bool
	}{
		"fork":   {"i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done", func(l *sandbox.Limits) { l.Processes = 20 }, true},
		"memory": {"head -c 200000000 /dev/zero | tail -c 190000000 >/dev/null", func(l *sandbox.Limits) { l.Memory, l.AddressSpace = 64<<20, sandbox.Unlimited }, true},
		"cpu":    {"while :; do :; done", func(l *sandbox.Limits) { l.CPU = 1e9 }, false},
		"mmap":   {"kill -ABRT $$", func(*sandbox.Limits) {}, false},
		"":       {"exit 7", func(*sandbox.Limits) {}, false},
	} {
		s := sh(c.script)
		c.change(&s.Limits)
		b, err := full().Start(t.Context(), s)
		if op == "memory" && errors.Is(err, sandbox.ErrNotBuilt) && strings.Contains(err.Error(), "memory for the whole box") {
			continue // no control group limits memory here, and it was asked for
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Wait(); err != nil {
			t.Errorf("%s: %v", op, err)
		}
		if c.observed && (len(b.Report().Missing) > 0 || !b.Report().Has(sandbox.LayerCgroup)) {
			continue // no control group counts here
		}
		d := b.Denials()
		if op == "" && len(d) > 0 || op != "" && (len(d) != 1 || d[0].Op != op || d[0].Observed != c.observed || d[0].Fix == "" || d[0].Count < 1) {
			t.Errorf("%s: %+v", op, d)
		}
	}
}

// What a program is called with need not be text.
func TestArgumentsAreBytes(t *testing.T) {
	arg := "\xff\x80 \n\x01"
	s := sh(`printf %s "$1" "$V"`)
	s.Argv = append(s.Argv, "sh", arg)
	s.Env = append(s.Env, "V="+arg)
	if out := run(t, full(), s, ""); string(out.Stdout) != arg+arg {
		t.Errorf("%q", out.Stdout)
	}
}

func TestStartErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d := dir(t)
	text := filepath.Join(d, "text")
	garbage := filepath.Join(d, "garbage")
	loop := filepath.Join(d, "loop")
	if err := errors.Join(os.WriteFile(text, nil, 0o644), os.WriteFile(garbage, []byte{1, 2, 3}, 0o755),
		os.WriteFile(loop, []byte("#!"+loop+"x\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	with := func(change func(*sandbox.Spec)) sandbox.Spec {
		s := sh("true")
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		spec sandbox.Spec
		want error
		text string
	}{
		"zero spec":         {t.Context(), sandbox.Spec{}, sandbox.ErrNotBuilt, "no program"},
		"ended":             {ended, sh("true"), sandbox.ErrNotBuilt, "canceled"},
		"missing":           {t.Context(), sandbox.Spec{Argv: []string{"/nonexistent"}}, sandbox.ErrNotFound, "/nonexistent"},
		"not executable":    {t.Context(), sandbox.Spec{Argv: []string{text}}, sandbox.ErrNotFound, "permission denied"},
		"no known format":   {t.Context(), sandbox.Spec{Argv: []string{garbage}}, sandbox.ErrNotFound, "exec format error"},
		"interpreter":       {t.Context(), sandbox.Spec{Argv: []string{loop}}, sandbox.ErrNotFound, "no such file"},
		"a directory":       {t.Context(), sandbox.Spec{Argv: []string{d}}, sandbox.ErrNotFound, "not a file"},
		"denied":            {t.Context(), with(func(s *sandbox.Spec) { s.Argv[0] = garbage; s.Denied = []string{d} }), sandbox.ErrNotFound, "no such file"},
		"no directory":      {t.Context(), with(func(s *sandbox.Spec) { s.Dir = "/nonexistent" }), sandbox.ErrNotBuilt, "working directory"},
		"hidden directory":  {t.Context(), with(func(s *sandbox.Spec) { s.Dir = "/boot" }), sandbox.ErrNotBuilt, "working directory"},
		"no readable path":  {t.Context(), with(func(s *sandbox.Spec) { s.ReadOnly = []string{d + "/no"} }), sandbox.ErrNotBuilt, d + "/no"},
		"no workspace":      {t.Context(), with(func(s *sandbox.Spec) { s.Workspace = sandbox.Workspace{Path: d + "/no", Mode: "rw"} }), sandbox.ErrNotBuilt, d + "/no"},
		"writable root":     {t.Context(), with(func(s *sandbox.Spec) { s.ReadWrite = []string{"/"} }), sandbox.ErrNotBuilt, "name the directories"},
		"another's devices": {t.Context(), with(func(s *sandbox.Spec) { s.ReadOnly = []string{"/dev"} }), sandbox.ErrNotBuilt, "its own /dev"},
	} {
		b, err := full().Start(c.ctx, c.spec)
		if err == nil {
			b.Kill()
		}
		other := sandbox.ErrNotFound
		if errors.Is(c.want, other) {
			other = sandbox.ErrNotBuilt
		}
		if !errors.Is(err, c.want) || errors.Is(err, other) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
}

// Every status and every signal arrives as it is.
func TestExits(t *testing.T) {
	wants := map[string]sandbox.Exit{}
	for code := range 256 {
		wants[fmt.Sprintf("exit %d", code)] = sandbox.Exit{Cause: sandbox.CauseExit, Code: code}
	}
	for sig := 1; sig < 32; sig++ {
		if !slices.Contains([]int{int(unix.SIGCHLD), int(unix.SIGCONT), int(unix.SIGSTOP), int(unix.SIGTSTP), int(unix.SIGTTIN), int(unix.SIGTTOU), int(unix.SIGURG), int(unix.SIGWINCH)}, sig) {
			wants[fmt.Sprintf("kill -%d $$", sig)] = sandbox.Exit{Cause: sandbox.CauseSignal, Signal: sig}
		}
	}
	for _, sig := range []string{"40", "64"} {
		n, _ := strconv.Atoi(sig)
		wants["kill -"+sig+" $$"] = sandbox.Exit{Cause: sandbox.CauseSignal, Signal: n}
	}
	scripts := make(chan string)
	done := make(chan string)
	for range 4 {
		go func() {
			for script := range scripts {
				out, err := sandbox.Run(t.Context(), full(), sh(script), nil)
				if err != nil || out.Exit != wants[script] {
					t.Errorf("%s: %v %v", script, out.Exit, err)
				}
			}
			done <- ""
		}()
	}
	for script := range wants {
		scripts <- script
	}
	close(scripts)
	for range 4 {
		<-done
	}
}

func TestConfirm(t *testing.T) {
	for name, tier := range kinds {
		d := dir(t)
		s := sh("touch " + d + "/ran")
		s.Workspace = sandbox.Workspace{Path: d, Mode: sandbox.ReadWrite}
		s.LaterWritable = true
		refused := errors.New("no evidence without a disk")
		calls := 0
		var shown sandbox.Report
		s.Confirm = func(r sandbox.Report) error {
			calls++
			shown = r
			if _, err := os.Stat(d + "/ran"); err == nil {
				t.Errorf("%s: the program ran before", name)
			}
			if calls == 1 {
				return refused
			}
			return nil
		}
		if _, err := tier.Start(t.Context(), s); !errors.Is(err, refused) || !errors.Is(err, sandbox.ErrNotBuilt) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(d + "/ran"); err == nil {
			t.Errorf("%s: the program ran though it was refused", name)
		}
		out := run(t, tier, s, "")
		if _, err := os.Stat(d + "/ran"); err != nil || calls != 2 || shown.String() != out.Report.String() {
			t.Errorf("%s: %v, %d calls, %q %v, report %v, %v", name, err, calls, out.Stderr, out.Exit, shown, out.Report)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	s := sh(`head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2; echo end >&2`)
	s.Limits.Output = 1 << 20
	out := run(t, full(), s, "")
	if len(out.Stdout) != 1<<20 || len(out.Stderr) != 1<<20 || out.Dropped != 3000000+2000004-2<<20 || out.Exit.Status() != 0 {
		t.Errorf("%d, %d, dropped %d, %v", len(out.Stdout), len(out.Stderr), out.Dropped, out.Exit)
	}
}

func TestStreamsOfTheCaller(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := sh("echo out; echo err >&2")
	s.Stdout, s.Stderr = w, w
	out := run(t, full(), s, "")
	w.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil || b.String() != "out\nerr\n" || len(out.Stdout) != 0 || len(out.Stderr) != 0 {
		t.Errorf("%q, %q %q %v", b.String(), out.Stdout, out.Stderr, err)
	}
}

func TestProbe(t *testing.T) {
	for name, tier := range kinds {
		r, err := tier.Probe(t.Context())
		if err != nil || lacksGroupsOnly(r) != (name == "full") || !r.Confines() {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
	// Outside a box the test tries nothing.
	out, err := exec.Command(self, testName).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no box") {
		t.Errorf("without a box: %s %v", out, err)
	}
	tier := full()
	tier.fault.at = "kernel"
	if _, err := tier.Probe(t.Context()); err == nil {
		t.Error("a probe of a box that cannot be built says nothing")
	}
}

// A program of ours that others may not execute is a stage all the same.
func TestStageOfOurOwn(t *testing.T) {
	exe := filepath.Join(dir(t), "stage")
	from := full().fault.stage
	if from == "" {
		from = self
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(exe, b, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	for kind, tier := range kinds {
		tier.fault.stage = exe
		if out := run(t, tier, sh("id -u"), ""); string(out.Stdout) != fmt.Sprintln(os.Getuid()) {
			t.Errorf("%s: %q %q", kind, out.Stdout, out.Stderr)
		}
	}
}
