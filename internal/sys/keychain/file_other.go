//go:build !unix

package keychain

import (
	"fmt"
	"io/fs"
)

const noFollow = 0

// checkFile checks what these systems tell: access lists are not read, so the
// file is as private as the directory it is in.
func checkFile(fi fs.FileInfo) error {
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", ErrUnsafeFile)
	}
	return nil
}

// syncDir does nothing: these systems cannot flush a directory.
func syncDir(string) error { return nil }
