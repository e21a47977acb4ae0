// Package sandbox describes boxes: confined process trees that untrusted code
// runs in. It says what a box must do ([Spec]), what the kernel confirms that it
// does ([Report]), and how boxes are made ([Tier]) and held ([Box]).
//
// It confines nothing itself. Each kind of box is a [Tier] in a subpackage; tiers
// share no code but this package and pass one suite of tests. Which box is wanted
// is decided by configuration, never by what happens to work.
//
// Invariants:
//
//	B1  A Spec says everything: what it does not name, the box does not have. The
//	    zero Spec has no program, no paths, no network and no environment.
//	B2  A box that cannot be built as its Spec says is an error that wraps
//	    [ErrNotBuilt], never a weaker box and never another tier.
//	B3  A Report states what was confirmed after the box was built. What was only
//	    asked for is not in it; what could only be deduced is marked as such.
//	    The zero Report reads "box: none".
//	B4  When [Box.Wait] has returned, or [Box.Kill], nothing of the box runs.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

var (
	// ErrUnsupported is returned by a Tier that cannot run on this machine. The
	// caller gives up, or tries the next tier that the operator listed by name.
	ErrUnsupported = errors.New("not supported on this machine")
	// ErrNotBuilt is wrapped by an error of Start when the program did not run
	// because its box could not be made. The effect did not happen.
	ErrNotBuilt = errors.New("box not built")
	// ErrNotFound is wrapped by an error of Start when the box was made and
	// the program is not there or not executable in it.
	ErrNotFound = errors.New("program not found")
)

// A Tier makes boxes of one kind. Its methods may be called concurrently.
type Tier interface {
	// Name is "native", "container", "microvm", or "none" for the tier that
	// confines nothing. It is a constant.
	Name() string
	// Probe tries out what this tier enforces here and now, by using it, and
	// reports it as if for a box that asks for everything. The error wraps
	// ErrUnsupported where the tier cannot work at all.
	Probe(context.Context) (Report, error)
	// Start checks the Spec, builds a box and starts Spec.Argv in it. When it
	// returns without error the program has been started and everything in the
	// Report of the Box is in force. When ctx ends, the box is killed. Errors
	// wrap ErrNotBuilt or ErrNotFound, and then nothing is left behind.
	Start(context.Context, Spec) (Box, error)
}

// A Preparer is a Tier that can begin with a box before it is decided whether there
// will be one, so that the decision and the box do not wait for each other.
type Preparer interface {
	Tier
	// Prepare begins with what a box needs that does not depend on a decision: it
	// shows nothing of the Spec to anybody, and nothing of the Spec runs. It does
	// not wait.
	Prepare(Spec) Prepared
}

// A Prepared is a box that was begun. One of its methods must be called; after that,
// Discard does nothing.
type Prepared interface {
	// Start is that of the Tier. The Spec counts, whatever was prepared for: a box
	// that does not fit it is discarded, and another is built.
	Start(context.Context, Spec) (Box, error)
	// Discard gives back what was taken, and returns when nothing is left.
	Discard() error
}

// A Box is a running process tree in its confinement. Its methods may be called
// concurrently.
//
// The three streams are pipes: who starts a box must read Stdout and Stderr to
// their ends, or the program blocks when a pipe is full. Use [Run] or [Cap] for
// programs whose output must be bounded.
type Box interface {
	Stdin() io.WriteCloser
	Stdout() io.Reader // io.EOF when nothing in the box can write any more
	Stderr() io.Reader
	// Wait blocks until the first process of the box has ended, ends whatever
	// else still runs in it, and says how it ended. It may be called any number
	// of times. An error means that the end could not be established.
	Wait() (Exit, error)
	// Terminate asks the first process of the box to end, as far as the tier can
	// ask (SIGTERM). Nothing has to come of it; Kill does not ask.
	Terminate() error
	// Signal sends a signal to the first process of the box, as far as the tier
	// can. On a box that has ended it does nothing.
	Signal(number int) error
	// Denials returns what was refused in the box so far, oldest first, at most
	// [MaxDenials]. Refusals that the kernel makes without telling are not in it.
	Denials() []Denial
	// Kill ends every process of the box and returns when they are gone. On a
	// box that has ended it does nothing.
	Kill() error
	// Report says what is enforced. It does not change while the box runs.
	Report() Report
}

// An Ender is a Box that knows how it ended before all that it had is given back, so that
// the end can be put on record meanwhile.
type Ender interface {
	Box
	// Ended is Wait, but it returns as soon as nothing of what ran in the box does any
	// more, and Denials are complete. Wait says whether all was given back.
	Ended() (Exit, error)
}

// MaxDenials is how many denials a box keeps; more are counted in the last one.
const MaxDenials = 256

// OpNotHeld is the Op of what is told like a denial and is none: something was made
// in the box that the host would run later, and was not held.
const OpNotHeld = "not-held"

// A Denial is one thing that was refused in a box.
type Denial struct {
	Op     string `json:"op"`            // "create", "write", "delete", "rename", "link", "connect", or the name of a system call
	Object string `json:"object"`        // path, address, or what else it was about
	Rule   string `json:"rule"`          // what refused it, for people: "files that the host runs later are held"
	Fix    string `json:"fix,omitempty"` // the flag or clause that would allow it, "" if nothing does
	// Observed is false where what happened was deduced, from a status or a limit.
	Observed bool `json:"observed"`
	Count    int  `json:"count"` // how often, at least 1
}

// A Cause says why a box ended.
type Cause uint8

// The causes. The zero Cause means that nothing is known.
const (
	CauseUnknown  Cause = iota
	CauseExit           // the program ended by itself, with Exit.Code
	CauseSignal         // something outside our control, or the kernel, sent Exit.Signal
	CauseDeadline       // Limits.Wall was over
	CauseKill           // Kill was called, or the context of Start ended
)

// An Exit says how a box ended.
type Exit struct {
	Cause  Cause
	Code   int // CauseExit only
	Signal int // CauseSignal only
}

// Status returns the exit status that stands for e on a command line: the
// program's own, 128+n for signal n, 124 for the deadline, 137 for Kill, and 125
// when nothing is known.
func (e Exit) Status() int {
	switch e.Cause {
	case CauseExit:
		return e.Code
	case CauseSignal:
		return 128 + e.Signal
	case CauseDeadline:
		return 124
	case CauseKill:
		return 128 + 9
	default:
		return 125
	}
}

// String says how the box ended: "status 1", "signal 9", "deadline", "killed".
func (e Exit) String() string {
	switch e.Cause {
	case CauseExit:
		return fmt.Sprintf("status %d", e.Code)
	case CauseSignal:
		return fmt.Sprintf("signal %d", e.Signal)
	case CauseDeadline:
		return "deadline"
	case CauseKill:
		return "killed"
	default:
		return "unknown end"
	}
}

// Pick returns the first of the tiers called names, in that order, that works on
// this machine, with what it reported. An operator who names one tier gets it or
// an error; only who lists several by name accepts a later one, and the Report
// shows which it was.
//
// The error wraps ErrUnsupported when every tier named is known and none works.
func Pick(ctx context.Context, names []string, tiers ...Tier) (Tier, Report, error) {
	if len(names) == 0 {
		return nil, Report{}, errors.New("choosing a tier: none is named")
	}
	byName := map[string]Tier{}
	known := make([]string, 0, len(tiers))
	for _, t := range tiers {
		byName[t.Name()] = t
		known = append(known, t.Name())
	}
	for _, n := range names {
		if byName[n] == nil {
			return nil, Report{}, fmt.Errorf("choosing a tier: no tier %q; there are: %s", n, strings.Join(known, ", "))
		}
	}
	var reasons []error
	for _, n := range names {
		r, err := byName[n].Probe(ctx)
		if err == nil {
			return byName[n], r, nil
		}
		if !errors.Is(err, ErrUnsupported) {
			return nil, Report{}, fmt.Errorf("choosing a tier: probing %s: %w", n, err)
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", n, err))
	}
	return nil, Report{}, fmt.Errorf("choosing a tier: %w", errors.Join(reasons...))
}
