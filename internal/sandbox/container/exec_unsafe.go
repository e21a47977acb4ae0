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
// process, which must have no_new_privs.
func installFilter(program []unix.SockFilter) error {
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	r, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	if r != 0 {
		return fmt.Errorf("thread %d has another filter", r)
	}
	return nil
}
