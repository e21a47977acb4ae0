package hold

import (
	"sync"

	"golang.org/x/sys/unix"
)

// A known is files that this box made or linked, by what tells them from others.
type known struct {
	mu  sync.Mutex
	all map[identity]struct{}
}

// maxKnown bounds what a program can make us remember. What comes beyond it is
// treated like a file of the host.
const maxKnown = 1 << 16

func (k *known) add(id identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = map[identity]struct{}{}
	}
	if len(k.all) < maxKnown {
		k.all[id] = struct{}{}
	}
}

func (k *known) has(id identity) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.all[id]
	return ok
}

func identityOf(st *unix.Statx_t) identity {
	return identity{st.Dev_major, st.Dev_minor, st.Ino, st.Btime}
}

// facts returns what fd is, or what name is in the directory fd.
func facts(fd int, name string) (st unix.Statx_t, err error) {
	const want = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BTIME
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_STATX_DONT_SYNC
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err = unix.Statx(fd, name, flags, want, &st)
	return st, err
}

const ruleShared = "it has other names, which may lie outside the writable trees; copy it first, and write to the copy"

// shares refuses to change the file at path, which is st, if it has names
// that were not made in this box: they may lie outside. Of an overlay nothing is
// changed outside, whatever it is called there.
func (w *worker) shares(path string, st *unix.Statx_t) (a answer, held bool) {
	if kindIn(st) != unix.S_IFREG || st.Nlink < 2 || w.linked.has(identityOf(st)) || w.judge.copied(path) {
		return answer{}, false
	}
	return w.deny(Change, path, Verdict{Rule: ruleShared}), true
}

// kindIn is S_IFMT of what st is about.
func kindIn(st *unix.Statx_t) uint32 { return uint32(st.Mode) & unix.S_IFMT }

// sharesThing is shares for what is there.
func (w *worker) sharesThing(t thing) (a answer, held bool) {
	st, err := facts(t.handle, "")
	if err != nil {
		return result(err), true
	}
	return w.shares(t.path, &st)
}

// begin makes of fd, which was opened without O_TRUNC, what o asks for.
func (w *worker) begin(fd int, path string, o opening) (int, error) {
	if o.exclusive() || o.reads() && !o.truncates() {
		return fd, nil
	}
	st, err := facts(fd, "")
	if err == nil {
		if a, held := w.shares(path, &st); held {
			err = a.err
		}
	}
	if err == nil && o.truncates() && kindIn(&st) == unix.S_IFREG {
		if o.reads() {
			err = w.cut(thing{handle: fd, mode: unix.S_IFREG}, 0)
		} else {
			err = unix.Ftruncate(fd, 0)
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// remember notes that the file behind handle gets one more name by us, if those that
// it has are ours.
func (w *worker) remember(handle int) {
	if st, err := facts(handle, ""); err == nil && kindIn(&st) == unix.S_IFREG && st.Nlink == 1 {
		w.linked.add(identityOf(&st))
	}
}
