//go:build linux

package container

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An execution is a call of execve with everything in place, because under a limit
// of address space there may be no room for more.
type execution struct {
	path      *byte
	argv, env []*byte
}

func newExecution(o order) (*execution, error) {
	path, err := unix.BytePtrFromString(string(o.Argv[0]))
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	x := &execution{path: path}
	for list, words := range map[*[]*byte][][]byte{&x.argv: o.Argv, &x.env: o.Env} {
		for _, w := range words {
			p, err := unix.BytePtrFromString(string(w))
			if err != nil {
				return nil, fmt.Errorf("arguments and environment: %w", err)
			}
			*list = append(*list, p)
		}
		*list = append(*list, nil)
	}
	return x, nil
}

// exec becomes the program, or returns why not.
func (x *execution) exec() syscall.Errno {
	_, _, errno := syscall.RawSyscall(syscall.SYS_EXECVE,
		uintptr(unsafe.Pointer(x.path)), uintptr(unsafe.Pointer(&x.argv[0])), uintptr(unsafe.Pointer(&x.env[0])))
	runtime.KeepAlive(x)
	return errno
}

// installFilter adds a program to the seccomp filters of every thread of this
// process, which must have no_new_privs. With SECCOMP_FILTER_FLAG_NEW_LISTENER among
// flags it returns a descriptor, close-on-exec.
func installFilter(program []unix.SockFilter, flags uintptr) (int, error) {
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	r, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return -1, errno
	}
	if r != 0 && flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER == 0 {
		return -1, fmt.Errorf("thread %d has another filter", r)
	}
	return int(r), nil
}

// grantListing lets the directory behind fd, and all beneath it, be listed under a
// ruleset: a right of its own, which package landlock gives out with reading only.
func grantListing(ruleset, fd int) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: unix.LANDLOCK_ACCESS_FS_READ_DIR, Parent_fd: int32(fd)}
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// readsMemory copies a byte of this process by the call that copies those of others.
func readsMemory() error {
	from, to := []byte{1}, []byte{0}
	local := []unix.Iovec{{Base: &to[0], Len: 1}}
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from[0])), Len: 1}}
	n, err := unix.ProcessVMReadv(unix.Getpid(), local, remote, 0)
	runtime.KeepAlive(from)
	if err == nil && (n != 1 || to[0] != 1) {
		err = unix.EIO
	}
	return err
}
