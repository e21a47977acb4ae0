//go:build unix

package container

import (
	"os"
	"syscall"
)

// ownership returns the user and group that fi belongs to, and how many names it
// has.
func ownership(fi os.FileInfo) (uid, gid, links uint64) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, 0
	}
	return uint64(st.Uid), uint64(st.Gid), uint64(st.Nlink) //nolint:unconvert // its width is not the same everywhere
}

// rootDir is a directory that is there for as long as the machine is.
const rootDir = "/"

// ownSession is what keeps the signals of a terminal from a process.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
