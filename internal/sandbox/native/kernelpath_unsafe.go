//go:build darwin

package native

import (
	"bytes"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pathMax is MAXPATHLEN (sys/param.h): what F_GETPATH writes at most.
const pathMax = 1024

// pathOf returns the path that the kernel keeps for an open file: without links, and in
// the letter case of the volume (fcntl(2), F_GETPATH). It is what Seatbelt compares.
func pathOf(fd int) (string, error) {
	buf := new([pathMax]byte)
	// The address of a value on the heap does not change.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPATH, int(uintptr(unsafe.Pointer(buf)))); err != nil {
		return "", err
	}
	runtime.KeepAlive(buf)
	path, _, _ := bytes.Cut(buf[:], []byte{0})
	return string(path), nil
}
