package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/homes"
	"ringfence/internal/sandbox/native/landlock"
	"ringfence/internal/sandbox/native/readback"
	"ringfence/internal/sys/mounts"
	"ringfence/internal/sys/paths"
)

// hideOwn returns s without our own state, where s shows it by its own name. What s names
// in it is there: somebody has decided on that. The state of others is not there either, as
// far as it is found, and nothing in it can be named. Where names are held, that is looked
// through for homes too: see [holding.follow]. cut says what was not looked through.
func (b *builder) hideOwn(s sandbox.Spec) (hidden sandbox.Spec, cut string, err error) {
	foreign, err := paths.ForeignHomes(s.Trees(), b.state)
	if err != nil {
		return s, "", err
	}
	s.Denied = slices.Concat(s.Denied, b.state, foreign)
	var deep []string
	if s.LaterWritable {
		if deep, cut, err = homes.Find(writableIn(s), b.state, s.Denied); err != nil {
			return s, "", err
		}
	}
	deeper, _, err := homes.Find(readableIn(s), b.state, s.Denied)
	s.Denied = slices.Concat(s.Denied, deep, deeper)
	return s, cut, err
}

// writableIn and readableIn are the trees that s gives.
func writableIn(s sandbox.Spec) []string {
	if s.Workspace.Mode == sandbox.ReadWrite {
		return append(slices.Clone(s.ReadWrite), s.Workspace.Path)
	}
	return s.ReadWrite
}

func readableIn(s sandbox.Spec) []string {
	if s.Workspace.Mode == sandbox.ReadOnly {
		return append(slices.Clone(s.ReadOnly), s.Workspace.Path)
	}
	return s.ReadOnly
}

// notOurs returns those of homes that are not in our own state, which is hidden already.
func (b *builder) notOurs(homes []string) []string {
	return slices.DeleteFunc(slices.Clone(homes), func(p string) bool { return paths.HomeAbove(p, b.state) != p })
}

// checkOwn looks for our own state in the tree that the box really has, under whatever
// name: the mounts that are known to who decides what a box may see need not be those of
// this process. It is the kernel's account of the program's process that counts, so that
// nothing which comes into the tree on any way is forgotten.
func (b *builder) checkOwn() error {
	if len(b.state) == 0 {
		return nil
	}
	for _, f := range []readback.Facts{b.facts, b.ours} {
		if err := f.Hidden["mounts"]; err != nil || len(f.Mounts) == 0 {
			return fmt.Errorf("the mounts cannot be read, so nobody knows whether our own state is shown: %w", err)
		}
	}
	theirs, ours := tableOf(b.facts.Mounts), tableOf(b.ours.Mounts)
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", b.facts.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("looking for our own state: %w", err)
	}
	defer unix.Close(root)
	for _, own := range b.state {
		real, err := filepath.EvalSymlinks(own)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("our own state: %w", err)
		}
		// The directories of the box's own overlay lie in our state.
		names := append(theirs.Names(ours, real), theirs.Alike(root, ours, real, filepath.Dir(b.spec.Workspace.Upper))...)
		if i := slices.IndexFunc(names, func(name string) bool { return !b.mayShow(name, real) }); i >= 0 {
			return fmt.Errorf("%s would show the state of ringfence (%s), by a mount: give the box another directory, or unmount that", names[i], real)
		}
	}
	return b.checkProgram(theirs, ours)
}

// checkProgram looks for our own program, by another name than its own, where the box could
// change it: by its own name it was decided on.
func (b *builder) checkProgram(theirs, ours mounts.Table) error {
	exe, err := os.Readlink(self)
	if err != nil {
		return err
	}
	for _, name := range theirs.Names(ours, exe) {
		if name != exe && b.mayChange(name) {
			return fmt.Errorf("%s would show the program of ringfence (%s), by a mount, to be changed: give the box another directory, or unmount that", name, exe)
		}
	}
	return nil
}

// mayChange reports whether the box can change what is at name.
func (b *builder) mayChange(name string) bool {
	if b.plain {
		return slices.ContainsFunc(b.plan.grants, func(g grant) bool { return (g.access|g.own)&landlock.Write != 0 && beneath(name, g.path) })
	}
	m, ok := b.facts.MountOf(name)
	return ok && !m.ReadOnly()
}

// mayShow reports whether own may be seen at name: it is its own name, so that what was
// decided about it was decided knowingly, and it was hidden if it had to be; or a box that
// has no tree of its own is given nothing there.
func (b *builder) mayShow(name, own string) bool {
	if b.plain && !slices.ContainsFunc(b.plan.grants, func(g grant) bool { return beneath(name, g.path) || beneath(g.path, name) }) {
		return true
	}
	return beneath(name, own) && (b.plain || name != own) || b.isHome(name, own)
}

// isHome reports whether name is the home of the box, whose directory lies in own.
func (b *builder) isHome(name, own string) bool {
	h := b.spec.Home
	return h != (sandbox.Home{}) && name == realOf(h.Path) && !beneath(own, realOf(h.From))
}

func tableOf(all []readback.Mount) (t mounts.Table) {
	for _, m := range all {
		t = append(t, mounts.Mount{
			ID: m.ID, Parent: m.Parent, Device: m.Device, Root: m.Root, Point: m.Point, Type: m.Type, Super: strings.Join(m.Super, ","),
		})
	}
	return t
}
