package hold

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// tmpfileBit is O_TMPFILE without O_DIRECTORY (include/uapi/asm-generic/fcntl.h).
	tmpfileBit = unix.O_TMPFILE &^ unix.O_DIRECTORY
	// guarded is added to each open that we perform: the name is no link (those are
	// followed by hand), a pipe without a reader does not keep us, and no terminal
	// becomes ours.
	guarded  = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	modeBits = 0o7777
)

// An opening is an open(2) to be performed.
type opening struct {
	flags int
	mode  uint32
}

func (o opening) makes() bool     { return o.flags&unix.O_CREAT != 0 }
func (o opening) reads() bool     { return o.flags&unix.O_ACCMODE == unix.O_RDONLY }
func (o opening) truncates() bool { return o.flags&unix.O_TRUNC != 0 }
func (o opening) exclusive() bool { return o.makes() && o.flags&unix.O_EXCL != 0 }

// valid reports whether the flags are a combination that the kernel takes.
func (o opening) valid() bool {
	if o.flags&tmpfileBit != 0 && (o.flags&unix.O_DIRECTORY == 0 || o.reads()) {
		return false
	}
	return o.flags&unix.O_DIRECTORY == 0 || !o.makes()
}

// op is what the rules are asked about.
func (o opening) op() Op {
	if o.makes() {
		return Make
	}
	return Change
}

// links reports whether a link as the last component is followed.
func (o opening) links() bool { return o.flags&unix.O_NOFOLLOW == 0 && !o.exclusive() }

func (w *worker) openFile(dirfd int32, at uint64, o opening) answer {
	if o.flags&unix.O_PATH != 0 || !o.valid() {
		return pass // nothing is opened for writing, whatever else is asked for
	}
	path, e := w.string(at)
	if e != 0 {
		return pass
	}
	if o.flags&tmpfileBit != 0 {
		return w.openNameless(dirfd, path, o)
	}
	s, e := w.parent(dirfd, path)
	for range maxLinks {
		if e != 0 {
			return lost(path, e)
		}
		if number := w.own(s); number >= 0 {
			return w.reopen(number, o)
		}
		if !s.plain() {
			return pass // a directory: no call that comes here can open it
		}
		a, link := w.openAt(s, o)
		if !link {
			return a
		}
		s, e = w.follow(s)
	}
	return refuse(unix.ELOOP)
}

// elsewhere is the answer to an open that leads nowhere into our trees. What only
// truncates would not be stopped there by a kernel without Landlock's right to
// truncate (before ABI 3), and POSIX leaves it undefined.
func (w *worker) elsewhere(o opening) answer {
	if o.reads() && o.truncates() {
		return refuse(unix.EACCES)
	}
	return pass
}

// openAt opens s, or reports that it is a link to be followed.
func (w *worker) openAt(s spot, o opening) (a answer, link bool) {
	if !w.inside(s.real) {
		if kind, there := w.kind(s); there && kind == unix.S_IFLNK && o.links() {
			return answer{}, true
		}
		return w.elsewhere(o), false
	}
	mask, e := w.umask(o)
	if e != 0 || !stillWaits(w.listener, w.n.id) {
		return refuse(e), false
	}
	o.mode = o.mode & modeBits &^ mask
	defer w.enter(s)()
	if !w.settle(&s) {
		return astray, false
	}
	v := w.ask(o.op(), s.path(), false)
	if v.Held() {
		return w.refusedOpen(s, o, v), false
	}
	fd, err := w.openHere(s, o, v)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR): // the latter with O_DIRECTORY
		if kind, _ := w.kind(s); kind == unix.S_IFLNK && o.links() {
			return answer{}, true
		}
	case blocks(err) && o.flags&unix.O_NONBLOCK == 0 && w.waits(s):
		return w.park(s, o), false
	}
	return w.opened(fd, err, o), false
}

// openHere performs the open, after v was said of it. The order is held.
func (w *worker) openHere(s spot, o opening, v Verdict) (int, error) {
	if v.Born == "" || !o.makes() {
		as := o
		as.flags &^= unix.O_TRUNC // not before we know what it is
		fd, err := openat(s.dir, s.base, as)
		if err != nil {
			return fd, err
		}
		return w.begin(fd, s.path(), o)
	}
	o.flags |= unix.O_EXCL // it is born only if it was not there
	fd, err := openat(s.dir, s.base, o)
	if err == nil {
		w.birth(v.Born, s)
	}
	return fd, err
}

// refusedOpen says no, in the words of the kernel where nothing comes of the call
// anyway.
func (w *worker) refusedOpen(s spot, o opening, v Verdict) answer {
	_, there := w.kind(s)
	switch {
	case !there && !o.makes():
		return refuse(unix.ENOENT)
	case there && o.exclusive():
		return refuse(unix.EEXIST)
	case there && o.reads() && !o.truncates():
		return pass
	}
	op := Make
	if there {
		op = Change
	}
	return w.deny(op, s.path(), v)
}

func openat(dir int, name string, o opening) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, o.flags|guarded, o.mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// opened is the answer with what an open gave.
func (w *worker) opened(fd int, err error, o opening) answer {
	if err != nil {
		return result(err)
	}
	if o.flags&unix.O_NONBLOCK == 0 {
		if o.reads() && isPipe(fd) {
			// A reader waits for a writer, which only the kernel can do for it.
			unix.Close(fd)
			return pass
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, o.flags); err != nil {
			unix.Close(fd)
			return result(err)
		}
	}
	return answer{gives: true, fd: fd, cloexec: o.flags&unix.O_CLOEXEC != 0}
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// openNameless opens a file without a name in the directory path.
func (w *worker) openNameless(dirfd int32, path string, o opening) answer {
	t, _, e := w.find(dirfd, path, o.flags&unix.O_NOFOLLOW == 0)
	if e != 0 {
		return lost(path, e)
	}
	if !w.inside(t.path) {
		return pass
	}
	mask, e := w.umask(o)
	if e != 0 || !stillWaits(w.listener, w.n.id) {
		return refuse(e)
	}
	w.order.RLock()
	defer w.order.RUnlock()
	if !w.settleThing(&t) {
		return astray
	}
	o.mode = o.mode & modeBits &^ mask
	fd, err := openat(t.handle, ".", o)
	return w.opened(fd, err, o)
}

// reopen opens what the caller has open as number, through its name in /proc.
func (w *worker) reopen(number int32, o opening) answer {
	handle, e := w.descriptor(number, 0)
	if e != 0 || o.flags&unix.O_NOFOLLOW != 0 || o.exclusive() {
		return pass
	}
	t, e := w.thing(handle)
	if e != 0 || !w.inside(t.path) {
		return w.elsewhere(o)
	}
	if t.mode&unix.S_IFMT != unix.S_IFREG {
		return pass
	}
	if !stillWaits(w.listener, w.n.id) {
		return refuse(unix.ESRCH) // nobody hears it
	}
	w.order.RLock()
	defer w.order.RUnlock()
	if !w.settleThing(&t) {
		return astray
	}
	if v := w.ask(Change, t.path, false); v.Held() {
		if o.reads() && !o.truncates() {
			return pass
		}
		return w.deny(Change, t.path, v)
	}
	if !o.reads() || o.truncates() {
		if a, held := w.sharesThing(t); held {
			return a
		}
	}
	o.flags &^= unix.O_CREAT
	fd, err := unix.Openat(w.fds, itoa(t.handle), (o.flags|guarded)&^unix.O_NOFOLLOW, 0)
	return w.opened(fd, err, o)
}

// kind returns what s is, without following it.
func (w *worker) kind(s spot) (kind uint32, there bool) {
	var st unix.Stat_t
	if err := unix.Fstatat(s.dir, s.base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, false
	}
	return st.Mode & unix.S_IFMT, true
}

// blocks reports whether err stands for what would block.
func blocks(err error) bool { return errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EAGAIN) }

// waits reports whether opening s blocks until something happens: a pipe without a
// reader, a file that is leased.
func (w *worker) waits(s spot) bool {
	kind, there := w.kind(s)
	return there && (kind == unix.S_IFIFO || kind == unix.S_IFREG)
}

const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// park goes on trying to open s, without a worker, until it succeeds, the caller is
// gone, or a signal is waiting for it.
func (w *worker) park(s spot, o opening) answer {
	dir, err := unix.FcntlInt(uintptr(s.dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return result(err)
	}
	s.dir = dir
	// A worker of its own has its own handles; its first notification is this one.
	p := &worker{server: w.server, n: w.n, open: []int{dir}}
	go p.retry(s, o)
	return parked
}

func (w *worker) retry(s spot, o opening) {
	defer func() {
		for _, fd := range w.open {
			unix.Close(fd)
		}
	}()
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		<-timer.C
		if !stillWaits(w.listener, w.n.id) || w.over() {
			return
		}
		fd, err := w.openAgain(s, o)
		if !blocks(err) {
			w.reply(w.n.id, w.opened(fd, err, o))
			return
		}
		if w.signalled() {
			w.reply(w.n.id, refuse(errRestart))
			return
		}
		timer.Reset(pause)
	}
}

// openAgain is openHere after a pause, in which everything may have changed.
func (w *worker) openAgain(s spot, o opening) (int, error) {
	defer w.enter(s)()
	if !w.settle(&s) {
		return -1, astray.err
	}
	v := w.ask(o.op(), s.path(), false)
	if v.Held() {
		return -1, unix.EPERM
	}
	return w.openHere(s, o, v)
}

// errRestart is ERESTARTSYS of include/linux/errno.h: the kernel runs the handler
// of the signal, and then issues the call again or says EINTR, as the handler wants.
const errRestart = unix.Errno(512)
