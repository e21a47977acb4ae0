package database

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData puts the content of f, and what is needed to read it, on disk.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return err
		}
	}
}
