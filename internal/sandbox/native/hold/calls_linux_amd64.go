package hold

import "golang.org/x/sys/unix"

const nativeArch = unix.AUDIT_ARCH_X86_64

// oldCalls are the calls that newer architectures do not have.
var oldCalls = map[int32]func(*worker) answer{
	unix.SYS_OPEN: func(w *worker) answer {
		return w.openFile(unix.AT_FDCWD, w.n.args[0], opening{flags: w.int(1), mode: w.mode(2)})
	},
	unix.SYS_CREAT: func(w *worker) answer {
		return w.openFile(unix.AT_FDCWD, w.n.args[0], opening{flags: unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC, mode: w.mode(1)})
	},
	unix.SYS_MKDIR:   func(w *worker) answer { return w.makeDir(unix.AT_FDCWD, w.n.args[0], w.mode(1)) },
	unix.SYS_MKNOD:   func(w *worker) answer { return w.makeNode(unix.AT_FDCWD, w.n.args[0], w.mode(1), w.mode(2)) },
	unix.SYS_SYMLINK: func(w *worker) answer { return w.makeLink(w.n.args[0], unix.AT_FDCWD, w.n.args[1]) },
	unix.SYS_LINK: func(w *worker) answer {
		return w.link(unix.AT_FDCWD, w.n.args[0], unix.AT_FDCWD, w.n.args[1], 0)
	},
	unix.SYS_RENAME: func(w *worker) answer {
		return w.rename(unix.AT_FDCWD, w.n.args[0], unix.AT_FDCWD, w.n.args[1], 0)
	},
	unix.SYS_UNLINK: func(w *worker) answer { return w.remove(unix.AT_FDCWD, w.n.args[0], 0) },
	unix.SYS_RMDIR:  func(w *worker) answer { return w.remove(unix.AT_FDCWD, w.n.args[0], removeDir) },
	unix.SYS_CHMOD:  func(w *worker) answer { return w.changeMode(unix.AT_FDCWD, w.n.args[0], w.mode(1), 0) },
}
