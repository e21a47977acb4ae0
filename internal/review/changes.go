package review

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"ringfence/internal/sys/subtree"
)

// A Kind says what a change does.
type Kind string

// The kinds.
const (
	Added    Kind = "added"    // a file or directory that is new
	Modified Kind = "modified" // the content of a file
	Deleted  Kind = "deleted"  // a file, or a directory with all that is in it
	Mode     Kind = "mode"     // permissions alone
	Type     Kind = "type"     // something of another kind stands there
	Link     Kind = "link"     // a symbolic link that is new, or leads elsewhere
)

// A Flag points at what a person should look at twice.
type Flag string

// The flags.
const (
	RunsLater  Flag = "runs-later"  // this machine runs, obeys or trusts it later (R3): see [places.Roots.Reviewed] and [Review.Led]
	BuildFile  Flag = "build-file"  // a build, a test or a packager runs it
	Executable Flag = "executable"  // and was not before
	LinkOut    Flag = "symlink-out" // leads out of the workspace
	Setuid     Flag = "setuid"      // has setuid or setgid bits, which are never applied
)

// A Change is one difference between the workspace as the box left it and the
// workspace as it is.
type Change struct {
	// Path is that in the workspace, without a leading slash; "." is the workspace
	// itself. It can hold any byte but NUL.
	Path  string
	Kind  Kind
	Dir   bool  // it is a directory (of Deleted: was)
	Size  int64 // of the file as the box left it; of Deleted: as it is
	Flags []Flag
	// Why says why the flags runs-later and build-file are there.
	Why string
	// Conflict says what was changed outside since the review began, "" if nothing
	// was. What is there now counts as changed if its st_ctime is not before the
	// beginning: nobody but who sets the clock can set that. Where the change cannot
	// be told from one outside, it counts as that.
	Conflict string
	// Refused says why the change can never be applied, "" if it can.
	Refused string

	perm   uint32       // as the box left it
	target string       // of a symbolic link
	low    subtree.Info // what stands there; Kind Other if nothing
	there  bool
	up     subtree.Info
}

// Has reports whether c has the flag f.
func (c Change) Has(f Flag) bool { return slices.Contains(c.Flags, f) }

// What is looked at of an upper tree, at most.
const (
	maxDepth   = 512     // of directories
	maxChanges = 1 << 20 // and as many names in one directory
	maxCompare = 1 << 30 // bytes of two files that are compared; larger ones count as different
)

// ErrTooMuch says that an upper tree holds more than can be looked at. It can only be
// discarded as a whole.
var ErrTooMuch = fmt.Errorf("more than %d changes", maxChanges)

// Changes returns what the box changed and nobody has applied or discarded, what is
// above before what is in it. Of an overlay it walks the upper tree, of a copy all of
// it, and it looks at the workspace only where something was changed.
func (r *Review) Changes() ([]Change, error) {
	all, err := r.changes()
	if err != nil {
		return nil, fmt.Errorf("reading the changes of review %s: %w", r.ID, err)
	}
	return all, nil
}

func (r *Review) changes() (all []Change, err error) {
	low, err := r.workspace()
	if err != nil {
		return nil, err
	}
	defer low.Close() //nolint:errcheck // nothing was written through it
	up, err := subtree.Open(r.Left())
	if err != nil {
		return nil, err
	}
	defer up.Close() //nolint:errcheck // nothing was written through it
	past, err := r.done()
	if err != nil {
		return nil, err
	}
	if time.Now().Before(r.Began) {
		return nil, ErrClock
	}
	k, err := r.kept()
	if err != nil {
		return nil, err
	}
	w := newWalk(r, past, k)
	if err := w.root(up, low); err != nil {
		return nil, err
	}
	if err := w.dir(level{up: up, low: low}); err != nil {
		if errors.Is(err, subtree.ErrTooMany) {
			err = fmt.Errorf("%w: %w", ErrTooMuch, err)
		}
		return nil, err
	}
	w.checkLinks()
	return w.out, nil
}
