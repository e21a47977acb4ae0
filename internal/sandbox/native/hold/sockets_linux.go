package hold

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A socket that lies in a file tree answers whoever can name it, over a mount that is
// read-only too, and no right of Landlock before ABI 9 holds it back. So connect(2) is
// performed here, on the caller's socket, with a copy of the address: what is a path
// is looked up once, and only what the box itself has bound is connected to. Names
// without a file, and ports, are those of the box's own network namespace.
//
// The listener sees pid 1 as the one that connected (SO_PEERCRED), under the same
// user.

// services is which sockets may be connected to, apart from those that were bound here.
type services struct {
	private map[[2]uint32]bool // file systems
	allowed known
}

// gather looks at what the Options name. No link is followed: the program is running,
// and may have put one there.
func (v *services) gather(o Options) error {
	v.private = map[[2]uint32]bool{}
	look := func(path string, see func(fd int, st *unix.Statx_t) error) error {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
		if err != nil {
			return fmt.Errorf("serving sockets: %s: %w", path, err)
		}
		defer unix.Close(fd)
		st, err := facts(fd, "")
		if err == nil {
			err = see(fd, &st)
		}
		if err != nil {
			return fmt.Errorf("serving sockets: %s: %w", path, err)
		}
		return nil
	}
	for _, path := range o.Private {
		err := look(path, func(fd int, st *unix.Statx_t) error {
			var fs unix.Statfs_t
			if err := unix.Fstatfs(fd, &fs); err != nil {
				return err
			}
			if fs.Type != unix.TMPFS_MAGIC {
				return errors.New("it is no file system in memory")
			}
			v.private[[2]uint32{st.Dev_major, st.Dev_minor}] = true
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, path := range o.Reachable {
		err := look(path, func(_ int, st *unix.Statx_t) error {
			v.allowed.add(identityOf(st))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	familySize = 2
	maxAddress = 128 // sizeof(struct sockaddr_storage): the kernel takes no more
	maxName    = 108 // sizeof(sun_path) of struct sockaddr_un
)

// address copies a socket address of size bytes out of the caller's memory.
func (w *worker) address(at uint64, size int) ([]byte, unix.Errno) {
	if size < 0 || size > maxAddress {
		return nil, unix.EINVAL
	}
	b := make([]byte, size)
	for n := 0; n < size; {
		got, e := readMemory(int(w.n.pid), at+uint64(n), b[n:])
		if e != 0 || got <= 0 {
			return nil, unix.EFAULT
		}
		n += got
	}
	return b, 0
}

func isUnix(a []byte) bool {
	return len(a) >= familySize && binary.NativeEndian.Uint16(a) == unix.AF_UNIX
}

// named returns the path that is in a, or "" if there is none: of another family, a
// name without a file, or what the kernel refuses for its length.
func named(a []byte) string {
	if !isUnix(a) || len(a) <= familySize || len(a) > familySize+maxName {
		return ""
	}
	name, _, _ := bytes.Cut(a[familySize:], []byte{0})
	return string(name)
}

func addressOf(name string) []byte {
	a := make([]byte, familySize, familySize+len(name)+1)
	binary.NativeEndian.PutUint16(a, unix.AF_UNIX)
	return append(append(a, name...), 0)
}

// pidfdThread is PIDFD_THREAD of include/uapi/linux/pidfd.h (Linux 6.9).
const pidfdThread = unix.O_EXCL

// socket gets hold of the caller's descriptor number itself.
func (w *worker) socket(number int32) (int, unix.Errno) {
	if number < 0 {
		return -1, unix.EBADF
	}
	process, err := unix.PidfdOpen(int(w.n.pid), pidfdThread)
	if errors.Is(err, unix.EINVAL) {
		text, e := w.status()
		if e != 0 {
			return -1, e
		}
		process, err = unix.PidfdOpen(int(toInt(strings.TrimSpace(field(text, "Tgid:\t")))), 0)
	}
	if err != nil {
		return -1, errnoOf(err)
	}
	defer unix.Close(process)
	fd, e := w.keep(unix.PidfdGetfd(process, int(number), 0))
	if e == 0 && !stillWaits(w.listener, w.n.id) {
		return -1, unix.ESRCH // it may have been another's
	}
	return fd, e
}

const ruleService = "a service that was not started in this box listens at this socket, which is the host's; start one in the box, in a directory of its own such as /tmp"

// ruleAbstract says why an abstract socket is not connected to, nor made.
const ruleAbstract = "abstract sockets are those of this machine, whose network the box was given"

// connect performs connect(2). It is never passed on: what is at a descriptor and in
// memory may change.
func (w *worker) connect(number int32, at uint64, size int) answer {
	a, e := w.address(at, size)
	if e != 0 {
		return refuse(e)
	}
	fd, e := w.socket(number)
	if e != 0 {
		return refuse(e)
	}
	path := named(a)
	if path == "" && isUnix(a) && w.shared {
		w.denials.add(Connect, "@"+string(a[min(len(a), familySize+1):]), ruleAbstract)
		return refuse(unix.ECONNREFUSED)
	}
	if path != "" {
		t, _, e := w.find(unix.AT_FDCWD, path, true)
		if e != 0 {
			return refuse(e)
		}
		if e := w.serves(t); e != 0 {
			return refuse(e)
		}
		a = addressOf(w.self + "/fd/" + itoa(t.handle))
	}
	return w.join(fd, a)
}

// serves reports whether t is a socket that the box may connect to: 0 if it is.
func (w *worker) serves(t thing) unix.Errno {
	st, err := facts(t.handle, "")
	id := identityOf(&st)
	switch {
	case err != nil:
		return errnoOf(err)
	case kindIn(&st) != unix.S_IFSOCK:
		return unix.ECONNREFUSED
	case w.services.private[[2]uint32{st.Dev_major, st.Dev_minor}], w.bound.has(id), w.services.allowed.has(id):
		return 0
	}
	w.denials.add(Connect, t.path, ruleService)
	return unix.EACCES
}

// join connects fd to a. Where the caller would wait, it does without a worker.
func (w *worker) join(fd int, a []byte) answer {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	switch {
	case err != nil:
		return result(err)
	case flags&unix.O_PATH != 0:
		return refuse(unix.EBADF)
	case flags&unix.O_NONBLOCK != 0:
		return refuse(connectTo(fd, a))
	}
	c := connecting{fd: fd, address: a}
	if c.limit, err = sendTimeout(fd); err != nil {
		return result(err)
	}
	e, over := c.attempt()
	if over {
		return refuse(e)
	}
	p := &worker{server: w.server, n: w.n, open: w.open}
	w.open = nil
	go p.await(c)
	return parked
}

// connecting is a connect(2) of a socket that blocks.
type connecting struct {
	fd      int
	address []byte
	limit   unix.Timeval // the caller's own, 0 if it waits for ever
}

// attempt connects for as long as the kernel's clock ticks once, and reports whether
// that decided it. What another thread of the caller sends over a socket that is not
// connected does not wait, so it does not see the limit that is set meanwhile.
func (c connecting) attempt() (e unix.Errno, over bool) {
	short := unix.Timeval{Usec: 1}
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &short); err != nil {
		return errnoOf(err), true
	}
	e = connectTo(c.fd, c.address)
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &c.limit); err != nil {
		return errnoOf(err), true
	}
	switch e {
	case unix.EINPROGRESS, unix.EALREADY, unix.EINTR:
		over = false
	case unix.EAGAIN:
		over = !isUnix(c.address) // of these it says that the listener's queue is full
	default:
		over = true
	}
	return e, over
}

// await goes on with c until it is decided, its limit is reached, the caller is gone, or
// a signal is waiting for it.
func (w *worker) await(c connecting) {
	defer func() {
		for _, fd := range w.open {
			unix.Close(fd)
		}
	}()
	begun, limit := time.Now(), time.Duration(c.limit.Nano())
	timer := time.NewTimer(firstPause)
	defer timer.Stop()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		<-timer.C
		if !stillWaits(w.listener, w.n.id) || w.over() {
			return
		}
		e, over := c.attempt()
		switch {
		case over:
		case limit > 0 && time.Since(begun) >= limit && isUnix(c.address):
			e, over = unix.EAGAIN, true
		case limit > 0 && time.Since(begun) >= limit:
			e, over = unix.EINPROGRESS, true
		case w.signalled():
			e, over = errRestart, true
			if limit > 0 {
				e = unix.EINTR
			}
		}
		if over {
			w.reply(w.n.id, refuse(e))
			return
		}
		timer.Reset(pause)
	}
}

// bind performs bind(2) where that makes a socket in our trees, which connect then
// knows again. Anything else is passed on: Landlock lets a program make none there.
func (w *worker) bind(number int32, at uint64, size int) answer {
	a, e := w.address(at, size)
	if w.shared {
		return w.bindShared(number, a, e)
	}
	path := named(a)
	if e != 0 || path == "" {
		return pass
	}
	s, e := w.parent(unix.AT_FDCWD, path)
	if e != 0 {
		return lost(path, e)
	}
	if s.base == "" || !w.inside(s.real) {
		return pass
	}
	fd, e := w.socket(number)
	if e != 0 {
		return refuse(e)
	}
	return w.bindAt(fd, s, path)
}

// bindShared performs bind(2) where names without a file are those of the machine, on
// which others would find the box in the place of a service. It passes on nothing: what
// is in memory, and which socket it is, may change.
func (w *worker) bindShared(number int32, a []byte, e unix.Errno) answer {
	if e != 0 {
		return refuse(e)
	}
	fd, e := w.socket(number)
	if e != 0 {
		return refuse(e)
	}
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	switch {
	case err != nil:
		return result(err)
	case family != unix.AF_UNIX:
		return refuse(bindTo(fd, a))
	case len(a) < familySize || !isUnix(a):
		return refuse(unix.EINVAL)
	}
	path := named(a)
	if path == "" {
		w.denials.add(Make, "@"+string(a[min(len(a), familySize+1):]), ruleAbstract)
		return refuse(unix.EACCES)
	}
	s, e := w.parent(unix.AT_FDCWD, path)
	if e != 0 {
		return refuse(e)
	}
	st, err := facts(s.dir, "")
	if err != nil || s.base == "" || !w.inside(s.real) && !w.services.private[[2]uint32{st.Dev_major, st.Dev_minor}] {
		return refuse(unix.EACCES)
	}
	return w.bindAt(fd, s, path)
}

// bindAt binds fd to s, if the rules allow it and nothing is there.
func (w *worker) bindAt(fd int, s spot, path string) answer {
	mask, e := w.umask(opening{flags: unix.O_CREAT})
	if e != 0 {
		return refuse(e)
	}
	w.order.Lock() // nothing else is renamed to it before we have seen it
	defer w.order.Unlock()
	if !w.settle(&s) {
		return astray
	}
	if _, there := w.kind(s); there || isDots(s.base) {
		return refuse(unix.EADDRINUSE)
	}
	if v := w.judge.check(Make, s.path(), false, w); v.Held() {
		return w.deny(Make, s.path(), v)
	}
	return result(w.bindHere(fd, s, path, mask))
}

// bindHere binds fd to s, which is not there, and remembers it. The order is held.
func (w *worker) bindHere(fd int, s spot, path string, mask uint32) error {
	name := path
	if path != s.path() {
		// A link could lead elsewhere by now. The name that the socket tells is then this.
		if name = w.self + "/fd/" + itoa(s.dir) + "/" + s.name; len(name) >= maxName {
			return unix.ENAMETOOLONG
		}
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return err
	}
	if err := w.masked(fd, mask, func() error { return unix.Bind(fd, &unix.SockaddrUnix{Name: name}) }); err != nil {
		return err
	}
	st, err := facts(s.dir, s.base)
	if err != nil || kindIn(&st) != unix.S_IFSOCK {
		return nil //nolint:nilerr // it is gone already, and nothing is remembered
	}
	// Where the program renames by itself, it may be another socket, but not a new one.
	born := st.Mask&unix.STATX_BTIME != 0 && (st.Btime.Sec > now.Sec || st.Btime.Sec == now.Sec && int64(st.Btime.Nsec) >= now.Nsec)
	if !w.unheld || born {
		w.bound.add(identityOf(&st))
	}
	return nil
}

// masked does what makes the file of a socket with the caller's mask: the kernel takes
// its mode from the socket, and the mask from us.
func (w *worker) masked(fd int, mask uint32, perform func() error) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return unix.ENOTSOCK
	}
	if err := unix.Fchmod(fd, st.Mode&0o777&^mask); err != nil {
		return err
	}
	return errors.Join(perform(), unix.Fchmod(fd, st.Mode&0o777))
}
