package hold

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxPath  = 4096 // PATH_MAX, with the NUL
	maxLinks = 40   // MAXSYMLINKS
)

// lost is the answer where path could not be found. It is what the kernel would
// say, but for what leads each process somewhere else: that, the kernel says itself.
// To pass everything on would be wrong: another thread may have made the path
// meanwhile, and Landlock, which allows no change, would refuse what is allowed.
func lost(path string, e unix.Errno) answer {
	if e == unix.ELOOP || strings.HasPrefix(path, "/proc/") {
		return pass
	}
	return refuse(e)
}

// A spot is the place of a file: a directory that we hold, and a name in it.
type spot struct {
	dir  int
	real string // path of dir
	name string // as the caller wrote it, slashes at its end included
	base string // name without these; "" for the root directory
	seen int64  // how many directories we had moved before real was looked up
}

// path is the real path of the file, which may not be there.
func (s spot) path() string { return join(s.real, s.base) }

// plain reports whether the name is one that a directory can have an entry of.
func (s spot) plain() bool {
	return s.base == s.name && s.base != "" && s.base != "." && s.base != ".."
}

// string reads the string at address at in the caller's memory.
func (w *worker) string(at uint64) (string, unix.Errno) {
	page := uint64(4096)
	for n := 0; n < maxPath; {
		// One page at a time: the next may not be there.
		end := min(maxPath, n+int(page-(at+uint64(n))%page))
		got, e := readMemory(int(w.n.pid), at+uint64(n), w.text[n:end])
		if e != 0 {
			return "", e
		}
		if i := bytes.IndexByte(w.text[n:n+got], 0); i >= 0 {
			return string(w.text[:n+i]), 0
		}
		n += got
	}
	return "", unix.ENAMETOOLONG
}

// errnoOf returns what a system call said; EPERM for what it cannot have said.
func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return unix.EPERM
}

// keep remembers fd as a handle of this call, to be closed at its end.
func (w *worker) keep(fd int, err error) (int, unix.Errno) {
	if err != nil {
		return -1, errnoOf(err)
	}
	w.open = append(w.open, fd)
	return fd, 0
}

// of opens what /proc/<caller>/name is.
func (w *worker) of(name string, flags int) (int, unix.Errno) {
	return w.keep(unix.Openat(w.proc, itoa(int(w.n.pid))+name, unix.O_PATH|unix.O_CLOEXEC|flags, 0))
}

// descriptor opens what number is in the caller's table of descriptors.
func (w *worker) descriptor(number int32, flags int) (int, unix.Errno) {
	if number < 0 {
		return -1, unix.EBADF
	}
	fd, e := w.of("/fd/"+itoa(int(number)), flags)
	if e == unix.ENOENT {
		e = unix.EBADF
	}
	return fd, e
}

// start opens what a caller means by dirfd: a descriptor, or its working directory.
func (w *worker) start(dirfd int32, flags int) (int, unix.Errno) {
	if dirfd == unix.AT_FDCWD {
		return w.of("/cwd", flags)
	}
	return w.descriptor(dirfd, flags)
}

// parent finds the directory that path is in, for a caller who gives it relative to
// dirfd.
func (w *worker) parent(dirfd int32, path string) (spot, unix.Errno) {
	gone := unix.EBADF // what it is if nothing has the number dirfd
	if strings.HasPrefix(path, "/") {
		dirfd, path = w.through(path)
		gone = unix.ENOENT
	}
	switch {
	case path == "":
		return spot{}, unix.ENOENT
	case path[0] == '/':
		return w.parentAt(unix.AT_FDCWD, "", path)
	case dirfd == unix.AT_FDCWD && len(path) < maxPath/2:
		return w.parentAt(w.proc, itoa(int(w.n.pid))+"/cwd/", path) // two steps in one
	}
	base, e := w.start(dirfd, unix.O_DIRECTORY)
	if e == 0 {
		return w.parentAt(base, "", path)
	}
	if e == unix.EBADF {
		e = gone
	}
	return spot{}, e
}

// through goes the first step of a path if that is one through what the caller has open:
// /proc/self/fd/5/a is a in its descriptor 5, /proc/self/cwd/a in its working directory.
// Programs write so where an address is too short for a path, or no link may lead them
// astray (Bun's mkdir). A name that ends there is another matter: see own.
func (w *worker) through(path string) (dirfd int32, rest string) {
	for _, self := range [...]string{"/proc/self/", "/proc/thread-self/", "/proc/" + itoa(int(w.n.pid)) + "/", "/dev/"} {
		name, ok := strings.CutPrefix(path, self)
		if !ok {
			continue
		}
		dirfd = unix.AT_FDCWD
		name, rest, _ = strings.Cut(name, "/")
		if name == "fd" {
			name, rest, _ = strings.Cut(rest, "/")
			dirfd = toInt(name)
			ok = dirfd >= 0 && name == itoa(int(dirfd))
		} else {
			ok = name == "cwd" && self != "/dev/"
		}
		if rest = strings.TrimLeft(rest, "/"); ok && rest != "" {
			return dirfd, rest
		}
	}
	return unix.AT_FDCWD, path
}

// parentAt is parent with a directory of our own. lead leads from there to where
// path begins. But in it no link of /proc that leads a process to what it has open
// is followed: it would lead us.
func (w *worker) parentAt(base int, lead, path string) (spot, unix.Errno) {
	end := len(path)
	for end > 0 && path[end-1] == '/' {
		end--
	}
	at := strings.LastIndexByte(path[:end], '/') + 1
	s := spot{dir: base, name: path[at:], base: path[at:end], seen: w.moved.Load()}
	if dir := lead + path[:at]; dir != "" || base == unix.AT_FDCWD {
		if dir == "" {
			dir = "/"
		}
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC}
		if lead == "" {
			how.Resolve = unix.RESOLVE_NO_MAGICLINKS
		}
		var e unix.Errno
		if s.dir, e = w.keep(unix.Openat2(base, dir, &how)); e != 0 {
			return spot{}, e
		}
	}
	var e unix.Errno
	s.real, e = w.real(s.dir)
	return s, e
}

// real returns the path of what fd is, without links.
func (w *worker) real(fd int) (string, unix.Errno) {
	n, err := unix.Readlinkat(w.fds, itoa(fd), w.text[:])
	if err != nil {
		return "", errnoOf(err)
	}
	return string(w.text[:n]), 0
}

// follow goes one link further: from s, which is one, to the place that it names.
func (w *worker) follow(s spot) (spot, unix.Errno) {
	n, err := unix.Readlinkat(s.dir, s.base, w.text[:])
	if err != nil {
		return spot{}, errnoOf(err)
	}
	switch target := string(w.text[:n]); {
	case target == "":
		return spot{}, unix.ENOENT
	case target[0] == '/':
		return w.parentAt(unix.AT_FDCWD, "", target)
	default:
		return w.parentAt(s.dir, "", target)
	}
}

// own returns the number of the caller's descriptor that s is a name of, as
// /proc/self/fd/5 is, or -1. Where we looked such a name up it led to ourselves.
func (w *worker) own(s spot) (number int32) {
	of, ok := strings.CutSuffix(s.real, "/fd")
	if !ok || !s.plain() || of != w.self && !strings.HasPrefix(of, w.self+"/task/") && of != "/proc/"+itoa(int(w.n.pid)) {
		return -1
	}
	n, err := strconv.ParseInt(s.base, 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// A thing is a file that is there.
type thing struct {
	handle int
	path   string // real
	mode   uint32
	seen   int64 // as of a spot
}

func (t thing) isLink() bool { return t.mode&unix.S_IFMT == unix.S_IFLNK }

func (w *worker) thing(handle int) (thing, unix.Errno) {
	seen := w.moved.Load()
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return thing{}, errnoOf(err)
	}
	real, e := w.real(handle)
	return thing{handle: handle, path: real, mode: st.Mode, seen: seen}, e
}

// find opens the file that path names; a link is followed if links are. Each link
// on the way is in via.
func (w *worker) find(dirfd int32, path string, links bool) (t thing, via []spot, e unix.Errno) {
	s, e := w.parent(dirfd, path)
	for range maxLinks {
		if e != 0 {
			return thing{}, nil, e
		}
		var handle int
		if number := w.own(s); number >= 0 {
			handle, e = w.descriptor(number, 0)
		} else {
			handle, e = w.keep(unix.Openat(s.dir, orDot(s.base), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0))
		}
		if e != 0 {
			return thing{}, nil, e
		}
		if t, e = w.thing(handle); e != 0 {
			return thing{}, nil, e
		}
		slash := len(s.name) > len(s.base)
		if !t.isLink() {
			if slash && t.mode&unix.S_IFMT != unix.S_IFDIR {
				return thing{}, nil, unix.ENOTDIR
			}
			return t, via, 0
		}
		if !links && !slash {
			return t, via, 0
		}
		via = append(via, s)
		s, e = w.follow(s)
	}
	return thing{}, nil, unix.ELOOP
}

// orDot is the name of the directory itself where there is none: that of the root.
func orDot(name string) string {
	if name == "" {
		return "."
	}
	return name
}

// enter takes the order for something to be done to s, and returns what gives it
// back. What could make a git directory of another is done alone: two that do so
// together would each not see what the other adds.
func (w *worker) enter(s spot) (leave func()) {
	if shapeNames[strings.ToLower(s.base)] {
		w.order.Lock()
		return w.order.Unlock
	}
	w.order.RLock()
	return w.order.RUnlock
}

// ask asks the rules. The order is held. Repositories that we cannot remember may
// not come into being: what is in them would not be on record.
func (w *worker) ask(op Op, path string, whole bool) Verdict {
	v := w.judge.check(op, path, whole, w)
	if v.Born != "" && w.born.full() {
		return Verdict{Rule: ruleMany}
	}
	return v
}

// settle makes the paths of spots what they are now, and reports whether each is
// still in our trees if it was. The order is held, so from here on they stay.
func (w *worker) settle(spots ...*spot) bool {
	for _, s := range spots {
		if s.seen == w.moved.Load() {
			continue
		}
		was := w.inside(s.real)
		now, e := w.real(s.dir)
		if e != 0 || w.inside(now) != was {
			return false
		}
		s.real, s.seen = now, w.moved.Load()
	}
	return true
}

// settleThing is settle for what is there.
func (w *worker) settleThing(t *thing) bool {
	s := spot{dir: t.handle, real: t.path, seen: t.seen}
	ok := w.settle(&s)
	t.path = s.real
	return ok
}

// astray is the answer where a directory was moved out of our trees, or into them,
// while somebody did something in it.
var astray = refuse(unix.ENOENT)

// inside reports whether path is in a tree that we answer for.
func (s *server) inside(path string) bool { return s.judge.root(path) != "" }
