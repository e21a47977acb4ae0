package unboxed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/proc"
	"ringfence/internal/sys/pty"
)

func supported() error { return nil }

// A box is one process tree. Lock order: mu is a leaf.
type box struct {
	cmd            *exec.Cmd
	stdin          *os.File
	stdout, stderr *stream
	done           chan struct{}

	mu     sync.Mutex
	reaped bool          // the process number may be somebody else's by now
	cause  sandbox.Cause // why we killed it; CauseUnknown if we did not
	exit   sandbox.Exit  // set before done is closed
	err    error         // likewise
}

// Start implements [sandbox.Tier].
func (Tier) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	// Told apart here, because exec reports a missing directory like a missing program.
	if fi, err := os.Stat(s.WorkingDir()); err != nil || !fi.IsDir() {
		return nil, fmt.Errorf("%w: working directory %s is not there", sandbox.ErrNotBuilt, s.WorkingDir())
	}
	if err := proc.SealDescriptors(); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	b := &box{cmd: command(s), done: make(chan struct{})}
	theirs, err := b.pipes(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	if s.Confirm != nil {
		if err := s.Confirm(report()); err != nil {
			closeAll(append(b.ours(), theirs...))
			return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
		}
	}
	started := make(chan error)
	go b.live(started)
	err = <-started
	closeAll(theirs)
	if err != nil {
		closeAll(b.ours())
		return nil, startError(s.Argv[0], err)
	}
	// What is left, Wait reports.
	go sandbox.Watch(ctx, s.Bounds().Wall, b.done, func(c sandbox.Cause) { _ = b.kill(c) })
	return b, nil
}

func command(s sandbox.Spec) *exec.Cmd {
	cmd := exec.Command(s.Argv[0], s.Argv[1:]...)
	// Not nil even when empty: nil would mean our own environment.
	cmd.Env = append(make([]string, 0, len(s.Env)), s.Env...)
	cmd.Dir = s.WorkingDir()
	cmd.ExtraFiles = s.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if s.Stdin != nil && pty.IsTerminal(s.Stdin) {
		cmd.SysProcAttr.Setctty = true // descriptor 0 of the child
	}
	return cmd
}

func startError(program string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC) {
		return fmt.Errorf("%w: %s: %w", sandbox.ErrNotFound, program, err)
	}
	return fmt.Errorf("%w: starting %s: %w", sandbox.ErrNotBuilt, program, err)
}

// pipes connects the three streams, but for those that s has a file for, and returns
// the ends that go to the child. Our own ends stay open after the child has ended, so
// that nothing that it wrote is lost.
func (b *box) pipes(s sandbox.Spec) (theirs []*os.File, err error) {
	given := [3]*os.File{s.Stdin, s.Stdout, s.Stderr}
	var ours [3]*os.File
	for i, f := range given {
		if f != nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(theirs, ours[:]...))
			return nil, err
		}
		ours[i], given[i] = r, w
		if i == 0 {
			ours[i], given[i] = w, r
		}
		theirs = append(theirs, given[i])
	}
	b.stdin = ours[0]
	b.stdout, b.stderr = &stream{f: ours[1], done: b.done}, &stream{f: ours[2], done: b.done}
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = given[0], given[1], given[2]
	return theirs, nil
}

// ours are our ends of the streams, nil where the Spec has a file.
func (b *box) ours() []*os.File { return []*os.File{b.stdin, b.stdout.f, b.stderr.f} }

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// live starts the process, waits for its end, and ends what it left behind. It
// stays on one thread from start to end, because the kernel takes the death of the
// thread that forked for the death of the parent (PR_SET_PDEATHSIG, prctl(2)).
func (b *box) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := b.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	defer b.ended()
	pid := b.cmd.Process.Pid
	awaited := proc.AwaitExit(pid)
	b.mu.Lock()
	defer b.mu.Unlock()
	var left error
	if awaited == nil {
		left = proc.KillTree(pid)
	}
	state, err := b.cmd.Process.Wait()
	b.reaped = true
	b.err = errors.Join(awaited, left, err)
	if err == nil {
		b.exit = exitOf(state, b.cause)
	}
}

// ended wakes everyone who waits: for the end, or for output that cannot come.
func (b *box) ended() {
	close(b.done)
	for _, s := range []*stream{b.stdout, b.stderr} {
		if s.f != nil {
			_ = s.f.SetReadDeadline(time.Now())
		}
	}
}

// A stream is the reading end of a pipe. It ends when the last writer has closed
// it, or when the box has ended and nothing more comes for a moment: a process that
// escaped the tree may hold the other end for ever.
type stream struct {
	f    *os.File // nil if the Spec has a file for it
	done <-chan struct{}
	last bool
}

// linger is how long a stream waits for a writer after the box has ended.
const linger = 200 * time.Millisecond

// Read implements [io.Reader]. It is called by one reader at a time.
func (s *stream) Read(p []byte) (int, error) {
	if s.f == nil {
		return 0, io.EOF
	}
	for {
		select {
		case <-s.done:
			_ = s.f.SetReadDeadline(time.Now().Add(linger))
		default:
		}
		n, err := s.f.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if s.last {
			return 0, io.EOF
		}
		s.last = true
	}
}

func exitOf(state *os.ProcessState, killed sandbox.Cause) sandbox.Exit {
	ws, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return sandbox.Exit{}
	case ws.Signaled() && killed != sandbox.CauseUnknown:
		return sandbox.Exit{Cause: killed}
	case ws.Signaled():
		return sandbox.Exit{Cause: sandbox.CauseSignal, Signal: int(ws.Signal())}
	}
	return sandbox.Exit{Cause: sandbox.CauseExit, Code: ws.ExitStatus()}
}

func (b *box) kill(cause sandbox.Cause) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reaped {
		return nil
	}
	if b.cause == sandbox.CauseUnknown {
		b.cause = cause
	}
	return proc.KillTree(b.cmd.Process.Pid)
}

// Stdin implements [sandbox.Box].
func (b *box) Stdin() io.WriteCloser {
	if b.stdin == nil {
		return noStream{}
	}
	return b.stdin
}

// noStream stands for a standard input that the Spec has a file for.
type noStream struct{}

func (noStream) Write([]byte) (int, error) { return 0, os.ErrClosed }
func (noStream) Close() error              { return nil }

// Stdout implements [sandbox.Box].
func (b *box) Stdout() io.Reader { return b.stdout }

// Stderr implements [sandbox.Box].
func (b *box) Stderr() io.Reader { return b.stderr }

// Report implements [sandbox.Box].
func (b *box) Report() sandbox.Report { return report() }

// Wait implements [sandbox.Box].
func (b *box) Wait() (sandbox.Exit, error) {
	<-b.done
	return b.exit, b.err
}

// Terminate implements [sandbox.Box].
func (b *box) Terminate() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reaped {
		return nil
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("terminating: %w", err)
	}
	return nil
}

// Signal implements [sandbox.Box].
func (b *box) Signal(number int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reaped {
		return nil
	}
	if err := b.cmd.Process.Signal(syscall.Signal(number)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling: %w", err)
	}
	return nil
}

// Denials implements [sandbox.Box]: nothing is refused here.
func (b *box) Denials() []sandbox.Denial { return nil }

// Kill implements [sandbox.Box].
func (b *box) Kill() error {
	if err := b.kill(sandbox.CauseKill); err != nil {
		return err
	}
	<-b.done
	return nil
}
