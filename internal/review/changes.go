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
	RunsLater  Flag = "runs-later"  // this machine runs or obeys it later (R3)
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

// Names of the extended attributes that an overlay keeps in its upper tree when it is
// mounted with the option userxattr (Documentation/filesystems/overlayfs.rst). A
// program in the box cannot set them: the overlay refuses or renames its own.
const (
	attrOpaque   = "user.overlay.opaque"   // "y": nothing of the lower directory shows; "x": see attrWhiteout
	attrWhiteout = "user.overlay.whiteout" // an empty file that marks a deletion, in a directory that is opaque "x"
	attrOrigin   = "user.overlay.origin"   // was copied from the lower tree, perhaps from another name
)

// Changes returns what the box changed and nobody has applied or discarded, what is
// above before what is in it. It walks the upper tree, and looks at the lower one
// only where the upper one has something.
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
	up, err := subtree.Open(r.Upper)
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
	w := newWalk(r, past)
	upInfo, uerr := up.Self()
	lowInfo, lerr := low.Self()
	if err := errors.Join(uerr, lerr); err != nil {
		return nil, err
	}
	if (upInfo.Perm^lowInfo.Perm)&0o777 != 0 {
		c := Change{Path: ".", Kind: Mode, Dir: true, perm: upInfo.Perm, low: lowInfo, there: true, up: upInfo}
		if c.Conflict = r.conflict(lowInfo); w.appliedIn["."] {
			c.Conflict = ""
		}
		if err := w.add(c, ""); err != nil {
			return nil, err
		}
	}
	if err := w.dir(level{up: up, low: low}); err != nil {
		return nil, err
	}
	return w.out, nil
}
