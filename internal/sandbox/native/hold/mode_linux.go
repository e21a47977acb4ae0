package hold

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// changeMode performs what changes the mode of the file at path. No right of
// Landlock is about modes: it is never passed on.
func (w *worker) changeMode(dirfd int32, at uint64, mode uint32, flags int) answer {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return refuse(unix.EINVAL)
	}
	path, e := w.string(at)
	if e != 0 {
		return refuse(e)
	}
	if path == "" && flags&unix.AT_EMPTY_PATH != 0 {
		return w.changeModeOf(dirfd, mode)
	}
	t, via, e := w.find(dirfd, path, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
	if e != 0 {
		return refuse(e)
	}
	return w.setMode(t, via, mode)
}

// changeModeOf is for a file that is open.
func (w *worker) changeModeOf(fd int32, mode uint32) answer {
	handle, e := w.start(fd, 0)
	if e != 0 {
		return refuse(e)
	}
	t, e := w.thing(handle)
	if e != 0 {
		return refuse(e)
	}
	return w.setMode(t, nil, mode)
}

func (w *worker) setMode(t thing, via []spot, mode uint32) answer {
	if !stillWaits(w.listener, w.n.id) {
		return refuse(unix.ESRCH) // nobody hears it
	}
	if t.isLink() {
		return refuse(unix.EOPNOTSUPP)
	}
	w.order.RLock()
	defer w.order.RUnlock()
	if a, held := w.changes(t, via); held {
		return a
	}
	if w.within && !w.inside(t.path) {
		return refuse(unix.EPERM)
	}
	if w.inside(t.path) && mode&modeBits != t.mode&modeBits {
		if a, held := w.sharesThing(t); held {
			return a
		}
	}
	return result(unix.Fchmodat(w.fds, itoa(t.handle), mode&modeBits, 0))
}

// changeTimes performs utimensat(2), where the program is not let do it by itself.
func (w *worker) changeTimes(dirfd int32, at, timesAt uint64, flags int) answer {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 || at == 0 && flags != 0 {
		return refuse(unix.EINVAL)
	}
	times, e := w.times(timesAt)
	if e != 0 {
		return refuse(e)
	}
	path := ""
	if at != 0 {
		if path, e = w.string(at); e != 0 {
			return refuse(e)
		}
	}
	var t thing
	var via []spot
	if at == 0 && dirfd != unix.AT_FDCWD || path == "" && flags&unix.AT_EMPTY_PATH != 0 {
		handle, bad := w.start(dirfd, 0)
		if bad != 0 {
			return refuse(bad)
		}
		t, e = w.thing(handle)
	} else {
		t, via, e = w.find(dirfd, path, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
	}
	if e != 0 {
		return refuse(e)
	}
	if !stillWaits(w.listener, w.n.id) {
		return refuse(unix.ESRCH) // nobody hears it
	}
	w.order.RLock()
	defer w.order.RUnlock()
	if a, held := w.changes(t, via); held {
		return a
	}
	if !w.inside(t.path) {
		return refuse(unix.EPERM)
	}
	if a, held := w.sharesThing(t); held {
		return a
	}
	return result(unix.UtimesNanoAt(t.handle, "", times, unix.AT_EMPTY_PATH))
}

// times reads the two times at an address; none is "now".
func (w *worker) times(at uint64) ([]unix.Timespec, unix.Errno) {
	if at == 0 {
		return nil, 0
	}
	b, e := w.address(at, 2*timeSize)
	if e != 0 {
		return nil, e
	}
	times := make([]unix.Timespec, 2)
	for i := range times {
		one := b[i*timeSize:]
		times[i] = unix.Timespec{Sec: int64(binary.NativeEndian.Uint64(one)), Nsec: int64(binary.NativeEndian.Uint64(one[8:]))}
	}
	return times, 0
}

const timeSize = 16 // sizeof(struct timespec), on both architectures

// changes asks the rules about a change of t, and of the links that led there. The
// order is held.
func (w *worker) changes(t thing, via []spot) (a answer, held bool) {
	if !w.settleThing(&t) {
		return astray, true
	}
	for i := range via {
		if !w.settle(&via[i]) {
			return astray, true
		}
	}
	paths := []string{t.path}
	for _, s := range via {
		paths = append(paths, s.path())
	}
	for _, p := range paths {
		if v := w.ask(Change, p, false); v.Held() {
			return w.deny(Change, p, v), true
		}
	}
	return answer{}, false
}

// truncate performs truncate(2).
func (w *worker) truncate(at, size uint64) answer {
	path, e := w.string(at)
	if e != 0 {
		return pass
	}
	t, via, e := w.find(unix.AT_FDCWD, path, true)
	if e != 0 {
		return lost(path, e)
	}
	if !w.inside(t.path) {
		return pass
	}
	if !stillWaits(w.listener, w.n.id) {
		return refuse(unix.ESRCH) // nobody hears it
	}
	w.order.RLock()
	defer w.order.RUnlock()
	if a, held := w.changes(t, via); held {
		return a
	}
	if a, held := w.sharesThing(t); held {
		return a
	}
	return result(w.cut(t, int64(size)))
}

// cut truncates t. A file that somebody has a lease on is an error: to wait until
// that is over would keep a worker. While we have it open for writing, nobody gets one.
func (w *worker) cut(t thing, size int64) error {
	if t.mode&unix.S_IFMT == unix.S_IFREG && size >= 0 {
		fd, err := unix.Openat(w.fds, itoa(t.handle), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
	}
	return unix.Truncate(w.self+"/fd/"+itoa(t.handle), size)
}
