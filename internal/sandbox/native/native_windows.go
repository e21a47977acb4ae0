package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/windows"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/jobobject"
)

// The names of layers that no other system has.
const (
	layerLowIntegrity = "low-integrity"
	layerNoPrivileges = "no-privileges"
)

// Child does nothing here: boxes have no stage. What confines the program is set from
// outside, while it is suspended.
func Child() {}

// probe starts a program of the system in a box.
func (t Tier) probe(ctx context.Context) (sandbox.Report, error) {
	none := sandbox.Report{Tier: TierName}
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return none, fmt.Errorf("finding a program to try: %w", err)
	}
	out, err := sandbox.Run(ctx, t, sandbox.Spec{
		Argv: []string{filepath.Join(system, "whoami.exe"), "/groups"}, Dir: system,
		Env: []string{"SystemRoot=" + filepath.Dir(system)}, Profile: sandbox.ProfileAgent,
	}, nil)
	if err != nil {
		return none, err
	}
	// The label as the program itself sees it.
	if out.Exit.Status() != 0 || !strings.Contains(string(out.Stdout), jobobject.LowIntegrity) {
		return none, fmt.Errorf("the box does not hold: %v: %s%s", out.Exit, out.Stdout, out.Stderr)
	}
	return out.Report, nil
}

// start builds a box as Windows has them: it keeps a program from writing to what is not
// labelled for it, from privileges, from the user interface, and from outliving its box.
// Reading and the network are as every user has them, and the report says so; but a box
// that has to reach its one way out and nothing else is not built.
func (t Tier) start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	b := &builder{spec: s, fault: t.fault, box: newBox(s)}
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	return b.box, nil
}

// A builder builds one box.
type builder struct {
	spec    sandbox.Spec
	fault   fault
	fail    error
	command jobobject.Command
	box     *box
	made    []*os.File // ends of pipes that go to the program
	job     *jobobject.Job
	process *jobobject.Process
	report  sandbox.Report
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
	b.do("context", func() error { return context.Cause(ctx) })
	b.do("network", func() error {
		if b.spec.Network == sandbox.NetworkPolicy {
			return errors.New("Windows has nothing that keeps a program to one way out; use the container tier")
		}
		return nil
	})
	b.do("program", b.checkProgram)
	b.do("writable trees", b.checkLabels)
	b.do("command line", b.compose)
	b.do("job object", func() (err error) {
		bounds := b.spec.Bounds()
		b.job, err = jobobject.New(jobobject.Limits{
			Memory: bounds.Memory, ProcessMemory: bounds.AddressSpace, Processes: bounds.Processes, CPU: bounds.CPU,
		}.Settings())
		return err
	})
	b.do("token", func() (err error) {
		b.command.Token, err = jobobject.NewToken()
		return err
	})
	b.do("process", b.create)
	b.do("joining the job object", func() error { return b.job.Assign(b.process.Handle) })
	b.do("read back", b.readBack)
	b.do("confirm", func() error {
		if b.spec.Confirm == nil {
			return nil
		}
		return b.spec.Confirm(b.report)
	})
	b.do("context after confirm", func() error { return context.Cause(ctx) })
	b.do("start", func() error { return b.process.Resume() })
	if b.command.Token != 0 {
		b.command.Token.Close()
	}
	closeAll(b.made)
	if b.fail != nil {
		b.abandon()
		return b.fail
	}
	b.box.report = b.report
	b.box.tree = &members{job: b.job, process: b.process}
	b.box.begin(ctx)
	return nil
}

// abandon ends what there is of a box that was not built.
func (b *builder) abandon() {
	if b.process != nil {
		// It may not be in the job yet, and never ran.
		_ = b.process.Terminate(killed)
		_, _ = b.process.Wait()
		b.process.Close()
	}
	if b.job != nil {
		b.job.Close()
	}
	closeAll(b.box.files[:])
}

func (b *builder) checkProgram() error {
	program := b.spec.Argv[0]
	if jobobject.Batch(program) {
		return fmt.Errorf("%w: %s: cmd.exe would execute what stands in the arguments of a batch file; start the program that it starts", sandbox.ErrNotFound, program)
	}
	fi, err := os.Stat(program)
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", sandbox.ErrNotFound, program, err)
	}
	if fi, err := os.Stat(b.spec.WorkingDir()); err != nil || !fi.IsDir() {
		return fmt.Errorf("working directory %s is not there", b.spec.WorkingDir())
	}
	return nil
}

// checkLabels looks whether the program will be able to write where the Spec says. We
// label nothing: that would outlive the box.
func (b *builder) checkLabels() error {
	for _, path := range b.writable() {
		fi, err := b.stat(path)
		if err != nil {
			return err
		}
		label, err := jobobject.Label(path)
		if err != nil {
			return fmt.Errorf("label of %s: %w", path, err)
		}
		if !jobobject.Low(label, fi.IsDir()) {
			how := "L"
			if fi.IsDir() {
				how = "(OI)(CI)L /t"
			}
			return fmt.Errorf("%s is not labelled for programs of low integrity, which are all that run in boxes; label it once: icacls \"%s\" /setintegritylevel %s", path, path, how)
		}
	}
	for _, list := range [...][]string{b.spec.ReadOnly, readOnlyWorkspace(b.spec)} {
		for _, path := range list {
			if _, err := b.stat(path); err != nil {
				return fmt.Errorf("readable path: %w", err)
			}
		}
	}
	return nil
}

// stat looks at a path of the Spec, which must still lead where it was decided that it
// does. How letters are written makes no other path.
func (b *builder) stat(path string) (os.FileInfo, error) {
	if real, err := filepath.EvalSymlinks(path); err != nil || !strings.EqualFold(real, path) {
		if _, err := b.spec.Real(path); err != nil {
			return nil, err
		}
	}
	return os.Stat(path)
}

func (b *builder) writable() []string {
	paths := append([]string(nil), b.spec.ReadWrite...)
	if b.spec.Workspace.Mode == sandbox.ReadWrite {
		paths = append(paths, b.spec.Workspace.Path)
	}
	return paths
}

func readOnlyWorkspace(s sandbox.Spec) []string {
	if s.Workspace.Mode == sandbox.ReadOnly {
		return []string{s.Workspace.Path}
	}
	return nil
}

func (b *builder) compose() (err error) {
	b.command.Program, b.command.Dir = b.spec.Argv[0], b.spec.WorkingDir()
	if b.command.Line, err = jobobject.CommandLine(b.spec.Argv); err != nil {
		return err
	}
	b.command.Environment, err = jobobject.Environment(b.spec.Env)
	return err
}

// create makes the process of the program, suspended.
func (b *builder) create() error {
	theirs, made, err := b.box.open(b.spec)
	if err != nil {
		return err
	}
	b.made = made
	for _, f := range append(theirs[:], b.spec.Files...) {
		b.command.Handles = append(b.command.Handles, windows.Handle(f.Fd()))
	}
	b.process, err = jobobject.Create(b.command)
	runtime.KeepAlive(theirs)
	runtime.KeepAlive(b.spec.Files)
	for _, absent := range []error{
		fs.ErrNotExist, fs.ErrPermission, windows.ERROR_BAD_EXE_FORMAT, windows.ERROR_EXE_MACHINE_TYPE_MISMATCH, windows.ERROR_ELEVATION_REQUIRED,
	} {
		if errors.Is(err, absent) {
			return fmt.Errorf("%w: %s: %w", sandbox.ErrNotFound, b.spec.Argv[0], err)
		}
	}
	return err
}

// readBack judges what the system says of the job and of the process, which is suspended
// in it. What was asked for and is not there is an error.
func (b *builder) readBack() error {
	settings, err := b.job.Read()
	if err != nil {
		return err
	}
	active, err := b.job.Active()
	if err != nil {
		return err
	}
	if active != 1 {
		return fmt.Errorf("%d processes are in the job object, not 1", active)
	}
	token, err := jobobject.ReadToken(b.process.Handle)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	if wrong := token.Restricted(); wrong != nil {
		return fmt.Errorf("token: %s", strings.Join(wrong, "; "))
	}
	r := newReporter()
	r.enforced(sandbox.LayerJobObject, strings.Join(settings.Names(), ","),
		fmt.Sprintf("LimitFlags: %#x, UIRestrictionsClass: %#x, ActiveProcesses: %d", settings.Flags, settings.UI, active))
	r.enforced(layerLowIntegrity, "", "label "+token.Integrity+": what is not labelled low cannot be written")
	r.enforced(layerNoPrivileges, "", "privileges: "+strings.Join(token.Privileges, " "))
	b.missing(r)
	b.report = r.r
	return nil
}

// missing says what the Spec needs and Windows does not have.
func (b *builder) missing(r *reporter) {
	r.missing(layerFiles, "whatever this user may read the program can read, also what is denied or not named; the container tier holds it")
	why := "Windows has no network for one tree of processes; the container tier has"
	if b.spec.Network == sandbox.NetworkOpen {
		why = "the Spec asks for the network of the machine"
	}
	r.missing(layerNetwork, why)
	if writable := len(b.writable()) > 0; writable && !b.spec.LaterWritable || len(b.spec.Held) > 0 {
		r.missing(sandbox.LayerHeld, "in a writable tree files that the host runs later can be changed; the container tier and review hold them")
	}
	if b.spec.Bounds().Descriptors != sandbox.Unlimited {
		r.missing(detailed(layerLimits, "descriptors"), "Windows does not limit handles")
	}
}

// killed is the exit status of processes that we end.
const killed = 0x52460009

// members are the processes of a job.
type members struct {
	job     *jobobject.Job
	process *jobobject.Process

	mu       sync.Mutex
	gone     bool // the handles are given back
	killed   bool
	signaled int // the last signal that we ended the first process for
}

// wait implements tree.
func (m *members) wait() (sandbox.Exit, bool, error) {
	code, err := m.process.Wait()
	err = errors.Join(err, m.job.Terminate(killed), m.empty())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
	m.process.Close()
	m.job.Close()
	if err != nil {
		return sandbox.Exit{}, m.killed, fmt.Errorf("waiting for the box: %w", err)
	}
	if code == killed && m.killed {
		return sandbox.Exit{Cause: sandbox.CauseSignal, Signal: sigKill}, true, nil
	}
	if m.signaled > 0 && code == signalBase+uint32(m.signaled) {
		return sandbox.Exit{Cause: sandbox.CauseSignal, Signal: m.signaled}, false, nil
	}
	return sandbox.Exit{Cause: sandbox.CauseExit, Code: int(code)}, false, nil
}

// emptyTime is how long the system may take to end the processes of a job.
const emptyTime = 10 * time.Second

// empty waits until no process is left in the job: ending them is not done when the call
// that asks for it returns.
func (m *members) empty() error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(emptyTime); ; <-tick.C {
		n, err := m.job.Active()
		if err != nil || n == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes did not end", n)
		}
	}
}

// kill implements tree.
func (m *members) kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return nil
	}
	m.killed = true
	return m.job.Terminate(killed)
}

const (
	sigInt  = 2
	sigKill = 9
	// signalBase and the number of a signal are the exit status of a process that was
	// ended for that signal.
	signalBase = 128
)

// signal implements tree. There are no signals: those that ask a program to end, end it.
func (m *members) signal(number int) error {
	if number != sigInt && number != sigKill && number != sigTerm {
		return fmt.Errorf("signal %d: %w", number, errors.ErrUnsupported)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone {
		return nil
	}
	m.signaled = number
	// It may have ended just now.
	if err := m.process.Terminate(signalBase + uint32(number)); err != nil && !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return err
	}
	return nil
}
