package review

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"ringfence/internal/sys/subtree"
)

// ErrNoChange says that a path which was named has no change, nor has anything in it.
var ErrNoChange = errors.New("no change there")

// ErrMoved says that a file of the upper tree was changed while it was applied: the
// box, or something else that reaches it, still runs.
var ErrMoved = errors.New("it was changed while it was being applied")

// A Selection says which changes are meant.
type Selection struct {
	// Paths are those of changes, or of directories that stand for all in them; none
	// stands for all changes.
	Paths []string
	// RunsLater takes files that this machine runs later too. Otherwise only those are
	// taken whose own path is in Paths.
	RunsLater bool
	// Force overwrites what was changed outside.
	Force bool
}

// An Outcome says what became of the changes that were meant.
type Outcome struct {
	Applied   []Change
	Conflicts []Change // see [Change.Conflict]; not applied
	Held      []Change // they run later and were not named; not applied
	Refused   []Change // see [Change.Refused]; not applied
	Left      int      // changes that are still to be applied or discarded, these among them
}

// Apply makes the workspace as the box left it, as far as s says. Parents that are
// needed come with what is in them. Files get the owner that the one before them has,
// else that of the workspace; extended attributes are not applied.
//
// On error what was done until then is in the Outcome. r must be in use.
func (r *Review) Apply(s Selection) (Outcome, error) {
	out, err := r.apply(s)
	if err != nil {
		return out, fmt.Errorf("applying review %s: %w", r.ID, err)
	}
	return out, nil
}

func (r *Review) apply(s Selection) (out Outcome, err error) {
	all, err := r.changes()
	if err != nil {
		return out, err
	}
	todo, err := choose(all, s, &out)
	if err != nil {
		return out, err
	}
	out.Left = len(all)
	a, err := r.begin(all, todo)
	if err != nil {
		return out, err
	}
	a.force = s.Force
	defer func() {
		err = errors.Join(err, a.end(out.Applied))
		out.Left -= len(out.Applied)
	}()
	for _, phase := range []struct {
		of func(Change) bool
		do func(Change) error
	}{
		{isNewDir, a.makeDir},
		{func(c Change) bool { return !c.Dir && c.Kind != Deleted }, a.put},
		{func(c Change) bool { return c.Kind == Deleted }, a.remove},
	} {
		for _, c := range todo {
			if !phase.of(c) {
				continue
			}
			if err := a.each(c, phase.do, &out); err != nil {
				return out, err
			}
		}
	}
	// A directory that may not be written to is made so when all is in it.
	for _, c := range slices.Backward(todo) {
		switch {
		case c.Dir && c.Kind == Mode:
			if err := a.each(c, a.setMode, &out); err != nil {
				return out, err
			}
		case isNewDir(c) && c.perm&0o700 != 0o700 && !a.failed[c.Path]:
			if err := a.setMode(c); err != nil {
				return out, fmt.Errorf("%s: %w", Quoted(c.Path), err)
			}
		}
	}
	return out, nil
}

func isNewDir(c Change) bool { return c.Dir && (c.Kind == Added || c.Kind == Type) }

// choose returns what of all is meant by s and may be applied, in the same order.
func choose(all []Change, s Selection, out *Outcome) ([]Change, error) {
	meant, err := s.meant(all)
	if err != nil {
		return nil, err
	}
	var todo []Change
	stopped := ""
	for i, c := range all {
		switch {
		case !meant[i]:
			continue
		case stopped != "" && strings.HasPrefix(c.Path, stopped):
			c.Refused = notMade
			out.Refused = append(out.Refused, c)
			continue
		case c.Refused != "":
			out.Refused = append(out.Refused, c)
		case c.Has(RunsLater) && !s.RunsLater && !slices.Contains(s.Paths, c.Path):
			out.Held = append(out.Held, c)
		case c.Conflict != "" && !s.Force:
			out.Conflicts = append(out.Conflicts, c)
		default:
			todo = append(todo, c)
			continue
		}
		if isNewDir(c) {
			stopped = c.Path + "/"
		}
	}
	return todo, nil
}

// notMade is why a change in a new directory is not applied without that.
const notMade = "the directory that it is in is not applied"

// Of returns those of all that s is about, with the directories that they need. The
// error is [ErrNoChange] if a path of s has none.
func (s Selection) Of(all []Change) ([]Change, error) {
	meant, err := s.meant(all)
	if err != nil {
		return nil, err
	}
	var of []Change
	for i, c := range all {
		if meant[i] {
			of = append(of, c)
		}
	}
	return of, nil
}

// meant marks the changes that s is about, and the directories that they need.
func (s Selection) meant(all []Change) ([]bool, error) {
	meant, err := s.named(all)
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for i, c := range all {
		if isNewDir(c) {
			at[c.Path] = i
		}
	}
	for i, c := range all {
		for p := range parents(c.Path) {
			if j, ok := at[p]; ok && meant[i] {
				meant[j] = true
			}
		}
	}
	return meant, nil
}

// named marks the changes that s is about.
func (s Selection) named(all []Change) ([]bool, error) {
	used := map[string]bool{}
	for _, p := range s.Paths {
		used[p] = false
	}
	name := func(p string) bool {
		if _, ok := used[p]; ok {
			used[p] = true
			return true
		}
		return false
	}
	meant := make([]bool, len(all))
	for i, c := range all {
		meant[i] = len(s.Paths) == 0 || name(c.Path)
		for p := range parents(c.Path) {
			meant[i] = name(p) || meant[i]
		}
	}
	for _, p := range s.Paths {
		if !used[p] {
			return nil, fmt.Errorf("%w: %s", ErrNoChange, Quoted(p))
		}
	}
	return meant, nil
}

// parents yields the directories that path is in, from its own to the workspace.
func parents(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := strings.LastIndexByte(path, '/'); i >= 0; i = strings.LastIndexByte(path, '/') {
			if path = path[:i]; !yield(path) {
				return
			}
		}
		if path != "." {
			yield(".")
		}
	}
}

// Discard gives up the changes that s means, but leaves the workspace as it is. Of a
// directory that is new, what is in it goes with it. r must be in use.
func (r *Review) Discard(s Selection) (gone []Change, left int, err error) {
	all, err := r.changes()
	if err != nil {
		return nil, 0, fmt.Errorf("discarding changes: %w", err)
	}
	if len(s.Paths) == 0 {
		return all, 0, nil
	}
	named, err := s.named(all)
	if err != nil {
		return nil, len(all), fmt.Errorf("discarding changes: %w", err)
	}
	for i, c := range all {
		if named[i] {
			gone = append(gone, c)
		}
	}
	j, err := r.journal()
	if err != nil {
		return nil, len(all), fmt.Errorf("discarding changes: %w", err)
	}
	if err := errors.Join(j.note(wasDiscarded, gone), j.close()); err != nil {
		return nil, len(all), fmt.Errorf("discarding changes: %w", err)
	}
	return gone, len(all) - len(gone), nil
}

// An applier makes changes in the workspace.
type applier struct {
	r       *Review
	low, up *subtree.Dir
	log     *journal
	force   bool            // see Selection
	failed  map[string]bool // directories that were not made
}

// begin opens both trees, clears up after an apply that was interrupted, and notes
// what was free of conflicts before anything was touched: of all, and of todo.
func (r *Review) begin(all, todo []Change) (a *applier, err error) {
	if err := r.clear(); err != nil {
		return nil, err
	}
	a = &applier{r: r, failed: map[string]bool{}}
	if a.low, err = r.workspace(); err != nil {
		return nil, err
	}
	if a.up, err = subtree.Open(r.Left()); err != nil {
		return nil, errors.Join(err, a.low.Close())
	}
	if a.log, err = r.journal(); err != nil {
		return nil, errors.Join(err, a.low.Close(), a.up.Close())
	}
	var others []Change
	for _, c := range all {
		if c.Kind == Added && !c.Dir && c.Conflict == "" {
			others = append(others, c)
		}
	}
	if err := errors.Join(a.log.note(clean, others), a.log.note(begun, todo)); err != nil {
		return nil, errors.Join(err, a.end(nil))
	}
	return a, nil
}

// end puts all on disk, and only then notes what was applied.
func (a *applier) end(applied []Change) error {
	err := a.low.Sync()
	if err == nil {
		err = a.log.note(wasApplied, applied)
	}
	return errors.Join(err, a.log.close(), a.low.Close(), a.up.Close())
}

// clear removes what an apply that was interrupted has left in the workspace.
func (r *Review) clear() error {
	past, err := r.done()
	if err != nil {
		return err
	}
	low, err := r.workspace()
	if err != nil {
		return err
	}
	defer low.Close() //nolint:errcheck // nothing was written through it
	for path, what := range past {
		if what != begun || path == "." {
			continue
		}
		dir, _, err := chain(low, path)
		if err != nil {
			continue // where nothing can be, nothing was left
		}
		if err := errors.Join(removeTree(dir, r.temporary(path), 0), removeTree(dir, r.aside(path), 0), dir.Close()); err != nil {
			return fmt.Errorf("clearing up after an apply that was interrupted: %w", err)
		}
	}
	return nil
}

// each makes one change. What is in its way is said of the change, and the rest goes
// on; only what would meet every change is an error.
func (a *applier) each(c Change, do func(Change) error, out *Outcome) error {
	for p := range parents(c.Path) {
		if a.failed[p] {
			c.Refused = notMade
			out.Refused = append(out.Refused, c)
			return nil
		}
	}
	err := a.unchanged(c, a.force)
	if err == nil {
		err = do(c)
	}
	var changed *changedError
	switch {
	case err == nil:
		out.Applied = append(out.Applied, c)
		return nil
	case errors.As(err, &changed):
		c.Conflict = changed.why
		out.Conflicts = append(out.Conflicts, c)
	case fatal(err):
		return fmt.Errorf("%s: %w", Quoted(c.Path), err)
	default:
		c.Refused = "it cannot be written in the workspace: " + cause(err)
		out.Refused = append(out.Refused, c)
	}
	if isNewDir(c) {
		a.failed[c.Path] = true
	}
	return nil
}

// A changedError is a conflict that shows only while applying.
type changedError struct{ why string }

func (e *changedError) Error() string { return e.why }

// unchanged makes sure that what stands at the path of c is still what it was when the
// changes were read.
func (a *applier) unchanged(c Change, force bool) error {
	if c.Path == "." || force {
		return nil
	}
	dir, name, err := chain(a.low, c.Path)
	if err != nil {
		return missing(err)
	}
	defer dir.Close() //nolint:errcheck // nothing was written
	now, there, err := lookup(dir, name)
	switch {
	case err != nil:
		return err
	case there != c.there:
		return &changedError{"it was made or removed outside just now"}
	case there && c.low.Kind == subtree.Directory && now.Kind == subtree.Directory && now.Ino == c.low.Ino && c.Kind != Deleted && c.Kind != Type && c.Kind != Link:
		return nil // what is in it is looked at by itself
	case there && !now.Same(c.low):
		return &changedError{"it was changed outside just now"}
	}
	return nil
}

// missing says of a parent that is not there, or is a link, that it is a conflict.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || blocked(err) {
		return &changedError{"the directory that it is in was removed or replaced outside"}
	}
	return err
}

// chain opens the directory that path is in, name by name from root.
func chain(root *subtree.Dir, path string) (dir *subtree.Dir, name string, err error) {
	names := strings.Split(path, "/")
	dir, err = root.Again()
	for _, n := range names[:len(names)-1] {
		if err != nil {
			return nil, "", err
		}
		next, oerr := dir.Open(n)
		err = errors.Join(oerr, dir.Close())
		dir = next
	}
	if err != nil {
		return nil, "", err
	}
	return dir, names[len(names)-1], nil
}
