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

// A walk is one way through what a box left.
type walk struct {
	r    *Review
	kept kept
	done done
	// appliedIn are the directories in which something was applied, or begun to be:
	// their times are ours.
	appliedIn map[string]bool
	// names are how many names the files with several have in what the box left.
	names map[identity]uint64
	out   []Change
}

func newWalk(r *Review, past done, k kept) *walk {
	w := &walk{r: r, kept: k, done: past, appliedIn: map[string]bool{}, names: map[identity]uint64{}}
	for p, what := range past {
		if what == begun || what == wasApplied {
			w.appliedIn[path.Dir(p)] = true
		}
	}
	return w
}

// root adds the change of the permissions of the workspace itself.
func (w *walk) root(up, low *subtree.Dir) error {
	now, uerr := up.Self()
	info, lerr := low.Self()
	if err := errors.Join(uerr, lerr); err != nil || (now.Perm^info.Perm)&0o777 == 0 {
		return err
	}
	if c, ok := w.kept.(copied); ok && (now.Perm^c.m.at["."].copied.Perm)&0o777 == 0 {
		return nil // it was changed outside
	}
	c := Change{Path: ".", Kind: Mode, Dir: true, perm: now.Perm, low: info, there: true, up: now}
	if !w.appliedIn["."] {
		var err error
		if c.Conflict, err = w.kept.outside(".", nil, "", info, true); err != nil {
			return err
		}
	}
	return w.add(c, "")
}

// checkLinks refuses files that have a name beside those that the box left: their
// content may be that of a file which is none of its business.
func (w *walk) checkLinks() {
	for i := range w.out {
		c := &w.out[i]
		if here := w.names[identity{c.up.Dev, c.up.Ino}]; c.up.Kind == subtree.File && c.up.Links > max(here, 1) && c.Refused == "" {
			c.Refused = fmt.Sprintf("it is a hard link of which %d names lie elsewhere, so it may be another file's content; copy it instead", c.up.Links-here)
		}
	}
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
	entries, err := w.kept.entries(l)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	l.place = repository(l)
	for _, e := range entries {
		if e.up.Kind == subtree.File && e.up.Links > 1 && !e.gone {
			w.names[identity{e.up.Dev, e.up.Ino}]++
		}
		if e.same {
			continue
		}
		if err := w.entry(l, e); err != nil {
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

func (w *walk) entry(l level, e entry) error {
	low, there, err := lookup(l.low, e.name)
	if err != nil {
		return err
	}
	c := Change{Path: join(l.path, e.name), Size: e.up.Size, perm: e.up.Perm, up: e.up, low: low, there: there}
	if e.gone && !there {
		return nil
	}
	if there || w.done[c.Path] != begun { // else we have begun to put something else there
		if c.Conflict, err = w.kept.outside(c.Path, l.low, e.name, low, there); err != nil {
			return err
		}
	}
	if why := w.kept.unseen(c.Path); why != "" {
		c.Kind, c.Dir, c.Refused = kindOf(c), e.up.Kind == subtree.Directory, why
		return w.add(c, join(l.place, e.name))
	}
	switch {
	case e.gone:
		return w.deleted(l, e.name, c)
	case e.up.Kind == subtree.Directory:
		return w.directory(l, e, c)
	case e.up.Kind == subtree.Link:
		return w.link(l, e.name, c)
	case e.up.Kind == subtree.File:
		return w.file(l, e.name, c)
	default:
		c.Kind, c.Refused = kindOf(c), "it is a device, a pipe or a socket, which are never applied"
		return w.add(c, join(l.place, e.name))
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
	return w.within(l.low, name, c.Path, c, 0)
}

func (w *walk) deleted(l level, name string, c Change) error {
	c.Kind, c.Dir, c.Size, c.perm, c.up = Deleted, c.low.Kind == subtree.Directory, 0, 0, subtree.Info{}
	if !c.Dir {
		c.Size = c.low.Size
	}
	if err := w.replaced(l, name, &c); err != nil {
		return err
	}
	return w.add(c, join(l.place, name))
}

// within looks for outside changes in directory name of d, at path, which is to go.
func (w *walk) within(d *subtree.Dir, name, path string, c *Change, depth int) error {
	if depth > maxDepth {
		c.Refused = tooDeep
		return nil
	}
	sub, err := d.Open(name)
	if err != nil {
		c.Refused = inWorkspace + reason(err)
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
		at := join(path, n)
		why, err := w.kept.outside(at, sub, n, info, true)
		switch {
		case err != nil:
			return err
		case why != "" && c.Conflict == "":
			c.Conflict = "in it, " + Quoted(n) + ": " + why
		}
		if why := w.kept.unseen(at); why != "" {
			c.Refused = "in it, " + Quoted(n) + ": " + why
			return nil
		}
		if info.Kind == subtree.Directory {
			if err := w.within(sub, n, at, c, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// inWorkspace begins a reason that is about what stands in the workspace.
const inWorkspace = "in the workspace, "

var tooDeep = fmt.Sprintf("it is more than %d directories deep", maxDepth)

func (w *walk) directory(l level, e entry, c Change) error {
	c.Dir, c.Size = true, 0
	place := join(l.place, e.name)
	next := level{path: c.Path, place: place, opaque: l.opaque, depth: l.depth + 1}
	up, err := l.up.Open(e.name)
	if err != nil || next.depth > maxDepth {
		c.Kind, c.Refused = kindOf(c), tooDeep
		if err != nil {
			c.Refused = reason(err)
		}
		return errors.Join(w.add(c, place), closeIf(up))
	}
	defer up.Close() //nolint:errcheck // nothing was written
	next.up = up
	taken, odd, err := w.kept.descend(l, up, &next)
	if err != nil {
		return err
	}
	if why := closed(up); why != "" {
		odd = why
	}
	if odd != "" {
		c.Kind, c.Refused = kindOf(c), odd
		if c.low.Kind == subtree.Directory {
			c.Kind = Mode
		}
		return w.add(c, place)
	}
	switch {
	case !c.there:
		c.Kind = Added
		if taken {
			c.Conflict = "it was removed or renamed outside since"
		}
	case c.low.Kind != subtree.Directory:
		c.Kind = Type
	default:
		if next.low, err = l.low.Open(e.name); err != nil {
			c.Kind, c.Refused = Type, inWorkspace+reason(err)
			return w.add(c, place)
		}
		defer next.low.Close() //nolint:errcheck // nothing was written
		if why := closed(next.low); why != "" {
			c.Kind, c.Refused = Mode, inWorkspace+why
			return w.add(c, place)
		}
		if (c.perm^c.low.Perm)&0o777 != 0 && !e.samePerm {
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
	f, _, err := l.up.OpenFile(name)
	if err != nil {
		c.Kind, c.Refused = kindOf(c), reason(err)
		return w.add(c, join(l.place, name))
	}
	defer f.Close()
	if c.Refused, err = w.kept.file(f); err != nil {
		return err
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
			c.Kind, c.Refused = Modified, inWorkspace+reason(err)
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

// vanished finds out whether a file that is not in the workspace was removed there.
func (w *walk) vanished(l level, f *os.File, c *Change) error {
	if past := w.done[c.Path]; past == begun || past == clean {
		return nil // and since then the directory was changed by us
	}
	why, err := w.kept.vanished(l, f)
	if why != "" {
		c.Conflict = why
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
