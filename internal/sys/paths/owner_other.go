//go:build !unix

package paths

import (
	"io/fs"
	"os"
)

// checksMode is false where permission bits say nothing about other users.
const checksMode = false

// owner reports that the owner is not known.
func owner(fs.FileInfo) (uid int, known bool) { return 0, false }

// isDir reports whether p is a directory, and no link to one.
func isDir(p string) bool {
	fi, err := os.Lstat(p)
	return err == nil && fi.IsDir()
}
