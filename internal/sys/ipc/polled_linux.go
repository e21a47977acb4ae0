package ipc

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// polled opens a pipe anew, so that only our use of it is changed. A socket cannot
// be opened anew, and is left alone if it is one of the others too: other processes
// write to those.
func polled(f *os.File, others []*os.File) (*os.File, func()) {
	as, done := f, func() {}
	fi, err := f.Stat()
	raw, rerr := f.SyscallConn()
	if err != nil || rerr != nil {
		return as, done
	}
	_ = raw.Control(func(fd uintptr) { // its error is that f is closed, as who reads will see
		switch mode := fi.Mode(); {
		case mode&fs.ModeNamedPipe != 0:
			flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
			if err != nil {
				return
			}
			again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(fd)), flags&unix.O_ACCMODE|unix.O_NONBLOCK, 0)
			if err == nil {
				as, done = again, func() { _ = again.Close() }
			}
		case mode&fs.ModeSocket != 0:
			for _, o := range others {
				if other, err := o.Stat(); err != nil || os.SameFile(fi, other) {
					return
				}
			}
			own, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return
			}
			if syscall.SetNonblock(own, true) != nil {
				_ = unix.Close(own)
				return
			}
			as = os.NewFile(uintptr(own), f.Name())
			done = func() {
				_ = syscall.SetNonblock(own, false)
				_ = as.Close()
			}
		}
	})
	return as, done
}
