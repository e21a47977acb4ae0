package review

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
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
	w := &walk{r: r, done: past}
	upInfo, uerr := up.Self()
	lowInfo, lerr := low.Self()
	if err := errors.Join(uerr, lerr); err != nil {
		return nil, err
	}
	if (upInfo.Perm^lowInfo.Perm)&0o777 != 0 {
		c := Change{Path: ".", Kind: Mode, Dir: true, perm: upInfo.Perm, low: lowInfo, there: true, up: upInfo}
		c.Conflict = r.conflict(lowInfo)
		if err := w.add(c, ""); err != nil {
			return nil, err
		}
	}
	if err := w.dir(level{up: up, low: low}); err != nil {
		return nil, err
	}
	return w.out, nil
}

// A walk is one way through an upper tree.
type walk struct {
	r    *Review
	done done
	out  []Change
}

// A level is one directory of the walk.
type level struct {
	path string // "" at the top
	// place is the path by which files in it are judged: it differs from path where a
	// repository is not called ".git".
	place  string
	up     *subtree.Dir
	low    *subtree.Dir // nil if there is none
	opaque bool         // nothing of low shows
	marks  bool         // empty files with attrWhiteout mark deletions
	depth  int
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// dir adds the changes in one directory.
func (w *walk) dir(l level) error {
	names, err := l.up.Names(maxChanges)
	if err != nil {
		return err
	}
	slices.Sort(names)
	l.place = repository(l)
	for _, name := range names {
		if err := w.entry(l, name); err != nil {
			return err
		}
	}
	if !l.opaque || l.low == nil {
		return nil
	}
	// What the box left out of a directory that it made anew is deleted.
	olds, err := l.low.Names(maxChanges)
	if err != nil {
		return err
	}
	slices.Sort(olds)
	for _, name := range olds {
		if _, ok := slices.BinarySearch(names, name); ok {
			continue
		}
		low, there, err := lookup(l.low, name)
		if err == nil && there {
			err = w.deleted(l, name, low)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lookup is Lstat where nothing need be.
func lookup(d *subtree.Dir, name string) (info subtree.Info, there bool, err error) {
	if d == nil {
		return info, false, nil
	}
	info, err = d.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return info, false, nil
	}
	return info, err == nil, err
}

func (w *walk) entry(l level, name string) error {
	up, err := l.up.Lstat(name)
	if err != nil {
		return err
	}
	low, there, err := lookup(l.low, name)
	if err != nil {
		return err
	}
	c := Change{Path: join(l.path, name), Size: up.Size, perm: up.Perm, up: up, low: low, there: there}
	if there {
		c.Conflict = w.r.conflict(low)
	}
	switch up.Kind {
	case subtree.Null:
		if !there {
			return nil
		}
		return w.deleted(l, name, low)
	case subtree.Directory:
		return w.directory(l, name, c)
	case subtree.Link:
		return w.link(l, name, c)
	case subtree.File:
		return w.file(l, name, c)
	default:
		c.Kind, c.Refused = kindOf(c), "it is a device, a pipe or a socket"
		return w.add(c, join(l.place, name))
	}
}

// kindOf is Added where nothing stands, else Type.
func kindOf(c Change) Kind {
	if c.there {
		return Type
	}
	return Added
}

// replaced finds outside changes in a directory that something else takes the place of.
func (w *walk) replaced(l level, name string, c *Change) error {
	if !c.there || c.low.Kind != subtree.Directory {
		return nil
	}
	return w.within(l.low, name, c, 0)
}

func (w *walk) deleted(l level, name string, low subtree.Info) error {
	c := Change{Path: join(l.path, name), Kind: Deleted, Dir: low.Kind == subtree.Directory, low: low, there: true, Conflict: w.r.conflict(low)}
	if !c.Dir {
		c.Size = low.Size
	}
	if err := w.replaced(l, name, &c); err != nil {
		return err
	}
	return w.add(c, join(l.place, name))
}

// within looks for outside changes in directory name of d, which is to go.
func (w *walk) within(d *subtree.Dir, name string, c *Change, depth int) error {
	if depth > maxDepth {
		c.Refused = fmt.Sprintf("it is more than %d directories deep", maxDepth)
		return nil
	}
	sub, err := d.Open(name)
	if err != nil {
		c.Refused = reason(err)
		return nil // it is said of the change
	}
	defer sub.Close() //nolint:errcheck // nothing was written
	names, err := sub.Names(maxChanges)
	if err != nil {
		return err
	}
	for _, n := range names {
		info, there, err := lookup(sub, n)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		if why := w.r.conflict(info); why != "" && c.Conflict == "" {
			c.Conflict = "in it, " + n + " " + strings.TrimPrefix(why, "it ")
		}
		if info.Kind == subtree.Directory {
			if err := w.within(sub, n, c, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walk) directory(l level, name string, c Change) error {
	c.Dir, c.Size = true, 0
	place := join(l.place, name)
	next := level{path: c.Path, place: place, opaque: l.opaque, depth: l.depth + 1}
	up, err := l.up.Open(name)
	if err != nil || next.depth > maxDepth {
		c.Kind, c.Refused = kindOf(c), fmt.Sprintf("it is more than %d directories deep", maxDepth)
		if err != nil {
			c.Refused = reason(err)
		}
		return errors.Join(w.add(c, place), closeIf(up))
	}
	defer up.Close() //nolint:errcheck // nothing was written
	if why := closed(up); why != "" {
		c.Kind, c.Refused = kindOf(c), why
		if c.low.Kind == subtree.Directory {
			c.Kind = Mode
		}
		return w.add(c, place)
	}
	next.up = up
	mark, _, err := up.Attr(attrOpaque)
	if err != nil {
		return err
	}
	_, copied, err := up.Attr(attrOrigin)
	if err != nil {
		return err
	}
	next.opaque, next.marks = l.opaque || mark == "y", mark == "x"
	switch {
	case !c.there:
		c.Kind = Added
		if copied {
			c.Conflict = "it was removed or renamed since"
		}
	case c.low.Kind != subtree.Directory:
		c.Kind = Type
	default:
		if next.low, err = l.low.Open(name); err != nil {
			c.Kind, c.Refused = Type, reason(err)
			return w.add(c, place)
		}
		defer next.low.Close() //nolint:errcheck // nothing was written
		if why := closed(next.low); why != "" {
			c.Kind, c.Refused = Mode, why
			return w.add(c, place)
		}
		if (c.perm^c.low.Perm)&0o777 != 0 {
			c.Kind = Mode
			if w.done[c.Path] == begun || w.appliedIn(c.Path) {
				c.Conflict = "" // its time is that of what was applied in it
			}
		}
	}
	if c.Kind != "" {
		if err := w.add(c, place); err != nil {
			return err
		}
	}
	return w.dir(next)
}

// appliedIn reports whether something was applied in the directory at p, or begun to
// be.
func (w *walk) appliedIn(p string) bool {
	for done, what := range w.done {
		if path.Dir(done) == p && (what == begun || what == wasApplied) {
			return true
		}
	}
	return false
}

// closed says why what is in d cannot be looked at, or "": one may be allowed to list
// it and no more.
func closed(d *subtree.Dir) string {
	again, err := d.Again()
	if err != nil {
		return reason(err)
	}
	if err := again.Close(); err != nil {
		return reason(err)
	}
	return ""
}

func closeIf(d *subtree.Dir) error {
	if d == nil {
		return nil
	}
	return d.Close()
}

func (w *walk) link(l level, name string, c Change) error {
	c.Size = 0
	var err error
	if c.target, err = l.up.Readlink(name); err != nil {
		return err
	}
	c.Kind = Link
	if c.there && c.low.Kind != subtree.Link {
		c.Kind = Type
	} else if c.there {
		old, err := l.low.Readlink(name)
		if err != nil {
			return err
		}
		if old == c.target {
			return nil
		}
	}
	if leadsOut(c.Path, c.target, w.r.Workspace) {
		c.Flags = append(c.Flags, LinkOut)
	}
	if err := w.replaced(l, name, &c); err != nil {
		return err
	}
	return w.add(c, join(l.place, name))
}

func (w *walk) file(l level, name string, c Change) error {
	f, info, err := l.up.OpenFile(name)
	if err != nil {
		c.Kind, c.Refused = kindOf(c), reason(err)
		return w.add(c, join(l.place, name))
	}
	defer f.Close()
	if l.marks && info.Size == 0 {
		if _, mark, err := subtree.AttrOf(f, attrWhiteout); err != nil || mark {
			if err != nil || !c.there {
				return err
			}
			return w.deleted(l, name, c.low)
		}
	}
	switch {
	case !c.there:
		c.Kind = Added
		if err := w.vanished(l, f, &c); err != nil {
			return err
		}
	case c.low.Kind != subtree.File:
		c.Kind = Type
		if err := w.replaced(l, name, &c); err != nil {
			return err
		}
	default:
		same, err := equal(f, l.low, name, c)
		switch {
		case err != nil:
			c.Kind, c.Refused = Modified, reason(err)
		case !same:
			c.Kind = Modified
		case (c.perm^c.low.Perm)&0o777 != 0:
			c.Kind = Mode
		default:
			return nil
		}
	}
	return w.add(c, join(l.place, name))
}

// vanished finds out whether a file that is not in the lower tree was removed there.
// A file that was copied up may have been renamed in the box. It was if nothing was
// removed or made in its directory outside; else it cannot be told.
func (w *walk) vanished(l level, f *os.File, c *Change) error {
	if past := w.done[c.Path]; l.low == nil || past == begun || past == clean {
		return nil // and since then the directory was changed by us
	}
	_, copied, err := subtree.AttrOf(f, attrOrigin)
	if err != nil || !copied {
		return err
	}
	dir, err := l.low.Self()
	if err == nil && w.r.conflict(dir) != "" {
		c.Conflict = "it was renamed in the box, or removed outside since"
	}
	return err
}

// add adds c, unless something became of it already. place is where it is judged.
func (w *walk) add(c Change, place string) error {
	if len(w.out) >= maxChanges {
		return ErrTooMuch
	}
	switch w.done[c.Path] {
	case wasApplied, wasDiscarded:
		return nil
	}
	w.r.judge(&c, place)
	w.out = append(w.out, c)
	return nil
}
