//go:build linux

package paths

import (
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

// noKeys goes up from the clean absolute path p as long as there is nothing where the keys
// of a home are, and returns the directory where it stopped: something is there, or it
// could not be found out, or the name is that of a home. "" is none. One system call for
// each directory, and one allocation for all, as every decision about a path comes here.
func noKeys(p string) string {
	if strings.IndexByte(p, 0) >= 0 {
		return p
	}
	text := make([]byte, len(p)+len(keysIn)+1)
	for ; len(p) > 1; p = above(p) {
		if strings.HasSuffix(p, "/"+DefaultName) {
			return p
		}
		text[copy(text[copy(text, p):], keysIn)+len(p)] = 0
		if !nothing(text) {
			return p
		}
	}
	return ""
}

// nothing reports whether the system says that there is nothing at the path that text
// begins with, up to a zero byte. It asks what a link there leads to, since that is the
// quickest of all questions whose answer can be that nothing is there.
func nothing(text []byte) bool {
	const here = ^uintptr(99) // AT_FDCWD, -100
	var room byte
	_, _, err := syscall.Syscall6(syscall.SYS_READLINKAT, here, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&room)), 1, 0, 0)
	runtime.KeepAlive(text)
	return err == syscall.ENOENT || err == syscall.ENOTDIR
}
