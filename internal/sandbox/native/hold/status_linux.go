package hold

import (
	"bytes"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A mask knows the umask of who calls. As long as nobody in the box has set one,
// everybody has the first.
type mask struct {
	first uint32
	set   atomic.Bool
}

// umask returns what is taken off the mode of a file that the caller makes. It is
// also taken off where the directory has a default access list, which would do in
// its place.
func (w *worker) umask(o opening) (uint32, unix.Errno) {
	if o.flags&(unix.O_CREAT|tmpfileBit) == 0 || !w.unheld && !w.mask.set.Load() {
		return w.mask.first, 0
	}
	text, e := w.status()
	if e != 0 {
		return 0, e
	}
	n, err := strconv.ParseUint(field(text, "Umask:\t"), 8, 32)
	if err != nil {
		return 0, unix.ESRCH
	}
	return uint32(n), 0
}

// setUmask is umask(2) itself, which concerns the caller only.
func (w *worker) setUmask() answer {
	w.mask.set.Store(true)
	return pass
}

// signalled reports whether the caller has a signal to attend to: one that is
// pending, not blocked, and not ignored.
func (w *worker) signalled() bool {
	text, e := w.status()
	if e != 0 {
		return true
	}
	bits := func(name string) uint64 {
		n, _ := strconv.ParseUint(field(text, name), 16, 64) // 0 if it is not there
		return n
	}
	return (bits("SigPnd:\t")|bits("ShdPnd:\t"))&^bits("SigBlk:\t")&^bits("SigIgn:\t") != 0
}

// status reads /proc/<caller>/status.
func (w *worker) status() ([]byte, unix.Errno) {
	fd, err := unix.Openat(w.proc, itoa(int(w.n.pid))+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, unix.ESRCH
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, w.text[:])
	if err != nil {
		return nil, unix.ESRCH
	}
	return w.text[:n], 0
}

// field returns what follows name in text, up to the end of the line.
func field(text []byte, name string) string {
	_, rest, _ := bytes.Cut(text, []byte("\n"+name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(line)
}

func itoa(n int) string { return strconv.Itoa(n) }

// toInt is the number that s is, or -1.
func toInt(s string) int32 {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return -1
	}
	return int32(n)
}
