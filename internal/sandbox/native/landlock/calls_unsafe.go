//go:build linux

package landlock

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// portAttr is struct landlock_net_port_attr of include/uapi/linux/landlock.h, which
// x/sys/unix lacks.
type portAttr struct {
	allowed uint64
	port    uint64
}

const (
	rulePathBeneath = 1
	ruleNetPort     = 2 // ABI 4
)

func createRuleset(attr *unix.LandlockRulesetAttr, size uintptr, flags uintptr) (int, syscall.Errno) {
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(attr)), size, flags)
	return int(fd), e
}

// The size of attr is that of the newest ABI known here: an older kernel takes it as
// long as what it does not know is zero (Documentation/userspace-api/landlock.rst).
func makeRuleset(attr unix.LandlockRulesetAttr) (int, syscall.Errno) {
	return createRuleset(&attr, unsafe.Sizeof(attr), 0)
}

func addPath(ruleset, fd int, allowed uint64) syscall.Errno {
	// The kernel's struct is packed: 12 bytes. The fields stand at the same places.
	attr := unix.LandlockPathBeneathAttr{Allowed_access: allowed, Parent_fd: int32(fd)}
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), rulePathBeneath, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return e
}

func addPort(ruleset int, port uint16, allowed uint64) syscall.Errno {
	attr := portAttr{allowed: allowed, port: uint64(port)}
	_, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), ruleNetPort, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return e
}

// RawRestrict is the bare call that puts ruleset fd in force for the calling thread:
// for a process between fork and exec. It allocates nothing and does not enter the
// scheduler. fd and flags are those of [Ruleset.FD] and [Ruleset.Flags];
// no_new_privs must be set before.
//
//go:nosplit
//go:norace
func RawRestrict(fd int, flags uint32) syscall.Errno {
	_, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(fd), uintptr(flags), 0)
	return e
}

// RawProbe is the bare call behind [Canary]. name is a NUL-terminated path. It
// returns 0 when the directory could be opened (and closes it), else what the kernel
// said.
//
//go:nosplit
//go:norace
func RawProbe(name *byte) syscall.Errno {
	const cwd = -0x64 // AT_FDCWD, as a variable so that it converts
	at := cwd
	fd, _, e := syscall.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0, 0, 0)
	if e == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	}
	return e
}
