//go:build unix

package keychain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// A FIFO in place of the file must not block the open.
const noFollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// checkFile holds K1 against an open file.
func checkFile(fi fs.FileInfo) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("%w: its owner is not known", ErrUnsafeFile)
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%w: not a regular file", ErrUnsafeFile)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%w: it belongs to user %d, and this is user %d", ErrUnsafeFile, st.Uid, os.Geteuid())
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: others may use it (mode %04o, want 0600)", ErrUnsafeFile, fi.Mode().Perm())
	case st.Nlink != 1:
		return errSeveralNames
	}
	return nil
}

// syncDir puts the names in dir on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
