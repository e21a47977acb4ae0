package inplace

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData puts the content of f on disk, and not the time at which it was changed.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return err
		}
	}
}
