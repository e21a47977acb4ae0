//go:build unix

package paths

import (
	"io/fs"
	"syscall"
)

const checksMode = true

// owner returns the user id that owns fi.
func owner(fi fs.FileInfo) (uid int, known bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// isDir reports whether p is a directory, and no link to one.
func isDir(p string) bool {
	var st syscall.Stat_t
	for {
		err := syscall.Lstat(p, &st)
		if err != syscall.EINTR {
			return err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR
		}
	}
}
