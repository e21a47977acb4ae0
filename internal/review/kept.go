package review

import (
	"errors"
	"os"
	"slices"

	"ringfence/internal/sys/subtree"
)

// A kept is one way in which what a box did is kept apart. All ways give the same
// changes: there is one suite of cases for them.
type kept interface {
	// entries returns what the box may have changed in the directory l, as far as
	// that can be told without looking into files that were not touched, in no order.
	entries(l level) ([]entry, error)
	// descend says of directory up, which is next, what counts for what is in it.
	// taken says that it was made from one that the workspace had; odd, why nothing
	// of it can be applied.
	descend(l level, up *subtree.Dir, next *level) (taken bool, odd string, err error)
	// file says of an open file why it cannot be applied, or "".
	file(f *os.File) (odd string, err error)
	// outside says what was changed outside since the review began at path, which is
	// name in dir; low is what stands there now, if there is anything.
	outside(path string, dir *subtree.Dir, name string, low subtree.Info, there bool) (why string, err error)
	// unseen says why the box did not see what stands at path, or "".
	unseen(path string) string
	// vanished says, of a file that is not in the workspace, why it may have been
	// removed there, or "".
	vanished(l level, f *os.File) (why string, err error)
}

// An entry is one name in a directory that a box may have changed.
type entry struct {
	name string
	up   subtree.Info // as the box left it, unless it is gone
	gone bool         // the box removed it
	same bool         // it was not changed
	// samePerm says that the permissions of a directory were not changed.
	samePerm bool
}

// kept returns the way of r.
func (r *Review) kept() (kept, error) {
	if r.Copied == "" {
		return overlaid{r}, nil
	}
	m, err := r.manifest()
	if err != nil {
		return nil, err
	}
	return copied{r, m}, nil
}

// overlaid is an overlay: the upper tree has nothing but changes, and marks of what
// is gone.
type overlaid struct{ r *Review }

// Names of the extended attributes that an overlay keeps in its upper tree when it is
// mounted with the option userxattr (Documentation/filesystems/overlayfs.rst). A
// program in the box cannot set them: the overlay refuses or renames its own.
const (
	attrOpaque   = "user.overlay.opaque"   // "y": nothing of the lower directory shows; "x": see attrWhiteout
	attrWhiteout = "user.overlay.whiteout" // an empty file that marks a deletion, in a directory that is opaque "x"
	attrOrigin   = "user.overlay.origin"   // was copied from the lower tree, perhaps from another name
)

// foreign are those that refer to the content of other files. Ours makes none of them.
var foreign = [...]string{"user.overlay.redirect", "user.overlay.metacopy"}

func odd(f *os.File) (string, error) {
	for _, attr := range foreign {
		if _, there, err := subtree.AttrOf(f, attr); err != nil || there {
			return "it refers to another file (" + attr + "), which no box of ours can do", err
		}
	}
	return "", nil
}

func (o overlaid) entries(l level) ([]entry, error) {
	names, err := l.up.Names(maxChanges)
	if err != nil {
		return nil, err
	}
	all := make([]entry, 0, len(names))
	for _, name := range names {
		e := entry{name: name}
		if e.up, err = l.up.Lstat(name); err != nil {
			return nil, err
		}
		switch {
		case e.up.Kind == subtree.Null:
			e.gone = true
		case l.marks && e.up.Kind == subtree.File && e.up.Size == 0:
			if e.gone, err = marked(l.up, name); err != nil {
				return nil, err
			}
		}
		all = append(all, e)
	}
	if !l.opaque || l.low == nil {
		return all, nil
	}
	// What the box left out of a directory that it made anew is deleted.
	olds, err := l.low.Names(maxChanges)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range olds {
		if _, ok := slices.BinarySearch(names, name); !ok {
			all = append(all, entry{name: name, gone: true})
		}
	}
	return all, nil
}

// marked reports whether an empty file marks a deletion. One that cannot be opened
// does not.
func marked(up *subtree.Dir, name string) (bool, error) {
	f, _, err := up.OpenFile(name)
	if err != nil {
		return false, nil //nolint:nilerr // it is said of the change
	}
	_, mark, err := subtree.AttrOf(f, attrWhiteout)
	return mark, errors.Join(err, f.Close())
}

func (o overlaid) descend(l level, up *subtree.Dir, next *level) (taken bool, why string, err error) {
	for _, attr := range foreign {
		if _, there, err := up.Attr(attr); err != nil || there {
			return false, "it refers to another directory (" + attr + "), which no box of ours can do", err
		}
	}
	mark, _, err := up.Attr(attrOpaque)
	if err != nil {
		return false, "", err
	}
	next.opaque, next.marks = l.opaque || mark == "y", mark == "x"
	_, taken, err = up.Attr(attrOrigin)
	return taken, "", err
}

func (overlaid) file(f *os.File) (string, error) { return odd(f) }

func (o overlaid) outside(_ string, _ *subtree.Dir, _ string, low subtree.Info, there bool) (string, error) {
	if !there {
		return "", nil
	}
	return o.r.conflict(low), nil
}

func (overlaid) unseen(string) string { return "" }

// A file that was copied up may have been renamed in the box. It was if nothing was
// removed or made in its directory outside; else it cannot be told.
func (o overlaid) vanished(l level, f *os.File) (string, error) {
	if l.low == nil {
		return "", nil
	}
	_, taken, err := subtree.AttrOf(f, attrOrigin)
	if err != nil || !taken {
		return "", err
	}
	dir, err := l.low.Self()
	if err == nil && o.r.conflict(dir) != "" {
		return "it was renamed in the box, or removed outside since", nil
	}
	return "", err
}

// copied is a copy: what is as it was copied was not changed. Nothing in it is a mark
// of anything: the box could make any.
type copied struct {
	r *Review
	m *manifest
}

func (c copied) entries(l level) ([]entry, error) {
	names, err := l.up.Names(maxChanges)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	all := make([]entry, 0, len(names))
	for _, name := range names {
		e := entry{name: name}
		if e.up, err = l.up.Lstat(name); err != nil {
			return nil, err
		}
		was := c.m.at[join(l.path, name)]
		if was != nil && was.left == "" {
			e.samePerm = e.up.Perm&0o777 == was.copied.Perm&0o777
			if e.same, err = was.untouched(l.up, name, e.up); err != nil {
				return nil, err
			}
		}
		all = append(all, e)
	}
	for _, name := range c.m.in[l.path] {
		if _, ok := slices.BinarySearch(names, name); !ok && c.m.at[join(l.path, name)].left == "" {
			all = append(all, entry{name: name, gone: true})
		}
	}
	return all, nil
}

// untouched reports whether name in up, which is now as up says, is what was copied:
// by what the system says of it, and only where that differs by its content.
func (rec *record) untouched(up *subtree.Dir, name string, now subtree.Info) (bool, error) {
	was := rec.copied
	switch {
	case now.Kind != was.Kind || now.Kind == subtree.Directory:
		return false, nil
	case now.Same(was):
		return true, nil
	case now.Size != was.Size || rec.digest == "":
		return false, nil
	case now.Kind == subtree.Link:
		target, err := up.Readlink(name)
		return digestOf([]byte(target)) == rec.digest, err
	case now.Perm != was.Perm:
		return false, nil
	}
	same, err := hasDigest(up, name, rec.digest)
	if err != nil {
		return false, nil //nolint:nilerr // it is said of the change
	}
	return same, nil
}

func hasDigest(dir *subtree.Dir, name, digest string) (bool, error) {
	f, info, err := dir.OpenFile(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info.Size > maxCompare || digest == "" {
		return false, nil
	}
	got, err := digestFile(f)
	return got == digest, err
}

func (copied) descend(level, *subtree.Dir, *level) (bool, string, error) { return false, "", nil }

func (copied) file(*os.File) (string, error) { return "", nil }

func (c copied) outside(path string, dir *subtree.Dir, name string, low subtree.Info, there bool) (string, error) {
	was := c.m.at[path]
	switch {
	case was == nil && there:
		return "it was made outside since the workspace was copied", nil
	case was == nil || !there && dir == nil: // it is said of the directory
		return "", nil
	case !there:
		return "it was removed or renamed outside since", nil
	case was.live.Ino == 0:
		return "it was changed outside while the workspace was copied", nil
	case low.Kind != was.live.Kind || low.Perm != was.live.Perm || low.UID != was.live.UID || low.GID != was.live.GID || !low.Same(was.live):
		return changedAt(low), nil
	case low.Kind != subtree.File || c.r.conflict(low) == "":
		return "", nil
	}
	// It was changed so shortly before it was copied that the time of another change
	// may be the same.
	same, err := hasDigest(dir, name, was.digest)
	if err != nil {
		return "it was changed outside while the workspace was copied: " + reason(err), nil
	}
	if !same {
		return changedAt(low), nil
	}
	return "", nil
}

func (c copied) unseen(path string) string {
	if was := c.m.at[path]; was != nil && was.left != "" {
		return "what stands there is not in the copy that the box worked on: " + was.left
	}
	return ""
}

// vanished is what outside has said already.
func (copied) vanished(level, *os.File) (string, error) { return "", nil }
