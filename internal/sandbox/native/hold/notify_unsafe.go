//go:build linux

package hold

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The structures of include/uapi/linux/seccomp.h.

// notification is struct seccomp_notif.
type notification struct {
	id    uint64
	pid   uint32 // of the thread, in our PID namespace; 0 if it is not in it
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// addition is struct seccomp_notif_addfd.
type addition struct {
	id       uint64
	flags    uint32
	ours     uint32
	theirs   uint32
	newFlags uint32
}

// What x/sys/unix lacks of the same file.
const (
	ioctlIDValid  = 0x40082102
	ioctlAddFD    = 0x40182103
	ioctlSetFlags = 0x40082104
)

// receive blocks until a thread waits for an answer. ENOENT: it died meanwhile, or,
// from Linux 6.11, nobody is left.
func receive(listener int, n *notification) unix.Errno {
	*n = notification{}
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(n)))
	return e
}

// send answers. A signal may come between.
func send(listener int, r *response) unix.Errno {
	for {
		_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(r)))
		if e != unix.EINTR {
			return e
		}
	}
}

// stillWaits reports whether the thread behind id waits for its answer, so that
// what was read by its number was read of it.
func stillWaits(listener int, id uint64) bool {
	for {
		_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(listener), ioctlIDValid, uintptr(unsafe.Pointer(&id)))
		if e != unix.EINTR {
			return e == 0
		}
	}
}

// give answers with a descriptor: that of ours, in the table of the thread that
// waits (Linux 5.14). A signal that came while the kernel waits for that thread
// would have it return 0 in place of the descriptor (kernel/seccomp.c,
// seccomp_notify_addfd: the request is taken back, the reply is not), so none may.
func give(listener int, a *addition) unix.Errno {
	a.flags = unix.SECCOMP_ADDFD_FLAG_SEND
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return unix.EPERM
	}
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), ioctlAddFD, uintptr(unsafe.Pointer(a)))
	// It cannot fail: the mask is one that the kernel gave.
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	return e
}

// wakeHere asks the kernel to run who waits on the processor that answers (Linux
// 6.6): both wait for each other anyway.
func wakeHere(listener int) {
	// An older kernel is slower, and that is all.
	_, _, _ = unix.RawSyscall(unix.SYS_IOCTL, uintptr(listener), ioctlSetFlags, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
}

// connectTo is connect(2) with a sockaddr as it is in memory. It may block as long as
// the socket's SO_SNDTIMEO.
func connectTo(fd int, a []byte) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(len(a)))
	return e
}

// bindTo is bind(2) with a sockaddr as it is in memory.
func bindTo(fd int, a []byte) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(len(a)))
	return e
}

// sendTimeout is SO_SNDTIMEO of a socket.
func sendTimeout(fd int) (unix.Timeval, error) {
	var tv unix.Timeval
	size := uint32(unsafe.Sizeof(tv))
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_SNDTIMEO,
		uintptr(unsafe.Pointer(&tv)), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return tv, e
	}
	return tv, nil
}

// readMemory copies from address at of thread tid into b, up to the first page
// that cannot be read, and returns how much it copied.
func readMemory(tid int, at uint64, b []byte) (int, unix.Errno) {
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	remote := unix.RemoteIovec{Base: uintptr(at), Len: len(b)}
	n, _, e := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	return int(n), e
}
