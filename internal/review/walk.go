package review

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"ringfence/internal/sys/subtree"
)

// A walk is one way through an upper tree.
type walk struct {
	r    *Review
	done done
	// appliedIn are the directories in which something was applied, or begun to be:
	// their times are ours.
	appliedIn map[string]bool
	out       []Change
}

func newWalk(r *Review, past done) *walk {
	w := &walk{r: r, done: past, appliedIn: map[string]bool{}}
	for p, what := range past {
		if what == begun || what == wasApplied {
			w.appliedIn[path.Dir(p)] = true
		}
	}
	return w
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
			if w.done[c.Path] == begun || w.appliedIn[c.Path] {
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
