//go:build unix && !solaris && !illumos && !aix

package ipc

import (
	"errors"
	"os"
	"syscall"
)

const (
	checksMode = true
	noFollow   = syscall.O_NOFOLLOW
)

// lockFile takes an flock, which belongs to the open file and is not inherited
// by programs we start.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// fileOwner is the user whose a file is.
func fileOwner(fi os.FileInfo) (uid int, ok bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
