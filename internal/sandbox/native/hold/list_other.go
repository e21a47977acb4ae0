//go:build !linux

package hold

import (
	"io/fs"
	"os"
)

// list calls each with the name and the type of the entries of dir until there were limit,
// and returns how many there were.
func list(dir string, limit int, _ []byte, each func(name []byte, kind fs.FileMode)) (n int, err error) {
	entries, err := readSome(dir, limit)
	for _, e := range entries {
		each([]byte(e.Name()), e.Type())
	}
	return len(entries), err
}

// kindAt returns the type bits of what is at p, as [os.Lstat] does.
func kindAt(p string) (fs.FileMode, error) {
	fi, err := os.Lstat(p)
	if err != nil {
		return 0, err
	}
	return fi.Mode().Type(), nil
}
