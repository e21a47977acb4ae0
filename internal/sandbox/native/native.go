// Package native makes boxes with what the operating system itself confines
// processes with. On Linux these are namespaces, a minimal tree of mounts, Landlock,
// a filter of system calls, resource limits and control groups.
//
// It composes what its subpackages know (filter, landlock, cgroup, readback, hold)
// into a [Tier]; it decides nothing about what a box may do, which is in the Spec,
// and it does not fall back: a box that cannot be built in full is an error.
//
// A box starts in stages. The caller runs its own binary again as the stage, in new
// namespaces; main hands over to [Child] before it does anything else. The stage is
// pid 1 of the box: it builds the root, forks the process of the program, confines it,
// confines itself, and lets the program start when the caller has read everything
// back from outside.
//
// Invariants:
//
//	N1  Every step of building a box has a name, and ends the box when it errs: no
//	    step is left out, retried in a weaker form, or reported without being taken.
//	N2  The stage trusts its plan, which comes over a descriptor from the process
//	    that started it, and nothing else: no environment, no arguments, no file.
//	N3  The program is executed after the caller has seen its confinement in /proc,
//	    and after Confirm said yes; never before.
//	N4  When the stage ends, for whatever reason, the box ends.
//	N5  No file, directory or mount point is made on the host, but for the temporary
//	    directory of a box without mounts of its own, which goes with it.
//	N6  What is in [Tier.Own] is in no box, by no name that a mount gives it, and our
//	    program cannot be changed by such a name: there is no box then. Homes of
//	    ringfence that are not ours are hidden as far as paths.ForeignHomes, and for
//	    writable trees hold.Rules.Follow, finds them.
package native

import (
	"context"
	"fmt"
	"os"

	"ringfence/internal/sandbox"
)

// TierName is what [Tier.Name] returns.
const TierName = "native"

// A Tier makes boxes with the means of this machine's own kernel. The zero Tier is
// ready for use. The process that uses it must call [Child] first thing in main.
type Tier struct {
	// Own are the files and trees that no box gets to see, whatever its Spec says: the
	// state of who makes them. What a Spec names within them it has decided on. Where a
	// box cannot be kept from files, as on Windows, they are no exception.
	Own []string
	// Image, if it is set, returns what stages are started from, or nil: see [ImageOf]. It
	// is called when that is needed, and may wait.
	Image func() *os.File

	fault fault
}

// A fault makes building a box go wrong, in tests. The zero fault does not.
type fault struct {
	at    string // the name of the step that fails
	plain bool   // as if there were no user namespaces
	stage string // another program as the stage
}

var _ sandbox.Tier = Tier{}

// Name returns "native".
func (Tier) Name() string { return TierName }

// Probe builds a box as an agent gets it, runs a self-test of ours in it, and
// returns its report. Errors wrap [sandbox.ErrUnsupported] where boxes cannot be
// built on this machine at all.
func (t Tier) Probe(ctx context.Context) (sandbox.Report, error) { return t.probe(ctx) }

// Start implements [sandbox.Tier].
func (t Tier) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	return t.start(ctx, s)
}

// notBuilt says that the step called name failed. The result wraps
// [sandbox.ErrNotBuilt] and err.
func notBuilt(name string, err error) error {
	return fmt.Errorf("%w: %s: %w", sandbox.ErrNotBuilt, name, err)
}
