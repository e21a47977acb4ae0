package container

import (
	"os"
	"syscall"
)

// ownership is not asked for: paths of Windows are in no container of Linux.
func ownership(os.FileInfo) (uid, gid, links uint64) { return 0, 0, 0 }

// rootDir is the directory in which a process starts that is to keep no other.
const rootDir = `\`

// ownSession is what keeps the signals of a console from a process.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
