package native

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ringfence/internal/sandbox"
)

// rebaseTodo is what git does next when a rebase goes on: it runs the commands in it.
// git in a box writes it, so it is not held; what is left of it is told.
const rebaseTodo = ".git/rebase-merge/git-rebase-todo"

// A leftover is a file by which something that was begun in a box goes on outside.
type leftover struct {
	path string
	was  fs.FileInfo // before the box; nil if it was not there
}

// leftoversOf looks at what is there before a box of s.
func leftoversOf(s sandbox.Spec) (all []leftover) {
	trees := s.ReadWrite
	if w := s.Workspace; w.Mode == sandbox.ReadWrite && w.Upper == "" && w.Copied == "" {
		trees = append(slices.Clip(trees), w.Path)
	}
	for _, t := range trees {
		l := leftover{path: filepath.Join(t, rebaseTodo)}
		if fi, err := os.Lstat(l.path); err == nil {
			l.was = fi
		}
		all = append(all, l)
	}
	return all
}

// tellUnseen notes what could not be looked through or followed.
func (b *box) tellUnseen(p *plan) {
	if p == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range p.hold.unseen {
		b.keep(sandbox.Denial{Op: sandbox.OpNotHeld, Object: l.Object, Rule: l.By, Observed: true, Count: 1})
	}
}

// tellLeft notes the leftovers that came to be, or changed, while the box ran. The caller
// holds mu.
func (b *box) tellLeft() {
	for _, l := range b.left {
		now, err := os.Lstat(l.path)
		if err != nil || l.was != nil && os.SameFile(l.was, now) && l.was.ModTime().Equal(now.ModTime()) && l.was.Size() == now.Size() {
			continue
		}
		b.keep(sandbox.Denial{
			Op: sandbox.OpNotHeld, Object: l.path, Observed: true, Count: 1,
			Rule: "a rebase was begun in the box: look at its commands before git here goes on with it, or give it up with \"git rebase --abort\"",
		})
	}
}
