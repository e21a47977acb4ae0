package review

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/subtree"
)

// What a workspace may have at most for a copy of it: it is made each time.
const (
	maxCopied = 4 << 30    // bytes of data; holes count nothing
	maxPaths  = maxChanges // files, directories and links
)

// ErrTooLarge says that a workspace is too large for a copy.
var ErrTooLarge = fmt.Errorf("the workspace has more than %d GiB or %d files, which is too much to copy", maxCopied>>30, maxPaths)

// Copy copies the workspace for a box that cannot have the overlay that r is made
// for, and makes r a review of that copy, which is at [Review.Copied]. It costs as
// much as the workspace has. because says, for people, why it is needed.
//
// Not copied are, and the box does not see: what is no file, directory or link; what
// may not be read; what another file system has; what is deeper than 512 directories.
// Nothing can be applied where that stands. Hard links become files of their own.
// Owners (as far as one may give files away), permissions without setuid and setgid,
// and modification times are kept; extended attributes are not.
//
// The error is [ErrTooLarge] where the workspace is too large. r must be in use, and
// nothing may have been done with it.
func (r *Review) Copy(ctx context.Context, because error) error {
	return r.copyAtMost(ctx, because, maxCopied)
}

func (r *Review) copyAtMost(ctx context.Context, because error, most int64) error {
	if err := r.copy(ctx, because, most); err != nil {
		err = errors.Join(err, removeDir(filepath.Join(r.dir, layers), "copy"))
		return fmt.Errorf("copying the workspace %s: %w", r.Workspace, err)
	}
	return nil
}

func (r *Review) copy(ctx context.Context, because error, most int64) (err error) {
	low, err := r.workspace()
	if err != nil {
		return err
	}
	defer low.Close() //nolint:errcheck // nothing was written through it
	sub, err := subtree.Open(filepath.Join(r.dir, layers))
	if err != nil {
		return err
	}
	defer sub.Close() //nolint:errcheck // what was written is closed
	info, err := low.Self()
	if err != nil {
		return err
	}
	if err := ownDir(sub, "copy", 0o700, info); err != nil {
		return err
	}
	top, err := sub.Open("copy")
	if err != nil {
		return err
	}
	defer top.Close() //nolint:errcheck // nothing is written any more
	c := &copier{ctx: ctx, most: most}
	if c.out, err = r.scribe(); err != nil {
		return err
	}
	err = c.tree(low, top, info)
	if err = errors.Join(err, c.out.close()); err != nil {
		return err
	}
	if err := pass(ctx, sub, c.latest); err != nil {
		return err
	}
	r.Copied, r.LeftOut = filepath.Join(r.dir, layers, "copy"), c.left
	if r.Because = because.Error(); r.Because == "" {
		r.Because = "no overlay can be had"
	}
	raw, err := encodeMeta(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(r.dir, metaFile), raw, 0o600)
}

// pass waits until the clock of the kernel's time stamps is behind latest: what the
// box changes then has another time than what we have written.
func pass(ctx context.Context, dir *subtree.Dir, latest time.Time) error {
	for {
		f, err := dir.Create("clock")
		if err != nil {
			return err
		}
		info, err := subtree.InfoOf(f)
		if err = errors.Join(err, f.Close(), dir.Remove("clock")); err != nil {
			return err
		}
		if info.Changed.After(latest) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// A copier copies one workspace.
type copier struct {
	ctx    context.Context
	out    *scribe
	most   int64 // bytes of data that may still come
	apart  bool  // the file system shares no data
	paths  int
	left   int
	latest time.Time // st_ctime of what was copied last
}

func (c *copier) tree(low, up *subtree.Dir, info subtree.Info) error {
	if err := c.note(".", &record{live: info, copied: subtree.Info{Kind: subtree.Directory, Perm: info.Perm & 0o777}}); err != nil {
		return err
	}
	if err := c.dir(low, up, "", 1); err != nil {
		return err
	}
	return up.ChmodSelf(info.Perm & 0o777)
}

func (c *copier) note(path string, rec *record) error {
	if c.paths++; c.paths > maxPaths {
		return ErrTooLarge
	}
	if rec.left != "" {
		c.left++
	}
	if rec.copied.Changed.After(c.latest) {
		c.latest = rec.copied.Changed
	}
	return c.out.write(path, rec)
}

// leave notes what is not copied, and why.
func (c *copier) leave(path string, live subtree.Info, why string) error {
	return c.note(path, &record{live: live, left: why})
}

// dir copies what is in low to up, which belongs to us and can be written to.
func (c *copier) dir(low, up *subtree.Dir, path string, depth int) error {
	names, err := low.Names(maxPaths)
	if errors.Is(err, subtree.ErrTooMany) {
		return ErrTooLarge
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := c.ctx.Err(); err != nil {
			return context.Cause(c.ctx)
		}
		info, there, err := lookup(low, name)
		if err == nil && there {
			err = c.entry(low, up, name, join(path, name), info, depth)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", Quoted(name), err)
		}
	}
	return nil
}

func (c *copier) entry(low, up *subtree.Dir, name, path string, info subtree.Info, depth int) error {
	switch info.Kind {
	case subtree.Directory:
		return c.directory(low, up, name, path, info, depth)
	case subtree.Link:
		target, err := low.Readlink(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = up.Symlink(target, name)
		}
		if err != nil {
			return err
		}
		return c.finish(up, name, path, info, digestOf([]byte(target)))
	case subtree.File:
		return c.file(low, up, name, path, info)
	default:
		return c.leave(path, info, "it is a device, a pipe or a socket")
	}
}

func (c *copier) directory(low, up *subtree.Dir, name, path string, info subtree.Info, depth int) error {
	if depth > maxDepth {
		return c.leave(path, info, fmt.Sprintf("it is more than %d directories deep", maxDepth))
	}
	from, err := low.Open(name)
	if err != nil {
		return c.leave(path, info, reason(err))
	}
	defer from.Close() //nolint:errcheck // nothing was written
	if why := closed(from); why != "" {
		return c.leave(path, info, why)
	}
	// What is made in it from now on changes its time.
	if info, err = from.Self(); err != nil {
		return err
	}
	if err := up.Mkdir(name, 0o700); err != nil {
		return err
	}
	to, err := up.Open(name)
	if err != nil {
		return err
	}
	err = c.note(path, &record{live: info, copied: subtree.Info{Kind: subtree.Directory, Perm: info.Perm & 0o777}})
	if err == nil {
		err = c.dir(from, to, path, depth+1)
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return c.dress(up, name, info)
}

// dress gives what was copied its owner, permissions and time.
func (c *copier) dress(up *subtree.Dir, name string, info subtree.Info) error {
	now, err := up.Lstat(name)
	if err != nil {
		return err
	}
	if now.UID != info.UID || now.GID != info.GID {
		if err := up.Chown(name, info.UID, info.GID); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	if info.Kind != subtree.Link {
		if err := up.Chmod(name, info.Perm&0o777); err != nil {
			return err
		}
	}
	return up.Touch(name, info.Modified)
}

// finish dresses a file or link, and notes it.
func (c *copier) finish(up *subtree.Dir, name, path string, info subtree.Info, digest string) error {
	if err := c.dress(up, name, info); err != nil {
		return err
	}
	now, err := up.Lstat(name)
	if err != nil {
		return err
	}
	return c.note(path, &record{live: info, copied: now, digest: digest})
}

// tries is how often a file is copied that is written to meanwhile. Then what was
// copied last counts, and everything outside as a change.
const tries = 3

func (c *copier) file(low, up *subtree.Dir, name, path string, info subtree.Info) error {
	for try := 1; ; try++ {
		f, opened, err := low.OpenFile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return c.leave(path, info, reason(err))
		}
		digest, stable, err := c.content(f, opened, up, name)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		if !stable && try < tries {
			if err := up.Remove(name); err != nil {
				return err
			}
			continue
		}
		if !stable {
			opened.Ino = 0
		}
		return c.finish(up, name, path, opened, digest)
	}
}

// content copies f to the new file name, and says what its digest is and whether f
// stayed as it was.
func (c *copier) content(f *os.File, info subtree.Info, up *subtree.Dir, name string) (digest string, stable bool, err error) {
	to, err := up.Create(name)
	if err != nil {
		return "", false, err
	}
	cloned := false
	if !c.apart {
		cloned, err = subtree.Clone(to, f)
		c.apart = !cloned // nor will the others be: it takes one file system for both
	}
	data := info.Data
	if err == nil && !cloned {
		data, err = subtree.Copy(to, f, info.Size, c.most)
	}
	if c.most -= data; errors.Is(err, subtree.ErrTooMuch) || c.most < 0 {
		err = ErrTooLarge
	}
	short := errors.Is(err, io.EOF)
	if short {
		err = to.Truncate(info.Size) // it became shorter meanwhile
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return "", false, err
	}
	after, err := subtree.InfoOf(f)
	if err != nil {
		return "", false, err
	}
	g, made, err := up.OpenFile(name)
	if err != nil {
		return "", false, err
	}
	defer g.Close()
	if made.Size <= maxCompare {
		digest, err = digestFile(g)
	}
	return digest, !short && after.Same(info) && made.Size == info.Size, err
}

func digestFile(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("reading it: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
