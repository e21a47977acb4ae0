// Package review keeps what a box changed in its workspace apart from the workspace,
// until a person has looked at it and said what becomes of it.
//
// The box works on an overlay of the workspace (the lower tree) and a directory of
// ours (the upper tree), which the tier mounts; here only directories are looked at.
// A Review is such an upper tree with what is known of its beginning. Package review
// mounts nothing, runs nothing, and asks nobody.
//
// The upper tree is the work of whoever was in the box. The lower tree is the
// person's, who goes on working in it.
//
// Invariants:
//
//	R1  Nothing outside the workspace is written, and no link is followed, whatever
//	    the upper tree holds: both trees are walked by package subtree.
//	R2  What was changed outside since the review began is not overwritten unless the
//	    person forces it. What is in doubt counts as changed (see [Change.Conflict]).
//	R3  Files that this machine runs or obeys later are applied only where they were
//	    named one by one, or all such files were asked for.
//	R4  Nothing that is applied is setuid or setgid, a device, a pipe or a socket.
//	R5  A file is replaced whole or not at all. An apply that was interrupted can be
//	    repeated: what it has done is no change any more.
//	R6  Looking costs as much as was changed, not as much as there is.
package review

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act/places"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/subtree"
)

var (
	// ErrNoReview says that no review has that id.
	ErrNoReview = errors.New("no such review")
	// ErrRunning says that the box of the review still runs, or that somebody else is
	// applying it.
	ErrRunning = errors.New("the review is in use: its box still runs, or it is being applied")
	// ErrWorkspace says that the workspace is not the directory any more that it was
	// when the review began.
	ErrWorkspace = errors.New("the workspace is not there, or is another directory now")
	// ErrClock says that the clock of this machine was set back, so that nobody can
	// tell what was changed since the review began.
	ErrClock = errors.New("the clock was set back since the review began, so outside changes cannot be told")
)

// A Review is what one box did. Its fields do not change, but by [Review.Copy].
type Review struct {
	ID          string
	Workspace   string // absolute, without links
	Session     string // of the engine, "" if there was none
	Began       time.Time
	Upper, Work string // directories of the overlay, in one directory of their own
	// Copied is the directory of a copy of the workspace, "" while the changes are
	// those of the overlay; Because says why it was needed, and LeftOut is how much
	// the copy has not. [Review.Copy] sets them.
	Copied  string
	Because string
	LeftOut int
	// Led are paths in the workspace that a link or configuration in it leads to from a
	// place that runs later. Who looks at changes sets them: here no file is read but
	// those that were changed.
	Led []Led

	dir  string
	root identity // of the workspace
	uid  int      // owner of the workspace, and so of what is new in it
	gid  int
	home string    // of the person, for what runs later
	lock *ipc.Lock // held while it is in use
}

// A Led is a path, with what leads there for people: "core.hooksPath in /w/.git/config".
// All beneath it runs later too.
type Led struct{ Path, By string }

// Options say what a review is of. All but Session are required.
type Options struct {
	Home      string // of the installation
	Person    string // home directory of the person, without links; "" if not known
	Workspace string // absolute, without links
	Session   string
}

const (
	metaFile     = "meta.json"
	lockFile     = "lock"
	doneFile     = "done"
	manifestFile = "manifest" // of a copy
	layers       = "layers"   // the parent of the two trees: a box of root gets it as one mount
)

// New begins a review: the directories for an overlay of o.Workspace. It is in use
// until Close, or until this process ends.
func New(o Options) (*Review, error) {
	ws, err := subtree.Open(o.Workspace)
	if err != nil {
		return nil, fmt.Errorf("beginning a review of %s: %w", o.Workspace, err)
	}
	defer ws.Close() //nolint:errcheck // nothing was written
	info, err := ws.Self()
	if err != nil {
		return nil, fmt.Errorf("beginning a review of %s: %w", o.Workspace, err)
	}
	r := &Review{Workspace: o.Workspace, Session: o.Session, root: identity{info.Dev, info.Ino}, uid: info.UID, gid: info.GID, home: o.Person}
	all := paths.Reviews(o.Home)
	if err = os.MkdirAll(all, 0o700); err == nil {
		all, err = filepath.EvalSymlinks(all)
	}
	if err == nil && places.Beneath(all, o.Workspace) {
		err = fmt.Errorf("reviews are kept in %s, which is in it: name a smaller workspace, or set RINGFENCE_HOME to a directory outside", all)
	}
	if err == nil {
		err = r.make(all, info)
	}
	if err != nil {
		return nil, fmt.Errorf("beginning a review of %s: %w", o.Workspace, err)
	}
	return r, nil
}

// make makes the files of r below all.
func (r *Review) make(all string, ws subtree.Info) (err error) {
	if r.dir, r.ID, err = newDir(all); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close(), removeDir(all, r.ID))
		}
	}()
	if r.lock, err = ipc.NewLock(filepath.Join(r.dir, lockFile)); err != nil {
		return err
	}
	r.place()
	// The box's root directory gets mode and owner of the upper one. A box of root
	// runs as the owner of the workspace.
	top, err := subtree.Open(r.dir)
	if err != nil {
		return err
	}
	defer top.Close() //nolint:errcheck // nothing was written through it
	if err := ownDir(top, layers, 0o700, ws); err != nil {
		return err
	}
	sub, err := top.Open(layers)
	if err != nil {
		return err
	}
	defer sub.Close() //nolint:errcheck // nothing was written through it
	if err := errors.Join(ownDir(sub, "work", 0o700, ws), ownDir(sub, "upper", ws.Perm&0o777, ws)); err != nil {
		return err
	}
	// The clock of the kernel's time stamps, which lags behind that of time.Now.
	began, err := sub.Lstat("upper")
	if err != nil {
		return err
	}
	r.Began = began.Changed.UTC()
	raw, err := encodeMeta(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(r.dir, metaFile), raw, 0o600)
}

func (r *Review) place() {
	r.Upper, r.Work = filepath.Join(r.dir, layers, "upper"), filepath.Join(r.dir, layers, "work")
}

// Left is the directory in which the box left what it did.
func (r *Review) Left() string {
	if r.Copied != "" {
		return r.Copied
	}
	return r.Upper
}

// How is the way in which the changes are kept apart: "overlay" or "copy".
func (r *Review) How() string {
	if r.Copied != "" {
		return "copy"
	}
	return "overlay"
}

// ownDir makes a directory that belongs to whom ws belongs to.
func ownDir(in *subtree.Dir, name string, perm uint32, ws subtree.Info) error {
	if err := in.Mkdir(name, perm); err != nil {
		return err
	}
	i, err := in.Lstat(name)
	if err != nil || i.UID == ws.UID && i.GID == ws.GID {
		return err
	}
	if err := in.Chown(name, ws.UID, ws.GID); err != nil {
		return fmt.Errorf("the workspace belongs to user %d and group %d: %w", ws.UID, ws.GID, err)
	}
	return nil
}

// newDir makes a directory with a fresh id as its name.
func newDir(all string) (dir, id string, err error) {
	for range 100 {
		var random [5]byte
		if _, err := rand.Read(random[:]); err != nil {
			return "", "", fmt.Errorf("choosing an id: %w", err)
		}
		id = "r-" + strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))[:6]
		dir = filepath.Join(all, id)
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return dir, id, err
		}
	}
	return "", "", errors.New("choosing an id: all are taken")
}

// Close says that the box has ended, or that nobody works on r any more.
func (r *Review) Close() error {
	if r.lock == nil {
		return nil
	}
	k := r.lock
	r.lock = nil
	return k.Unlock()
}

// List returns the reviews of an installation, oldest first, none of them in use by
// the caller. What cannot be read is left out and joined into the error.
func List(home, person string) ([]*Review, error) {
	entries, err := os.ReadDir(paths.Reviews(home))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing reviews: %w", err)
	}
	var all []*Review
	var errs []error
	for _, e := range entries {
		if !validID(e.Name()) {
			continue
		}
		r, err := read(home, person, e.Name())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b *Review) int { return a.Began.Compare(b.Began) })
	return all, errors.Join(errs...)
}

// Open takes the review id into use, which is [ErrRunning] while another has it.
func Open(home, person, id string) (*Review, error) {
	r, err := read(home, person, id)
	if err != nil {
		return nil, err
	}
	if r.lock, err = ipc.NewLock(filepath.Join(r.dir, lockFile)); err != nil {
		if errors.Is(err, ipc.ErrLocked) {
			err = ErrRunning
		}
		return nil, fmt.Errorf("opening review %s: %w", id, err)
	}
	return r, nil
}

// Running reports whether r is in use by another process.
func (r *Review) Running() bool {
	if r.lock != nil {
		return false
	}
	k, err := ipc.NewLock(filepath.Join(r.dir, lockFile))
	if err != nil {
		return errors.Is(err, ipc.ErrLocked)
	}
	return k.Unlock() != nil
}

func read(home, person, id string) (*Review, error) {
	if !validID(id) {
		return nil, fmt.Errorf("%w: %q", ErrNoReview, id)
	}
	all, err := filepath.EvalSymlinks(paths.Reviews(home))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoReview, id)
	}
	if err != nil {
		return nil, fmt.Errorf("reading review %s: %w", id, err)
	}
	dir := filepath.Join(all, id)
	raw, err := os.ReadFile(filepath.Join(dir, metaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoReview, id)
	}
	if err != nil {
		return nil, fmt.Errorf("reading review %s: %w", id, err)
	}
	r, err := decodeMeta(raw)
	if err == nil && r.ID != id {
		err = fmt.Errorf("it says that it is %s", r.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("reading review %s: %w", id, err)
	}
	r.dir, r.home = dir, person
	r.place()
	if r.Because != "" {
		r.Copied = filepath.Join(dir, layers, "copy")
	}
	return r, nil
}

// Remove gives up r and all that is in it.
func (r *Review) Remove() error {
	// Without its description it is no review any more, also if the rest is interrupted.
	err := os.Remove(filepath.Join(r.dir, metaFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing review %s: %w", r.ID, err)
	}
	if err := errors.Join(removeDir(filepath.Dir(r.dir), r.ID), r.Close()); err != nil {
		return fmt.Errorf("removing review %s: %w", r.ID, err)
	}
	return nil
}

func removeDir(all, id string) error {
	d, err := subtree.Open(all)
	if err != nil {
		return err
	}
	return errors.Join(d.RemoveAll(id), d.Close())
}

// roots are those that say what runs later.
func (r *Review) roots() places.Roots { return places.Roots{Home: r.home, Workspace: r.Workspace} }

// workspace opens the workspace, if it is still the same.
func (r *Review) workspace() (*subtree.Dir, error) {
	d, err := subtree.Open(r.Workspace)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWorkspace, err)
	}
	i, err := d.Self()
	if err == nil && (identity{i.Dev, i.Ino}) != r.root {
		err = fmt.Errorf("%w: %s", ErrWorkspace, r.Workspace)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}
