//go:build darwin || windows

package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"ringfence/internal/sandbox"
)

// setupTime is how long building a box may take at most, but for Confirm.
const setupTime = 30 * time.Second

// The names of what may be missing in a report, beyond those of package sandbox.
const (
	layerNetwork = "network"
	layerFiles   = "files"
	layerTree    = "process-tree"
	layerLimits  = "limits"
)

// A tree is the processes of a box.
type tree interface {
	// wait blocks until the first process has ended, ends all others, and says how the
	// first ended. ours says that it was ended by kill. It is called once.
	wait() (exit sandbox.Exit, ours bool, err error)
	// kill ends them all. It does not wait.
	kill() error
	signal(number int) error
}

// A box is one confined process tree. Lock order: that of the tree, then mu.
type box struct {
	files  [3]*os.File // our ends of the streams, nil where the Spec has its own
	report sandbox.Report
	bounds sandbox.Limits
	tree   tree
	done   chan struct{} // exit and err are set

	mu    sync.Mutex
	cause sandbox.Cause // why we ended it; CauseUnknown if we did not
	exit  sandbox.Exit
	err   error
}

func newBox(s sandbox.Spec) *box { return &box{bounds: s.Bounds(), done: make(chan struct{})} }

// open makes the pipes of the three streams, where s has no file for them. It returns
// the three that go to the program, and those among them to close once it has them.
func (b *box) open(s sandbox.Spec) (theirs [3]*os.File, made []*os.File, err error) {
	for i, given := range [...]*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if given != nil {
			theirs[i] = given
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(made)
			closeAll(b.files[:])
			return theirs, nil, err
		}
		b.files[i], theirs[i] = r, w
		if i == 0 {
			b.files[i], theirs[i] = w, r
		}
		made = append(made, theirs[i])
	}
	return theirs, made, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// begin is called once the program runs: from now on the box lives by itself.
func (b *box) begin(ctx context.Context) {
	go func() {
		exit, ours, err := b.tree.wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.exit, b.err = exit, errors.Join(b.err, err)
		if ours && b.cause != sandbox.CauseUnknown {
			b.exit = sandbox.Exit{Cause: b.cause}
		}
		close(b.done)
		for _, f := range b.files[1:] {
			if f != nil {
				// Wakes who waits for output that cannot come. Where pipes have no
				// deadlines, nothing that holds the other end is left.
				_ = f.SetReadDeadline(time.Now())
			}
		}
	}()
	go sandbox.Watch(ctx, b.bounds.Wall, b.done, b.kill)
}

func (b *box) kill(cause sandbox.Cause) {
	b.mu.Lock()
	if b.cause == sandbox.CauseUnknown {
		b.cause = cause
	}
	b.mu.Unlock()
	if err := b.tree.kill(); err != nil {
		b.mu.Lock()
		b.err = errors.Join(b.err, fmt.Errorf("ending the box: %w", err))
		b.mu.Unlock()
	}
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
	return &output{f: b.files[i], done: b.done}
}

// noStream stands for a stream that the Spec has a file for.
type noStream struct{}

func (noStream) Read([]byte) (int, error)  { return 0, io.EOF }
func (noStream) Write([]byte) (int, error) { return 0, os.ErrClosed }
func (noStream) Close() error              { return nil }

// An output is the reading end of a pipe. It ends when the last writer has closed it,
// or when the box has ended and nothing more comes for a moment: a process that left
// the tree may hold the other end for ever.
type output struct {
	f    *os.File
	done <-chan struct{}
	last bool
}

// linger is how long an output waits for a writer after the box has ended.
const linger = 200 * time.Millisecond

// Read implements [io.Reader]. It is called by one reader at a time.
func (o *output) Read(p []byte) (int, error) {
	for {
		select {
		case <-o.done:
			_ = o.f.SetReadDeadline(time.Now().Add(linger))
		default:
		}
		n, err := o.f.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if o.last {
			return 0, io.EOF
		}
		o.last = true
	}
}

// Wait implements [sandbox.Box].
func (b *box) Wait() (sandbox.Exit, error) {
	<-b.done
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exit, b.err
}

// Terminate implements [sandbox.Box].
func (b *box) Terminate() error { return b.Signal(sigTerm) }

// Signal implements [sandbox.Box].
func (b *box) Signal(number int) error {
	select {
	case <-b.done:
		return nil
	default:
	}
	if err := b.tree.signal(number); err != nil {
		return fmt.Errorf("signalling the program: %w", err)
	}
	return nil
}

// sigTerm is the number of SIGTERM.
const sigTerm = 15

// Denials implements [sandbox.Box]: neither kernel tells who asked for confinement what
// it refused.
func (b *box) Denials() []sandbox.Denial { return nil }

// Kill implements [sandbox.Box].
func (b *box) Kill() error {
	select {
	case <-b.done:
		return nil
	default:
	}
	b.kill(sandbox.CauseKill)
	<-b.done
	return nil
}

// Report implements [sandbox.Box].
func (b *box) Report() sandbox.Report { return b.report }

// A reporter collects what is in force and what is not.
type reporter struct{ r sandbox.Report }

func newReporter() *reporter {
	return &reporter{sandbox.Report{Tier: TierName, Evidence: map[string]string{}}}
}

func (r *reporter) enforced(layer, detail, evidence string) {
	r.r.Evidence[layer] = evidence
	r.r.Enforced = append(r.r.Enforced, detailed(layer, detail))
}

func (r *reporter) inferred(layer, detail, evidence string) {
	r.r.Evidence[layer] = evidence
	r.r.Inferred = append(r.r.Inferred, detailed(layer, detail))
}

func (r *reporter) missing(layer, why string) {
	r.r.Evidence[layer] = why
	r.r.Missing = append(r.r.Missing, layer)
}

func detailed(layer, detail string) string {
	if detail == "" {
		return layer
	}
	return layer + "=" + detail
}
