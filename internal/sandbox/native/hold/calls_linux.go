package hold

import (
	"maps"

	"golang.org/x/sys/unix"
)

// calls are what is performed, by number. Arguments are those of the system call;
// the kernel looks at the low 32 bits of descriptors, flags and modes.
var calls = func() map[int32]func(*worker) answer {
	m := map[int32]func(*worker) answer{
		unix.SYS_OPENAT: func(w *worker) answer {
			return w.openFile(w.fd(0), w.n.args[1], opening{flags: w.int(2), mode: w.mode(3)})
		},
		unix.SYS_MKDIRAT: func(w *worker) answer { return w.makeDir(w.fd(0), w.n.args[1], w.mode(2)) },
		unix.SYS_MKNODAT: func(w *worker) answer { return w.makeNode(w.fd(0), w.n.args[1], w.mode(2), w.mode(3)) },
		unix.SYS_SYMLINKAT: func(w *worker) answer {
			return w.makeLink(w.n.args[0], w.fd(1), w.n.args[2])
		},
		unix.SYS_LINKAT: func(w *worker) answer {
			return w.link(w.fd(0), w.n.args[1], w.fd(2), w.n.args[3], w.int(4))
		},
		unix.SYS_RENAMEAT: func(w *worker) answer {
			return w.rename(w.fd(0), w.n.args[1], w.fd(2), w.n.args[3], 0)
		},
		unix.SYS_RENAMEAT2: func(w *worker) answer {
			return w.rename(w.fd(0), w.n.args[1], w.fd(2), w.n.args[3], w.mode(4))
		},
		unix.SYS_UNLINKAT:  func(w *worker) answer { return w.remove(w.fd(0), w.n.args[1], w.int(2)) },
		unix.SYS_TRUNCATE:  func(w *worker) answer { return w.truncate(w.n.args[0], w.n.args[1]) },
		unix.SYS_FCHMOD:    func(w *worker) answer { return w.changeModeOf(max(w.fd(0), -1), w.mode(1)) },
		unix.SYS_FCHMODAT:  func(w *worker) answer { return w.changeMode(w.fd(0), w.n.args[1], w.mode(2), 0) },
		unix.SYS_FCHMODAT2: func(w *worker) answer { return w.changeMode(w.fd(0), w.n.args[1], w.mode(2), w.int(3)) },
		unix.SYS_UTIMENSAT: func(w *worker) answer { return w.changeTimes(w.fd(0), w.n.args[1], w.n.args[2], w.int(3)) },
		unix.SYS_CONNECT:   func(w *worker) answer { return w.connect(w.fd(0), w.n.args[1], w.int(2)) },
		unix.SYS_BIND:      func(w *worker) answer { return w.bind(w.fd(0), w.n.args[1], w.int(2)) },
		unix.SYS_UMASK:     func(w *worker) answer { return w.setUmask() },
	}
	maps.Copy(m, oldCalls)
	return m
}()

// fd, int and mode are argument i as the kernel takes it.
func (w *worker) fd(i int) int32    { return int32(w.n.args[i]) }
func (w *worker) int(i int) int     { return int(int32(w.n.args[i])) }
func (w *worker) mode(i int) uint32 { return uint32(w.n.args[i]) }
