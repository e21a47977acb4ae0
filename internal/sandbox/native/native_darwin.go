package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/homes"
	"ringfence/internal/sandbox/native/seatbelt"
	"ringfence/internal/sys/paths"
)

// sandboxExec puts itself under a profile and executes a program.
//
// It is the one way to a profile in text that the system offers as a program. The other
// is to call sandbox_init of libsandbox from our own stage. Without cgo that takes a
// symbol bound by a compiler directive and a jump in assembly for each architecture, on a
// function whose header is deprecated and whose behaviour in a process with several
// threads nobody states; what goes wrong there shows as a crash. sandbox-exec is
// deprecated too, but package managers and build systems depend on it each day; if it
// goes, it is not there, and the box is not built. What it costs is one more exec.
const sandboxExec = "/usr/bin/sandbox-exec"

// probe runs our own program in a box, where it tries what must not be possible.
func (t Tier) probe(ctx context.Context) (sandbox.Report, error) {
	none := sandbox.Report{Tier: TierName}
	if _, err := os.Stat(sandboxExec); err != nil {
		return none, fmt.Errorf("%w: %w", sandbox.ErrUnsupported, err)
	}
	exe, err := ownProgram()
	if err != nil {
		return none, err
	}
	out, err := sandbox.Run(ctx, t, sandbox.Spec{Argv: []string{exe, testName}, Profile: sandbox.ProfileAgent}, nil)
	if err != nil {
		if errors.Is(err, errNested) {
			err = fmt.Errorf("%w: %w", sandbox.ErrUnsupported, err)
		}
		return none, err
	}
	if out.Exit.Status() != 0 {
		return none, fmt.Errorf("the box does not hold: %v: %s%s", out.Exit, out.Stdout, out.Stderr)
	}
	return out.Report, nil
}

// errNested says that we are confined ourselves: the kernel puts nobody under a second
// profile.
var errNested = errors.New("a profile cannot be applied within another; start ringfence outside of any sandbox")

func (t Tier) start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	foreign, err := paths.ForeignHomes(s.Trees(), t.Own)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	s.Denied = slices.Concat(s.Denied, t.Own, foreign)
	deep, _, err := homes.Find(s.Trees(), t.Own, s.Denied)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	s.Denied = append(s.Denied, deep...)
	b := &builder{spec: s, fault: t.fault, box: newBox(s)}
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	return b.box, nil
}

// A builder builds one box, from the caller's side.
type builder struct {
	spec    sandbox.Spec
	fault   fault
	fail    error
	exe     string
	profile seatbelt.Profile
	plan    plan
	report  sandbox.Report

	box            *box
	theirs         [3]*os.File
	made           []*os.File // ends of pipes that go to the stage
	toStage        *os.File
	fromStage      *os.File
	lastWords      *os.File
	session        *session
	proved, limits []string
}

// do takes one step. After a step that failed none is taken.
func (b *builder) do(name string, f func() error) {
	if b.fail != nil {
		return
	}
	err := errors.New("a fault, injected by a test")
	if b.fault.at != name {
		err = f()
	}
	switch {
	case err == nil:
	case errors.Is(err, sandbox.ErrNotBuilt) || errors.Is(err, sandbox.ErrNotFound):
		b.fail = err
	default:
		b.fail = notBuilt(name, err)
	}
}

// build takes all steps. When it returns an error nothing of the box is left.
func (b *builder) build(ctx context.Context) error {
	setup, cancel := context.WithTimeoutCause(ctx, setupTime, errors.New("it took too long"))
	defer cancel()
	b.do("context", func() error { return context.Cause(setup) })
	b.do("profile", b.think)
	b.do("streams", func() (err error) {
		b.theirs, b.made, err = b.box.open(b.spec)
		return err
	})
	b.do("stage", b.startStage)
	if b.session == nil {
		closeAll(b.made)
		closeAll([]*os.File{b.toStage, b.fromStage, b.lastWords})
		closeAll(b.box.files[:])
		return b.fail
	}
	stop := context.AfterFunc(setup, func() { _ = b.session.kill() })
	b.do("plan", func() error { return send(b.toStage, &b.plan) })
	b.do("set-up", b.awaitReady)
	b.do("read back", b.readBack)
	if !stop() && b.fail == nil {
		b.fail = notBuilt("set-up", context.Cause(setup))
	}
	b.do("confirm", func() error {
		if b.spec.Confirm == nil {
			return nil
		}
		return b.spec.Confirm(b.report)
	})
	b.do("start", b.letGo)
	b.toStage.Close()
	b.fromStage.Close()
	b.lastWords.Close()
	if b.fail != nil {
		_ = b.session.kill() // and wait says what is left
		_, _, err := b.session.wait()
		closeAll(b.box.files[:])
		if cause := context.Cause(setup); cause != nil && !errors.Is(b.fail, cause) {
			err = errors.Join(err, cause)
		}
		if err != nil {
			return fmt.Errorf("%w (%w)", b.fail, err)
		}
		return b.fail
	}
	b.box.report, b.box.tree = b.report, b.session
	b.box.begin(ctx)
	return nil
}

// think works out the profile and the plan.
func (b *builder) think() (err error) {
	s := b.spec
	if b.exe, err = ownProgram(); err != nil {
		return err
	}
	rules, err := rulesOf(s, b.exe)
	if err != nil {
		return err
	}
	if b.profile, err = seatbelt.Compose(rules); err != nil {
		return err
	}
	b.plan = plan{
		argv: s.Argv, env: s.Env, dir: s.WorkingDir(), files: 3 + len(s.Files),
		network: s.Network != sandbox.NetworkOpen, limits: limits(s.Bounds()),
	}
	if fi, err := os.Stat(b.plan.dir); err != nil || !fi.IsDir() {
		return fmt.Errorf("working directory %s is not there", b.plan.dir)
	}
	// What the box may read is no canary, nor what nobody here can.
	f, err := os.Open(seatbelt.Canary)
	if err != nil {
		return nil
	}
	f.Close()
	if !covered(slices.DeleteFunc(rules.Places, func(p seatbelt.Place) bool { return p.Mode == seatbelt.Nothing }), seatbelt.Canary) {
		b.plan.canary = seatbelt.Canary
	}
	return nil
}

// limits are the resource limits that the kernel enforces for one process. Address
// space it does not limit at all, and processes only by user.
func limits(l sandbox.Limits) []limit {
	all := []limit{{"core", unix.RLIMIT_CORE, 0}}
	if l.CPU != sandbox.Unlimited {
		// Rounded up: a limit of 0 would end the program at once.
		all = append(all, limit{"cpu", unix.RLIMIT_CPU, int64(math.Ceil(l.CPU.Seconds()))})
	}
	if l.Descriptors != sandbox.Unlimited {
		all = append(all, limit{"descriptors", unix.RLIMIT_NOFILE, int64(l.Descriptors)})
	}
	return all
}

// startStage starts sandbox-exec, which becomes our own program, which becomes the one
// of the Spec: one process, under one profile, with one number.
func (b *builder) startStage() error {
	var ends [6]*os.File
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			closeAll(ends[:])
			return err
		}
	}
	b.toStage, b.fromStage, b.lastWords = ends[1], ends[2], ends[4]
	b.made = append(b.made, ends[0], ends[3], ends[5])
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	files := append([]*os.File{null, null, ends[5], ends[0], ends[3]}, b.theirs[:]...)
	attr := &os.ProcAttr{Dir: "/", Env: []string{}, Files: append(files, b.spec.Files...), Sys: &syscall.SysProcAttr{Setsid: true}}
	if terminal(b.spec.Stdin) {
		attr.Sys.Setctty, attr.Sys.Ctty = true, streamsFD
	}
	p, err := os.StartProcess(sandboxExec, []string{sandboxExec, "-p", b.profile.Text, b.exe, stageName}, attr)
	runtime.KeepAlive(b.spec.Files)
	if err != nil {
		return err
	}
	closeAll(b.made)
	b.made = nil
	if b.session, err = newSession(p.Pid); err != nil {
		// It waits for its plan and has started nothing.
		return errors.Join(err, p.Kill(), reap(p))
	}
	return nil
}

func reap(p *os.Process) error {
	_, err := p.Wait()
	return err
}

// awaitReady waits until the stage has tried out the profile and set the limits.
func (b *builder) awaitReady() error {
	if err := b.fromStage.SetReadDeadline(time.Now().Add(setupTime)); err != nil {
		return err
	}
	var r result
	if err := receive(b.fromStage, &r); err != nil {
		return b.lost(err)
	}
	if r.step != "" {
		return stageFailure(r, b.spec)
	}
	b.proved, b.limits = r.proved, r.limits
	return nil
}

// lost says what became of a stage that says nothing more.
func (b *builder) lost(err error) error {
	_ = b.session.kill()
	_ = b.lastWords.SetReadDeadline(time.Now().Add(linger))
	text, _ := io.ReadAll(io.LimitReader(b.lastWords, 4096))
	text = bytes.TrimSpace(text)
	if bytes.Contains(text, []byte("Operation not permitted")) && bytes.Contains(text, []byte("sandbox_apply")) {
		return fmt.Errorf("%w: %w: %s", sandbox.ErrNotBuilt, errNested, text)
	}
	if len(text) == 0 {
		return fmt.Errorf("sandbox-exec or the stage ended without a word (%w)", err)
	}
	return fmt.Errorf("%s (%w)", text, err)
}

// A stageError is what a stage reports. It unwraps to the error number of the kernel.
type stageError struct {
	text  string
	errno syscall.Errno
}

func (e *stageError) Error() string { return e.text }

func (e *stageError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// badArch is EBADARCH (sys/errno.h): a program for another processor.
const badArch = syscall.Errno(86)

// stageFailure makes an error of a result: that the program is not there, or that its
// box is not.
func stageFailure(r result, s sandbox.Spec) error {
	err := &stageError{r.text, syscall.Errno(r.errno)}
	if r.step == stepExec {
		switch err.errno {
		case unix.ENOENT, unix.EACCES, unix.ENOEXEC, unix.ENOTDIR, unix.ELOOP, unix.EISDIR, unix.EPERM, badArch:
			return fmt.Errorf("%w: %s: %w", sandbox.ErrNotFound, s.Argv[0], err)
		}
	}
	return notBuilt(r.step, err)
}

// readBack makes the report of what was tried out, what was set, and what is not there.
func (b *builder) readBack() error {
	r, bounds := newReporter(), b.spec.Bounds()
	if len(b.proved) > 0 {
		r.enforced(sandbox.LayerSeatbelt, strings.Join(b.proved, ","), "tried in the process that becomes the program, and refused: EPERM")
	} else {
		r.inferred(sandbox.LayerSeatbelt, "", "sandbox-exec applied the profile; nothing could be tried that this Spec does not allow")
	}
	r.inferred(sandbox.LayerRlimits, strings.Join(b.limits, ","), "set and read back before exec; macOS does not show those of another process")
	if b.profile.Holds {
		r.inferred(sandbox.LayerHeld, "", "rules about names, in any letter case; a directory of such a name cannot be made either, so no new repository (git init, clone) and no work tree; a Spec that lets these files be written (LaterWritable) lifts all of it")
	}
	var lacks []string
	for l := range b.profile.Lacks {
		lacks = append(lacks, l)
	}
	slices.Sort(lacks)
	for _, l := range lacks {
		r.missing(l, b.profile.Lacks[l])
	}
	if b.spec.Network == sandbox.NetworkOpen {
		r.missing(layerNetwork, "the Spec asks for the network of the machine; only Unix sockets are refused")
	}
	for _, l := range []struct {
		what string
		set  bool
		why  string
	}{
		{"memory", bounds.Memory != sandbox.Unlimited, "macOS has no limit for the memory of a tree of processes"},
		{"address-space", bounds.AddressSpace != sandbox.Unlimited, "macOS does not enforce RLIMIT_AS"},
		{"processes", bounds.Processes != sandbox.Unlimited, "RLIMIT_NPROC of macOS counts all processes of the user"},
	} {
		if l.set {
			r.missing(detailed(layerLimits, l.what), l.why+"; the container tier has it")
		}
	}
	r.missing(layerTree, "macOS has no process namespaces: a process that starts a session of its own while its parent ends at once may outlive its box, confined as before; and a box outlives ringfence if that is killed")
	b.report = r.r
	return nil
}

// letGo lets the program start and waits until it has.
func (b *builder) letGo() error {
	if _, err := b.toStage.Write([]byte{1}); err != nil {
		return b.lost(err)
	}
	if err := b.fromStage.SetReadDeadline(time.Now().Add(setupTime)); err != nil {
		return err
	}
	var r result
	switch err := receive(b.fromStage, &r); {
	case errors.Is(err, io.EOF):
		return nil // closed by exec
	case err != nil:
		return b.lost(err)
	}
	return stageFailure(r, b.spec)
}
