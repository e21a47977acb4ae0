package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/cgroup"
	"ringfence/internal/sys/proc"
)

// A box is one confined process tree. Lock order: killing, mu.
type box struct {
	files     [3]*os.File // our ends of the streams, nil where the Spec has its own
	report    sandbox.Report
	bounds    sandbox.Limits
	ids       ids
	leaf      *cgroup.Leaf
	program   int // a handle of the program's process, or -1
	lastWords *os.File
	temp      string // the directory that was made for it, "" for none
	tempSize  int64  // how much may be in it

	plain   bool       // without namespaces: no death of one process is that of all
	killing sync.Mutex // held while processes are ended by their numbers; before mu
	gone    bool       // the stage was reaped: its number may be somebody else's

	exe    string   // what the stage is started from
	image  *os.File // an image that this is, or nil; not ours
	slack  int      // of the timers of our threads, and of the program; 0 if the stage has it too
	stage  *os.Process
	state  *os.ProcessState // set before reaped is closed
	reaped chan struct{}    // the stage is gone, and with it the box
	over   chan struct{}    // exit and denials do not change any more: nothing but pid 1 is left
	done   chan struct{}    // exit and err are set, and all is given back

	mu      sync.Mutex
	cause   sandbox.Cause // why we ended it; CauseUnknown if we did not
	ended   *ending
	used    *cgroup.Usage // what it had used when the program had ended
	denials []sandbox.Denial
	left    []leftover
	exit    sandbox.Exit
	err     error
}

func newBox(s sandbox.Spec, exe string) *box {
	if exe == "" {
		exe = self
	}
	return &box{bounds: s.Bounds(), program: -1, ids: ids{lock: -1}, exe: exe, reaped: make(chan struct{}), over: make(chan struct{}), done: make(chan struct{}), slack: ownSlack()}
}

// live starts the stage and waits for its end, on one thread. What a plain stage that
// did not get to it has left is ended here.
func (b *box) live(attr *os.ProcAttr, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := startSlack(b.exe, attr, b.slack)
	b.stage = p
	started <- err
	if err != nil {
		return
	}
	// As pid 1 of its namespace it is not reaped before all others there are.
	if b.plain {
		err = proc.AwaitExit(p.Pid)
	}
	b.killing.Lock()
	defer b.killing.Unlock()
	var waited error
	b.state, waited = p.Wait()
	if err = errors.Join(err, waited); err != nil {
		b.mu.Lock()
		b.err = fmt.Errorf("waiting for the box: %w", err)
		b.mu.Unlock()
	}
	b.gone = true
	close(b.reaped)
}

// stageSlack is by how much, in nanoseconds, a timer of the threads of a stage may be late.
// The runtime has a thread that looks after the others, which would wake up 10,000 times a
// second while anything happens, and takes the processor from who builds the box.
const stageSlack = 1_000_000

// startSlack starts the stage with stageSlack: a process has what the thread that forked it
// had (PR_SET_TIMERSLACK, prctl(2)). own is what this one has, or 0 to leave it at that.
func startSlack(exe string, attr *os.ProcAttr, own int) (*os.Process, error) {
	if own > 0 {
		// It is only for speed: no box is worse for not having it.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, stageSlack, 0, 0, 0)
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0) }()
	}
	return os.StartProcess(exe, []string{stageName}, attr)
}

// ownSlack is the timer slack of this thread if a stage is to have another, else 0.
func ownSlack() int {
	own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || own >= stageSlack {
		return 0
	}
	return own
}

// end ends every process of the box. It does not wait.
func (b *box) end() {
	if !b.plain {
		// The handle is of that very process: one that is gone already is no matter.
		_ = b.stage.Kill()
		return
	}
	b.killing.Lock()
	defer b.killing.Unlock()
	if b.gone {
		return
	}
	if err := proc.KillTree(b.stage.Pid); err != nil {
		b.mu.Lock()
		b.err = errors.Join(b.err, err)
		b.mu.Unlock()
	}
}

// begin is called once the program runs: from now on the box lives by itself.
func (b *box) begin(ctx context.Context, w *wire) {
	heard, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		b.listen(w)
	}()
	go func() {
		defer close(watched)
		b.watchTemp()
	}()
	go func() {
		<-b.reaped
		<-heard
		<-watched
		w.close()
		b.finish()
	}()
	go sandbox.Watch(ctx, b.bounds.Wall, b.reaped, b.kill)
}

// listen takes what the stage says until it ends.
func (b *box) listen(w *wire) {
	for {
		fr, err := w.recv(maxSmall)
		if err != nil {
			return
		}
		switch fr.kind {
		case frameEnded:
			e := new(ending)
			if decode(fr.payload, e) == nil {
				used := b.leaf.Refusals() // while pid 1, which is alone now, ends
				b.mu.Lock()
				b.ended, b.used = e, &used
				b.mu.Unlock()
				if !b.plain {
					b.conclude(used)
					b.early()
				}
			}
		case frameDenied:
			d := new(denied)
			if decode(fr.payload, d) == nil {
				b.note(*d)
			}
		default:
			closeFDs(fr.fds)
			b.end() // it does not keep to the protocol: it is not our stage any more
			return
		}
	}
}

// finish says how the box ended, if that is not known, and gives back what it had.
func (b *box) finish() {
	words := b.words()
	b.mu.Lock()
	used := b.used
	b.mu.Unlock()
	if used == nil {
		u := b.leaf.Refusals()
		used = &u
	}
	err := b.giveBack()
	b.mu.Lock()
	if b.ended == nil && b.cause == sandbox.CauseUnknown {
		b.err = errors.Join(b.err, fmt.Errorf("the box ended without saying how (%v)%s", b.state, words))
	}
	b.err = errors.Join(b.err, err)
	b.mu.Unlock()
	select {
	case <-b.over:
	default:
		b.conclude(*used)
	}
	close(b.done)
}

// conclude says how the box ended, and what it was refused. Nothing runs in it any more.
func (b *box) conclude(used cgroup.Usage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(b.over)
	b.explain(used)
	b.tellLeft()
	switch {
	case b.ended != nil:
		b.exit = exitOf(unix.WaitStatus(b.ended.status))
	case b.cause != sandbox.CauseUnknown:
		b.exit = sandbox.Exit{Cause: b.cause}
	}
}

// early gives back what it can of the control group while pid 1 ends, which is in none of
// version 1.
func (b *box) early() {
	ctx, cancel := context.WithTimeout(context.Background(), setupTime)
	defer cancel()
	if err := b.leaf.RemoveOld(ctx); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.err = errors.Join(b.err, fmt.Errorf("giving back what the box had: %w", err))
	}
}

func exitOf(status unix.WaitStatus) sandbox.Exit {
	if status.Signaled() {
		return sandbox.Exit{Cause: sandbox.CauseSignal, Signal: int(status.Signal())}
	}
	return sandbox.Exit{Cause: sandbox.CauseExit, Code: status.ExitStatus()}
}

// giveBack gives back what the box had on this machine. Our ends of its streams stay
// open, so that nothing that it wrote is lost.
func (b *box) giveBack() error {
	var err error
	if b.leaf != nil {
		ctx, cancel := context.WithTimeout(context.Background(), setupTime)
		defer cancel()
		err = errors.Join(b.leaf.Kill(ctx), b.leaf.Remove(ctx))
	}
	b.mu.Lock()
	if b.program >= 0 {
		unix.Close(b.program)
		b.program = -1
	}
	b.mu.Unlock()
	if b.lastWords != nil {
		b.lastWords.Close()
	}
	b.ids.release()
	if b.temp != "" {
		err = errors.Join(err, removeTemp(b.temp))
	}
	if err != nil {
		return fmt.Errorf("giving back what the box had: %w", err)
	}
	return nil
}

// closeStreams closes our ends of the streams of a box that was not built.
func (b *box) closeStreams() {
	for _, f := range b.files {
		if f != nil {
			f.Close()
		}
	}
}

func (b *box) kill(cause sandbox.Cause) {
	b.mu.Lock()
	if b.cause == sandbox.CauseUnknown {
		b.cause = cause
	}
	b.mu.Unlock()
	b.end()
}

// Stdin implements [sandbox.Box].
func (b *box) Stdin() io.WriteCloser {
	if b.files[0] == nil {
		return noStream{}
	}
	return b.files[0]
}

// Stdout implements [sandbox.Box].
func (b *box) Stdout() io.Reader { return b.stream(1) }

// Stderr implements [sandbox.Box].
func (b *box) Stderr() io.Reader { return b.stream(2) }

func (b *box) stream(i int) io.Reader {
	if b.files[i] == nil {
		return noStream{}
	}
	return b.files[i]
}

// noStream stands for a stream that the Spec has a file for.
type noStream struct{}

func (noStream) Read([]byte) (int, error)  { return 0, io.EOF }
func (noStream) Write([]byte) (int, error) { return 0, os.ErrClosed }
func (noStream) Close() error              { return nil }

// Ended implements [sandbox.Ender].
func (b *box) Ended() (sandbox.Exit, error) {
	<-b.over
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exit, b.err
}

// Wait implements [sandbox.Box].
func (b *box) Wait() (sandbox.Exit, error) {
	<-b.done
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exit, b.err
}

// Terminate implements [sandbox.Box].
func (b *box) Terminate() error { return b.Signal(int(unix.SIGTERM)) }

// Signal implements [sandbox.Box].
func (b *box) Signal(number int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.program < 0 {
		return nil
	}
	if err := unix.PidfdSendSignal(b.program, unix.Signal(number), nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("signalling the program: %w", err)
	}
	return nil
}

// Denials implements [sandbox.Box].
func (b *box) Denials() []sandbox.Denial {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]sandbox.Denial(nil), b.denials...)
}

// Kill implements [sandbox.Box].
func (b *box) Kill() error {
	b.kill(sandbox.CauseKill)
	<-b.done
	return nil
}

// Report implements [sandbox.Box].
func (b *box) Report() sandbox.Report { return b.report }
