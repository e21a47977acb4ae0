package hold

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/act/places"
)

// maxMoved is how many files a directory may have beneath it to be renamed in one
// step: each is looked at. With more, the answer is that of a file system that
// cannot do it (EXDEV), and the caller moves file by file.
const maxMoved = 50_000

func (w *worker) rename(oldDir int32, oldAt uint64, newDir int32, newAt uint64, flags uint32) answer {
	if swaps := flags&unix.RENAME_EXCHANGE != 0; flags > 7 || swaps && flags != unix.RENAME_EXCHANGE {
		return pass // for its error
	}
	oldPath, e := w.string(oldAt)
	if e != 0 {
		return pass
	}
	newPath, e := w.string(newAt)
	if e != 0 {
		return pass
	}
	from, e := w.parent(oldDir, oldPath)
	if e != 0 {
		return lost(oldPath, e)
	}
	to, e := w.parent(newDir, newPath)
	if e != 0 {
		// The kernel looks at the first of the two before it looks for the second.
		if unix.Faccessat(from.dir, ".", unix.X_OK, unix.AT_EACCESS) == unix.EACCES {
			return refuse(unix.EACCES)
		}
		return lost(newPath, e)
	}
	if from.base == "" || to.base == "" || !w.inside(from.real) && !w.inside(to.real) {
		return pass
	}
	if w.inside(from.real) != w.inside(to.real) {
		if _, there := w.kind(from); !there {
			return refuse(unix.ENOENT)
		}
		return refuse(unix.EXDEV) // one end is not ours to change
	}
	if !stillWaits(w.listener, w.n.id) {
		return refuse(unix.ESRCH) // nobody hears it
	}
	moves := w.kindOf(from) == unix.S_IFDIR || flags&unix.RENAME_EXCHANGE != 0
	if moves {
		w.order.Lock()
		defer w.order.Unlock()
	} else {
		defer w.enter(to)()
		if w.kindOf(from) == unix.S_IFDIR {
			return refuse(unix.EAGAIN) // it was none a moment ago
		}
	}
	if !w.settle(&from, &to) {
		return astray
	}
	a := w.renameHere(from, to, flags)
	if moves {
		// After it: a path that was looked up in between is looked up again.
		w.moved.Add(1)
	}
	return a
}

// kindOf is kind, and 0 for what is not there.
func (w *worker) kindOf(s spot) uint32 {
	kind, _ := w.kind(s)
	return kind
}

func (w *worker) renameHere(from, to spot, flags uint32) answer {
	swap := flags&unix.RENAME_EXCHANGE != 0
	born, a, held := w.mayMove(from, to)
	if held {
		return a
	}
	if swap {
		if _, a, held = w.mayMove(to, from); held {
			return a
		}
	}
	err := unix.Renameat2(from.dir, from.name, to.dir, to.name, uint(flags))
	if err == nil {
		w.born.moved(from.path(), to.path(), swap)
		if born != "" {
			w.birth(born, to)
		}
	}
	return result(err)
}

// mayMove asks the rules about both ends of a rename, and about all that a
// directory takes along.
func (w *worker) mayMove(from, to spot) (born string, a answer, held bool) {
	kind := w.kindOf(from)
	if kind == 0 || isDots(from.base) || isDots(to.base) {
		return "", answer{}, false // nothing comes of it
	}
	whole := kind == unix.S_IFDIR || kind == unix.S_IFLNK
	if v := w.ask(MoveAway, from.path(), whole); v.Held() {
		return "", w.deny(MoveAway, from.path(), v), true
	}
	v := w.ask(MoveHere, to.path(), whole)
	if v.Held() {
		return "", w.deny(MoveHere, to.path(), v), true
	}
	if kind == unix.S_IFDIR {
		walk := moving{w: w, from: from.path(), to: to.path()}
		if err := walk.dir(from.dir, from.base, ""); err != nil {
			return "", walk.answer(err), true
		}
	}
	return v.Born, answer{}, false
}

func isDots(name string) bool { return name == "." || name == ".." }

// moving is a walk through a directory that is to be renamed.
type moving struct {
	w        *worker
	from, to string
	seen     int
	op       Op
	path     string
	verdict  Verdict
}

var errHeld = errors.New("held")

func (m *moving) answer(err error) answer {
	switch {
	case errors.Is(err, errHeld):
		return m.w.deny(m.op, m.path, m.verdict)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return refuse(unix.ENOENT)
	default:
		return refuse(unix.EXDEV) // too much, or what we may not read
	}
}

// dir looks at what is in the directory name of parent, whose path is from+rel.
func (m *moving) dir(parent int, name, rel string) error {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if strings.Count(rel, "/") > maxDepth {
		return unix.EXDEV
	}
	var below []string
	err = entries(fd, func(name string, kind uint8) bool {
		if m.seen++; m.seen > maxMoved || m.check(rel+"/"+name) {
			return false
		}
		if kind == unix.DT_DIR || kind == unix.DT_UNKNOWN {
			below = append(below, name)
		}
		return true
	})
	switch {
	case m.verdict.Held():
		return errHeld
	case m.seen > maxMoved:
		return unix.EXDEV
	case err != nil:
		return err
	}
	for _, name := range below {
		err := m.dir(fd, name, rel+"/"+name)
		if err != nil && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
			return err
		}
	}
	return nil
}

// maxDepth bounds how many directories deep a walk goes: each holds a descriptor.
const maxDepth = 100

// check reports whether the file at from+rel may not go, or not come to to+rel. A
// repository of the box's own goes with all that is in it.
func (m *moving) check(rel string) bool {
	if around := m.w.born.around(m.from + rel); around != "" && places.Beneath(around, m.from) {
		return false
	}
	m.op, m.path = MoveAway, m.from+rel
	m.verdict = m.w.ask(MoveAway, m.path, false)
	if m.verdict.Held() {
		return true
	}
	m.op, m.path = MoveHere, m.to+rel
	m.verdict = m.w.ask(MoveHere, m.path, false)
	return m.verdict.Held()
}

// entries calls f with the name and the type (DT_…) of each entry of the directory
// fd, until f returns false.
func entries(fd int, f func(name string, kind uint8) bool) error {
	var b [8192]byte
	for {
		n, err := unix.Getdents(fd, b[:])
		if err != nil || n <= 0 {
			return err
		}
		// struct linux_dirent64: inode, offset, length (2 bytes), type, name.
		const length, kind, name = 16, 18, 19
		for at := 0; at+name < n; {
			size := int(b[at+length]) | int(b[at+length+1])<<8
			if size < name || at+size > n {
				return unix.EIO
			}
			text, _, _ := bytes.Cut(b[at+name:at+size], []byte{0})
			if s := string(text); !isDots(s) && !f(s, b[at+kind]) {
				return nil
			}
			at += size
		}
	}
}
