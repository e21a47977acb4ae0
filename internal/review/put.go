package review

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"ringfence/internal/sys/subtree"
)

// fatal reports whether err would meet every other change too.
func fatal(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE, ErrMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// blocked reports whether err says that something else than a directory is in the way.
func blocked(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// temporary is the name under which what belongs at path is made first, in the same
// directory. It is the same each time, so an apply that is repeated clears up after
// the one that was interrupted.
func (r *Review) temporary(path string) string {
	sum := sha256.Sum256([]byte(r.ID + "\x00" + path))
	return ".ringfence-" + r.ID + "-" + hex.EncodeToString(sum[:8])
}

// aside is the name under which what stood at path goes, where something else takes its
// place: no path ends with a slash, so it is one of its own.
func (r *Review) aside(path string) string { return r.temporary(path + "/") }

// A spot is a directory of the workspace that can be written to until Close.
type spot struct {
	*subtree.Dir
	perm   uint32
	opened bool
}

// open lets the owner of d write to it. The box did the same to change what is in it.
func open(d *subtree.Dir) (*spot, error) {
	i, err := d.Self()
	if err != nil {
		return nil, err
	}
	s := &spot{Dir: d, perm: i.Perm, opened: i.Perm&0o300 != 0o300}
	if s.opened {
		err = d.ChmodSelf(i.Perm | 0o300)
	}
	return s, err
}

// Close gives the directory its permissions back.
func (s *spot) Close() error {
	var err error
	if s.opened {
		err = s.ChmodSelf(s.perm)
	}
	return errors.Join(err, s.Dir.Close())
}

// at opens the directory of the workspace that c belongs in, where temp is free.
func (a *applier) at(c Change) (dir *spot, name, temp string, err error) {
	d, name, err := chain(a.low, c.Path)
	if err != nil {
		return nil, "", "", missing(err)
	}
	if dir, err = open(d); err != nil {
		return nil, "", "", errors.Join(err, d.Close())
	}
	temp = a.r.temporary(c.Path)
	if err = removeTree(dir.Dir, temp, 0); err != nil {
		return nil, "", "", errors.Join(err, dir.Close())
	}
	return dir, name, temp, nil
}

// owned gives temp the owner that c had, or that of the workspace.
func (a *applier) owned(dir *subtree.Dir, temp string, c Change) error {
	uid, gid := a.r.uid, a.r.gid
	if c.there && c.low.Kind != subtree.Other {
		uid, gid = c.low.UID, c.low.GID
	}
	i, err := dir.Lstat(temp)
	if err != nil || i.UID == uid && i.GID == gid {
		return err
	}
	err = dir.Chown(temp, uid, gid)
	if errors.Is(err, fs.ErrPermission) && i.UID == uid {
		return nil // one's own file, in another group than before: as any editor leaves it
	}
	return err
}

// special are the bits beside permissions that a directory keeps, and never gets.
const special = 0o3000

func (c Change) mode() uint32 {
	if c.there && c.Dir && c.low.Kind == subtree.Directory {
		return c.perm&0o777 | c.low.Perm&special
	}
	return c.perm & 0o777
}

// makeDir makes a directory that its owner can write to, whatever its mode will be.
func (a *applier) makeDir(c Change) (err error) {
	dir, name, temp, err := a.at(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := dir.Mkdir(temp, c.mode()|0o700); err != nil {
		return err
	}
	if err := a.owned(dir.Dir, temp, c); err != nil {
		return errors.Join(err, dir.RemoveDir(temp))
	}
	if _, there, err := lookup(dir.Dir, name); err != nil || there {
		if err == nil {
			err = a.discard(dir.Dir, name, a.r.aside(c.Path), c)
		}
		if err != nil {
			return errors.Join(err, dir.RemoveDir(temp))
		}
	}
	if err := dir.RenameNew(temp, name); err != nil {
		return errors.Join(err, dir.RemoveDir(temp))
	}
	return nil
}

// put makes a file or a link, or gives a file its mode.
func (a *applier) put(c Change) (err error) {
	if c.Kind == Mode {
		return a.setMode(c)
	}
	dir, name, temp, err := a.at(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if c.up.Kind == subtree.Link {
		err = dir.Symlink(c.target, temp)
	} else {
		err = a.fill(dir.Dir, temp, c)
	}
	if err == nil {
		err = a.owned(dir.Dir, temp, c)
	}
	if err == nil && c.up.Kind == subtree.File {
		// Only now: a change of owner takes bits away, and a mode must not be given
		// to what belongs to somebody else.
		err = errors.Join(dir.Chmod(temp, c.mode()), dir.Touch(temp, c.up.Modified))
	}
	if err == nil && c.there && c.low.Kind == subtree.Directory {
		err = a.discard(dir.Dir, name, a.r.aside(c.Path), c)
	}
	if err == nil {
		err = a.settle(dir.Dir, temp, name, c)
	}
	if err != nil {
		if rerr := dir.Remove(temp); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

// settle gives temp the name. What stands there must be what was there when the changes
// were read: filling a file takes time, in which somebody may have written there.
func (a *applier) settle(dir *subtree.Dir, temp, name string, c Change) error {
	switch {
	case a.force:
		return dir.Rename(temp, name)
	case !c.there || c.low.Kind == subtree.Directory:
		err := dir.RenameNew(temp, name)
		if errors.Is(err, fs.ErrExist) {
			err = &changedError{"it was made outside just now"}
		}
		return err
	}
	err := dir.Exchange(temp, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &changedError{"it was removed outside just now"}
	case errors.Is(err, syscall.EINVAL): // the file system cannot
		if err := a.unchanged(c, false); err != nil {
			return err
		}
		return dir.Rename(temp, name)
	case err != nil:
		return err
	}
	old, err := dir.Lstat(temp)
	if err == nil && !untouched(old, c.low) {
		err = &changedError{"it was changed outside just now"}
	}
	if err != nil {
		return errors.Join(err, dir.Exchange(temp, name))
	}
	return dir.Remove(temp)
}

// untouched reports whether old, which we have renamed, is else what low says: renaming
// changes st_ctime.
func untouched(old, low subtree.Info) bool {
	old.Changed = low.Changed
	return old.Same(low) && old.Kind == low.Kind && old.Perm == low.Perm && old.UID == low.UID && old.GID == low.GID
}

// fill makes the file temp with the content that the box left.
func (a *applier) fill(dir *subtree.Dir, temp string, c Change) (err error) {
	from, name, err := chain(a.up, c.Path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMoved, err)
	}
	defer from.Close() //nolint:errcheck // nothing was written
	f, info, err := from.OpenFile(name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMoved, err)
	}
	defer f.Close()
	to, err := dir.Create(temp)
	if err != nil {
		return err
	}
	_, err = subtree.Copy(to, f, info.Size, info.Size)
	err = errors.Join(err, to.Close())
	if err != nil {
		return err
	}
	after, err := subtree.InfoOf(f)
	if err == nil && (!after.Same(info) || !after.Same(c.up)) {
		return ErrMoved
	}
	return err
}

func (a *applier) setMode(c Change) (err error) {
	if c.Path == "." {
		return a.low.ChmodSelf(c.mode())
	}
	dir, name, err := chain(a.low, c.Path)
	if err != nil {
		return missing(err)
	}
	return errors.Join(dir.Chmod(name, c.mode()), dir.Close())
}

// remove removes what the box deleted: at once, as far as its name goes.
func (a *applier) remove(c Change) error {
	dir, name, temp, err := a.at(c)
	if err != nil {
		return err
	}
	return errors.Join(a.discard(dir.Dir, name, temp, c), dir.Close())
}

// discard removes name, which c is about, by way of temp. Moving a directory that may
// not be written to takes no right where it stays in its parent.
func (a *applier) discard(dir *subtree.Dir, name, temp string, c Change) error {
	if err := dir.RenameNew(name, temp); err != nil {
		return err
	}
	old, err := dir.Lstat(temp)
	same := untouched(old, c.low) || old.Kind == subtree.Directory && old.Ino == c.low.Ino && old.Dev == c.low.Dev
	if err == nil && !a.force && !same {
		err = &changedError{"it was changed outside just now"}
	}
	if err != nil {
		return errors.Join(err, dir.RenameNew(temp, name))
	}
	return removeTree(dir, temp, 0)
}

// removeTree removes name, with what is in it, from the deepest on: who interrupts it
// can have it repeated.
func removeTree(dir *subtree.Dir, name string, depth int) error {
	info, there, err := lookup(dir, name)
	if err != nil || !there {
		return err
	}
	if info.Kind != subtree.Directory {
		return dir.Remove(name)
	}
	if depth > maxDepth {
		return fmt.Errorf("it is more than %d directories deep", maxDepth)
	}
	sub, err := dir.Open(name)
	if err == nil && info.Perm&0o300 != 0o300 || errors.Is(err, fs.ErrPermission) {
		// Whoever deleted it in the box had the same to do.
		if err = errors.Join(closeIf(sub), dir.Chmod(name, info.Perm|0o700)); err == nil {
			sub, err = dir.Open(name)
		}
	}
	if err != nil {
		return err
	}
	names, err := sub.Names(maxChanges)
	for _, n := range names {
		if err == nil {
			err = removeTree(sub, n, depth+1)
		}
	}
	if err = errors.Join(err, sub.Close()); err != nil {
		return err
	}
	return dir.RemoveDir(name)
}
