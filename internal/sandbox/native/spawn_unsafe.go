//go:build linux

package native

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox/native/landlock"
)

// The steps of the program's process, in their order. Their names are in childSteps.
const (
	childSession = iota + 1
	childDeath
	childGroup
	childGroupSpace
	childDescriptors
	childTerminal
	childDirectory
	childLimits // the first of several: childLimits+i is limit i
	childLast   = childLimits + 64
)

const (
	childBounding = childLast + iota
	childSecurebits
	childCapabilities
	childNoNewPrivs
	childCanaryBefore
	childLandlock
	childCanaryAfter
	childSeccomp
	childExec
)

// A spawn is everything that the process of the program needs between fork and exec.
// All of it is made beforehand: that process allocates nothing.
type spawn struct {
	path, dir *byte
	argv, env []*byte
	files     []int32 // become descriptors 0, 1, 2, …; all numbers are above firstFD
	report    int32   // where outcomes go
	gate      int32   // what it waits at
	terminal  bool
	death     bool    // dies with the thread that forks it
	space     bool    // gets a cgroup namespace of its own
	groups    []int32 // "tasks" of control groups to join
	bounding  bool    // the bounding set can be emptied
	limits    []limit
	ruleset   int32
	flags     uint32 // of the ruleset
	canary    *byte  // what opens before the ruleset is in force, and must not after
	program   []unix.SockFilter
	prog      unix.SockFprog
	filter    uintptr // flags of seccomp(2)
	failAt    int32   // the step that fails on purpose, in tests
	none      sigaction
	rlimits   []unix.Rlimit
	caps      unix.CapUserHeader
	nothing   [2]unix.CapUserData
	go1       [1]byte
}

// A sigaction is struct sigaction of the kernel; zero is SIG_DFL.
type sigaction [4]uint64

// An outcome is what the process of the program reports: that it is confined and
// waits (step 0), or which step failed.
type outcome struct {
	step     int32
	errno    int32
	listener int32 // its descriptor for held calls, or -1
}

// Descriptors that the process of the program needs while it sets up are from here on.
const firstFD = 128

// What x/sys/unix lacks of linux/securebits.h: each bit and its lock. No uid 0 gains
// anything by being 0, and no ambient capability is raised.
const securebits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

const (
	eaccesWanted = int32(unix.EACCES)
	notDenied    = int32(unix.EEXIST) // the canary opened: Landlock is not in force
)

// prepare fills what needs pointers. After it nothing in s may be changed.
func (s *spawn) prepare() {
	s.prog = unix.SockFprog{Len: uint16(len(s.program)), Filter: unsafe.SliceData(s.program)}
	s.caps.Version = unix.LINUX_CAPABILITY_VERSION_3
	s.rlimits = make([]unix.Rlimit, len(s.limits))
	for i, l := range s.limits {
		s.rlimits[i] = unix.Rlimit{Cur: uint64(l.value), Max: uint64(l.value)}
	}
}

// fork makes the process of the program and returns its number. The caller is locked
// to its thread.
func (s *spawn) fork() (int, syscall.Errno) {
	// A signal between fork and exec would run our handlers in a process that has one
	// thread of them.
	all, old := ^uint64(0), uint64(0)
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), 8, 0, 0)
	pid, e := rawFork(s)
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&old)), 0, 8, 0, 0)
	runtime.KeepAlive(s)
	return pid, e
}

// rawFork is fork(2) by the kernel's own call. It returns in the parent only.
//
//go:noinline
//go:norace
//go:nocheckptr
func rawFork(s *spawn) (int, syscall.Errno) {
	pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		return int(pid), e
	}
	s.child()
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 253, 0, 0)
	}
}

// child is the process of the program. It has one thread, and whatever locks the
// other threads of its parent held are held for ever: only bare system calls are
// made, nothing is allocated, the stack does not grow.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (s *spawn) child() {
	var out outcome
	out.listener = -1
	for sig := uintptr(1); sig <= 64; sig++ {
		// Those that cannot be changed say so, which is no matter.
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&s.none)), 0, 8, 0, 0)
	}
	out.step, out.errno = s.surroundings()
	if out.step == 0 {
		out.step, out.errno = s.confine(&out.listener)
	}
	s.say(&out)
	if out.step != 0 {
		return
	}
	n, _, _ := syscall.RawSyscall(unix.SYS_READ, uintptr(s.gate), uintptr(unsafe.Pointer(&s.go1[0])), 1)
	if n != 1 || s.go1[0] != 1 {
		return
	}
	var none uint64
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&none)), 0, 8, 0, 0)
	out.step, out.errno = childExec, 0
	if s.failAt != childExec {
		_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(s.path)), uintptr(unsafe.Pointer(&s.argv[0])), uintptr(unsafe.Pointer(&s.env[0])))
		out.errno = int32(e)
	}
	s.say(&out)
}

//go:nosplit
//go:norace
//go:nocheckptr
func (s *spawn) say(out *outcome) {
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(s.report), uintptr(unsafe.Pointer(out)), unsafe.Sizeof(*out))
}

// surroundings gives the process its session, descriptors, directory and limits.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (s *spawn) surroundings() (step, errno int32) {
	var e syscall.Errno
	if s.failAt == childSession {
		return childSession, 0
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		return childSession, int32(e)
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_UMASK, programMask, 0, 0)
	if s.failAt == childDeath {
		return childDeath, 0
	}
	if s.death {
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0); e != 0 {
			return childDeath, int32(e)
		}
	}
	if step, errno = s.join(); step != 0 {
		return step, errno
	}
	if s.failAt == childDescriptors {
		return childDescriptors, 0
	}
	for i := 0; i < len(s.files); i++ {
		if _, _, e = syscall.RawSyscall(unix.SYS_DUP3, uintptr(s.files[i]), uintptr(i), 0); e != 0 {
			return childDescriptors, int32(e)
		}
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_CLOSE_RANGE, uintptr(len(s.files)), uintptr(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC); e != 0 {
		return childDescriptors, int32(e)
	}
	if s.failAt == childTerminal {
		return childTerminal, 0
	}
	if s.terminal {
		if _, _, e = syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); e != 0 {
			return childTerminal, int32(e)
		}
	}
	if s.failAt == childDirectory {
		return childDirectory, 0
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(s.dir)), 0, 0); e != 0 {
		return childDirectory, int32(e)
	}
	for i := 0; i < len(s.limits); i++ {
		if s.failAt == childLimits+int32(i) {
			return s.failAt, 0
		}
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(s.limits[i].resource), uintptr(unsafe.Pointer(&s.rlimits[i])), 0, 0, 0); e != 0 {
			return childLimits + int32(i), int32(e)
		}
	}
	return 0, 0
}

// join moves the process, which is one thread, into its control groups, and lets it
// see nothing above them.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (s *spawn) join() (step, errno int32) {
	if s.failAt == childGroup {
		return childGroup, 0
	}
	self := [2]byte{'0', '\n'}
	for i := 0; i < len(s.groups); i++ {
		if _, _, e := syscall.RawSyscall(unix.SYS_WRITE, uintptr(s.groups[i]), uintptr(unsafe.Pointer(&self)), 2); e != 0 {
			return childGroup, int32(e)
		}
	}
	if s.failAt == childGroupSpace {
		return childGroupSpace, 0
	}
	if s.space {
		if _, _, e := syscall.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP, 0, 0); e != 0 {
			return childGroupSpace, int32(e)
		}
	}
	return 0, 0
}

// confine takes away what the process could still do, the filter last.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (s *spawn) confine(listener *int32) (step, errno int32) {
	if step, errno = s.disarm(); step != 0 {
		return step, errno
	}
	if s.failAt == childCanaryBefore {
		return childCanaryBefore, 0
	}
	if e := open(s.canary); e != 0 {
		return childCanaryBefore, int32(e)
	}
	if s.failAt == childLandlock {
		return childLandlock, 0
	}
	if e := landlock.RawRestrict(int(s.ruleset), s.flags); e != 0 {
		return childLandlock, int32(e)
	}
	if s.failAt == childCanaryAfter {
		return childCanaryAfter, 0
	}
	if e := open(s.canary); e == 0 {
		return childCanaryAfter, notDenied
	} else if int32(e) != eaccesWanted {
		return childCanaryAfter, int32(e)
	}
	if s.failAt == childSeccomp {
		return childSeccomp, 0
	}
	fd, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, s.filter, uintptr(unsafe.Pointer(&s.prog)))
	if e != 0 {
		return childSeccomp, int32(e)
	}
	if s.filter&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
		*listener = int32(fd)
	}
	return 0, 0
}

// disarm drops every capability and all ways to gain one.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (s *spawn) disarm() (step, errno int32) {
	var e syscall.Errno
	if s.failAt == childBounding {
		return childBounding, 0
	}
	for c := uintptr(0); s.bounding && c <= 63; c++ {
		_, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0)
		if e == unix.EINVAL && c > unix.CAP_AUDIT_READ {
			break // the kernel has no more
		}
		if e != 0 {
			return childBounding, int32(e)
		}
	}
	if s.failAt == childSecurebits {
		return childSecurebits, 0
	}
	if s.bounding {
		if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, securebits, 0, 0, 0, 0); e != 0 {
			return childSecurebits, int32(e)
		}
	}
	if s.failAt == childCapabilities {
		return childCapabilities, 0
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&s.caps)), uintptr(unsafe.Pointer(&s.nothing)), 0); e != 0 {
		return childCapabilities, int32(e)
	}
	if s.failAt == childNoNewPrivs {
		return childNoNewPrivs, 0
	}
	if _, _, e = syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return childNoNewPrivs, int32(e)
	}
	return 0, 0
}

// open opens a file or directory for reading and closes it again.
//
//go:nosplit
//go:norace
//go:nocheckptr
func open(name *byte) syscall.Errno {
	at := unix.AT_FDCWD
	fd, _, e := syscall.RawSyscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(name)), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if e == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	}
	return e
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

// filterAll puts a seccomp program in force for all threads of this process, and
// no_new_privs with it.
func filterAll(program []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)}
	r, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if e != 0 {
		return e
	}
	if r != 0 {
		return unix.ESRCH // a thread that could not be synchronised; r is its number
	}
	return nil
}

// capsetAll sets the capabilities of all threads: keep, effective and permitted.
func capsetAll(keep uint64) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	low, high := uint32(keep), uint32(keep>>32)
	data := [2]unix.CapUserData{{Effective: low, Permitted: low}, {Effective: high, Permitted: high}}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data)), 0)
	runtime.KeepAlive(&head)
	runtime.KeepAlive(&data)
	if e == unix.ENOTSUP {
		return fmt.Errorf("this program was built with cgo, which has threads that cannot be confined; build it with CGO_ENABLED=0: %w", e)
	}
	if e != 0 {
		return e
	}
	return nil
}

// programBytes and programOf carry a seccomp program through a plan.
func programBytes(program []unix.SockFilter) string {
	size := int(unsafe.Sizeof(unix.SockFilter{})) * len(program)
	return string(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(program))), size))
}

func programOf(bytes string) ([]unix.SockFilter, bool) {
	size := int(unsafe.Sizeof(unix.SockFilter{}))
	if len(bytes) == 0 || len(bytes)%size != 0 || len(bytes)/size > 4096 {
		return nil, false
	}
	program := make([]unix.SockFilter, len(bytes)/size)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&program[0])), len(bytes)), bytes)
	return program, true
}

func (o *outcome) read(b []byte) bool {
	if len(b) != int(unsafe.Sizeof(*o)) {
		return false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(o)), len(b)), b)
	return true
}
