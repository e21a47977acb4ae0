package hold

import "golang.org/x/sys/unix"

// create performs what makes the file at path, for a caller who gives it relative
// to dirfd. whole says that it is a link.
func (w *worker) create(dirfd int32, path string, whole bool, perform func(s spot) error) answer {
	s, e := w.parent(dirfd, path)
	if e != 0 {
		return lost(path, e)
	}
	if s.base == "" || !w.inside(s.real) {
		return pass
	}
	if !stillWaits(w.listener, w.n.id) {
		return refuse(unix.ESRCH) // nobody hears it
	}
	defer w.enter(s)()
	if !w.settle(&s) {
		return astray
	}
	var v Verdict
	if s.base != "." && s.base != ".." {
		v = w.ask(Make, s.path(), whole)
	}
	if v.Held() {
		if _, there := w.kind(s); there {
			return refuse(unix.EEXIST)
		}
		return w.deny(Make, s.path(), v)
	}
	err := perform(s)
	if err == nil && v.Born != "" {
		w.birth(v.Born, s)
	}
	return result(err)
}

// deny refuses what v says is held.
func (w *worker) deny(op Op, path string, v Verdict) answer {
	w.denials.add(op, path, v.Rule)
	return refuse(unix.EPERM)
}

// birth remembers what came into being by making s. A repository in a directory
// that was empty takes the directory along: all that will be in it is the box's own.
func (w *worker) birth(born string, s spot) {
	if born == s.path() && s.base == gitDir && w.judge.root(s.real) != s.real && w.only(s) {
		born = s.real
	}
	w.born.add(born)
}

// filled reports whether s is a directory with something in it.
func (w *worker) filled(s spot) bool {
	fd, err := unix.Openat(s.dir, s.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	found := false
	err = entries(fd, func(string, uint8) bool {
		found = true
		return false
	})
	return err == nil && found
}

// only reports whether s is all there is in its directory.
func (w *worker) only(s spot) bool {
	fd, err := unix.Openat(s.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	others := false
	err = entries(fd, func(name string, _ uint8) bool {
		others = name != s.base
		return !others
	})
	return err == nil && !others
}

func (w *worker) makeDir(dirfd int32, at uint64, mode uint32) answer {
	path, e := w.string(at)
	if e != 0 {
		return pass
	}
	mask, e := w.umask(opening{flags: unix.O_CREAT})
	if e != 0 {
		return refuse(e)
	}
	return w.create(dirfd, path, false, func(s spot) error { return unix.Mkdirat(s.dir, s.name, mode&modeBits&^mask) })
}

func (w *worker) makeNode(dirfd int32, at uint64, mode, device uint32) answer {
	switch mode & unix.S_IFMT {
	case 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFCHR, unix.S_IFBLK:
	default:
		return pass // for its error
	}
	path, e := w.string(at)
	if e != 0 {
		return pass
	}
	mask, e := w.umask(opening{flags: unix.O_CREAT})
	if e != 0 {
		return refuse(e)
	}
	return w.create(dirfd, path, false, func(s spot) error { return unix.Mknodat(s.dir, s.name, mode&^mask, int(device)) })
}

func (w *worker) makeLink(targetAt uint64, dirfd int32, at uint64) answer {
	target, e := w.string(targetAt)
	if e != 0 {
		return pass
	}
	path, e := w.string(at)
	if e != 0 {
		return pass
	}
	return w.create(dirfd, path, true, func(s spot) error { return unix.Symlinkat(target, s.dir, s.name) })
}

const removeDir = unix.AT_REMOVEDIR

func (w *worker) remove(dirfd int32, at uint64, flags int) answer {
	if flags&^removeDir != 0 {
		return pass // for its error
	}
	path, e := w.string(at)
	if e != 0 {
		return pass
	}
	s, e := w.parent(dirfd, path)
	if e != 0 {
		return lost(path, e)
	}
	if s.base == "" || !w.inside(s.real) {
		return pass
	}
	if !stillWaits(w.listener, w.n.id) {
		return refuse(unix.ESRCH) // nobody hears it
	}
	defer w.enter(s)()
	if !w.settle(&s) {
		return astray
	}
	if s.base != "." && s.base != ".." {
		if v := w.ask(Remove, s.path(), false); v.Held() {
			switch _, there := w.kind(s); {
			case !there:
				return refuse(unix.ENOENT)
			case flags == removeDir && w.filled(s):
				return refuse(unix.ENOTEMPTY) // git tries that all the time
			}
			return w.deny(Remove, s.path(), v)
		}
	}
	err := unix.Unlinkat(s.dir, s.name, flags)
	if err == nil {
		w.born.removed(s.path())
	}
	return result(err)
}

// link performs link(2). The file keeps its first name: if that is held, so would
// its content have to be under the second.
func (w *worker) link(oldDir int32, oldAt uint64, newDir int32, newAt uint64, flags int) answer {
	if flags&^(unix.AT_SYMLINK_FOLLOW|unix.AT_EMPTY_PATH) != 0 {
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
	t, e := w.source(oldDir, oldPath, flags)
	if e != 0 {
		return lost(oldPath, e)
	}
	return w.create(newDir, newPath, false, func(s spot) error {
		if !w.settleThing(&t) {
			return astray.err
		}
		if !w.inside(t.path) {
			if _, there := w.kind(s); there {
				return unix.EEXIST
			}
			if s.name != s.base {
				return unix.ENOENT // a slash behind it: only what is there can be meant
			}
			if t.mode&unix.S_IFMT == unix.S_IFDIR {
				return unix.EPERM // what the kernel says of any directory
			}
			return unix.EXDEV // under a name in our trees it could be written
		}
		if v := w.ask(Link, t.path, false); v.Held() {
			return w.deny(Link, t.path, v).err
		}
		w.remember(t.handle)
		return unix.Linkat(w.fds, itoa(t.handle), s.dir, s.name, unix.AT_SYMLINK_FOLLOW)
	})
}

// source finds the file that gets a second name.
func (w *worker) source(dirfd int32, path string, flags int) (thing, unix.Errno) {
	if path == "" && flags&unix.AT_EMPTY_PATH != 0 {
		handle, e := w.start(dirfd, 0)
		if e != 0 {
			return thing{}, e
		}
		return w.thing(handle)
	}
	t, _, e := w.find(dirfd, path, flags&unix.AT_SYMLINK_FOLLOW != 0)
	return t, e
}
