package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/sandbox"
)

// A lifeline is how a box hears of its container and ends it.
type lifeline interface {
	// await blocks until the program has ended or the lifeline is cut, and says
	// how. It is called once.
	await() (sandbox.Exit, error)
	// denials says what the limits refused. It is called after await.
	denials() []sandbox.Denial
	signal(number int) error
	// cut ends the container, as far as that is possible without removing it, and
	// makes await return. It may be called any number of times.
	cut()
	// gone blocks until nothing of the container runs, or for a moment, and
	// reports which. It is called after the removal.
	gone() error
}

// A box is a container and its lifeline. Lock order: mu is a leaf.
type box struct {
	engine         *engine
	id             string
	dir            string // of ours; what it holds is mounted in the container
	life           lifeline
	watcher        *watcher
	stdin          io.WriteCloser
	stdout, stderr io.Reader
	report         sandbox.Report
	done           chan struct{}

	mu      sync.Mutex
	cause   sandbox.Cause // why we ended it; CauseUnknown if we did not
	exit    sandbox.Exit  // set before done is closed
	err     error         // likewise
	refused []sandbox.Denial
	told    []sandbox.Denial // set before anybody else has the box
}

// live waits for the end of the program and removes the container.
func (b *box) live(ctx context.Context) {
	defer close(b.done)
	exit, err := b.life.await()
	refused := b.life.denials()
	if exit.Cause == sandbox.CauseUnknown && b.endedBy() == sandbox.CauseUnknown {
		exit, refused, err = b.autopsy(ctx, refused, err)
	}
	b.life.cut()
	removed := b.engine.removeAnyway(ctx, b.id)
	if removed == nil {
		b.watcher.gone()
	}
	gone := errors.Join(b.life.gone(), os.RemoveAll(b.dir))
	shut(b.stdin) // nobody reads it any more
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = refused
	// What we killed has ended by that, unless it had ended by itself before.
	if b.cause != sandbox.CauseUnknown && exit.Cause != sandbox.CauseExit {
		exit, err = sandbox.Exit{Cause: b.cause}, nil
	}
	b.exit = exit
	if err := errors.Join(err, removed, gone); err != nil {
		b.err = fmt.Errorf("ending a container: %w", err)
	}
}

// autopsy asks the engine how a container ended of which nothing else is known.
func (b *box) autopsy(ctx context.Context, refused []sandbox.Denial, cause error) (sandbox.Exit, []sandbox.Denial, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	a, err := b.engine.inspect(ctx, b.id)
	switch {
	case err != nil:
		return sandbox.Exit{}, refused, errors.Join(cause, err)
	case a.State.OOMKilled && len(refused) == 0:
		refused = append(refused, memoryDenial(1))
	}
	const killed = 128 + 9
	if a.State.OOMKilled || a.State.ExitCode == killed {
		return sandbox.Exit{Cause: sandbox.CauseSignal, Signal: 9}, refused, nil
	}
	return sandbox.Exit{}, refused, fmt.Errorf("the container ended with status %d before the program did: %w", a.State.ExitCode, cause)
}

func (b *box) end(cause sandbox.Cause) {
	b.mu.Lock()
	if b.cause == sandbox.CauseUnknown {
		b.cause = cause
	}
	b.mu.Unlock()
	b.life.cut()
}

func (b *box) endedBy() sandbox.Cause {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause
}

// Stdin implements [sandbox.Box].
func (b *box) Stdin() io.WriteCloser { return b.stdin }

// Stdout implements [sandbox.Box].
func (b *box) Stdout() io.Reader { return b.stdout }

// Stderr implements [sandbox.Box].
func (b *box) Stderr() io.Reader { return b.stderr }

// Report implements [sandbox.Box].
func (b *box) Report() sandbox.Report { return b.report }

// Wait implements [sandbox.Box].
func (b *box) Wait() (sandbox.Exit, error) {
	<-b.done
	return b.exit, b.err
}

const sigTerm = 15

// Terminate implements [sandbox.Box].
func (b *box) Terminate() error { return b.Signal(sigTerm) }

// Signal implements [sandbox.Box].
func (b *box) Signal(number int) error {
	if number < 1 || number > 64 {
		return fmt.Errorf("signalling: there is no signal %d", number)
	}
	select {
	case <-b.done:
		return nil
	default:
	}
	if err := b.life.signal(number); err != nil && b.endedBy() == sandbox.CauseUnknown {
		return fmt.Errorf("signalling: %w", err)
	}
	return nil
}

// Kill implements [sandbox.Box].
func (b *box) Kill() error {
	b.end(sandbox.CauseKill)
	<-b.done
	return b.err
}

// Denials implements [sandbox.Box]: what the limits refused, known when the box has
// ended, and what was not looked through.
func (b *box) Denials() []sandbox.Denial {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Concat(b.told, b.refused)
}

// unseenDenial tells of a large tree in which not all was looked for.
func unseenDenial(why string) sandbox.Denial {
	return sandbox.Denial{Op: sandbox.OpNotHeld, Object: "homes of ringfence in a large tree", Rule: why, Observed: true, Count: 1}
}

func memoryDenial(times int) sandbox.Denial {
	return sandbox.Denial{
		Op: "memory", Object: "the container", Rule: "the memory limit of the container was reached and a process killed",
		Fix: "a higher limit of memory, of the box or of the tier (RINGFENCE_DOCKER_MEMORY)", Observed: true, Count: times,
	}
}

func processesDenial(times int) sandbox.Denial {
	return sandbox.Denial{
		Op: "fork", Object: "the container", Rule: "the limit of processes and threads of the container was reached",
		Fix: "a higher limit of processes", Observed: true, Count: times,
	}
}

// A closedStream stands where the caller gave a stream of his own.
type closedStream struct{}

func (closedStream) Write([]byte) (int, error) { return 0, os.ErrClosed }
func (closedStream) Close() error              { return nil }

func noOutput() io.Reader { return strings.NewReader("") }
