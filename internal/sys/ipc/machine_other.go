//go:build !unix || solaris || illumos || aix

package ipc

import (
	"errors"
	"os"
)

const (
	checksMode = false
	noFollow   = 0
)

// lockFile fails: without a lock nobody may listen (I1).
func lockFile(*os.File) error { return errors.ErrUnsupported }

func fileOwner(os.FileInfo) (uid int, ok bool) { return 0, false }
