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
