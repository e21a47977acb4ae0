package native

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Without a namespace of its own, the death of no process is that of a box: what left its
// session and lost its parent is nobody's. So the stage traces all that runs in it, for the
// one thing that the kernel does for tracers: when the tracer is gone, however it went, it
// kills what was traced (PTRACE_O_EXITKILL, ptrace(2)). What a traced process starts is
// traced from its first instruction on; the filter refuses CLONE_UNTRACED.
const traceOptions = unix.PTRACE_O_EXITKILL | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE

// layerTree is what keeps the processes of a box from outliving it.
const layerTree = "process-tree"

// trace makes this thread the tracer of the program's process, which waits. Where that is
// not allowed (kernel.yama.ptrace_scope=3, the filter of a container) the report says so.
func (s *stage) trace() error {
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(s.pid), 0, traceOptions, 0, 0)
	if e == unix.EPERM || e == unix.EACCES || e == unix.ENOSYS {
		return nil
	}
	if e != 0 {
		return e
	}
	s.traced = true
	return nil
}

// goOn lets a process or thread of the box go on that has stopped for its tracer, as if it
// had none: a signal is delivered, what was stopped by one stays so until it is continued.
func (s *stage) goOn(pid int, status unix.WaitStatus) error {
	request, signal := uintptr(unix.PTRACE_CONT), uintptr(0)
	switch event := uint32(status) >> 16; {
	case event == 0:
		signal = uintptr(status.StopSignal())
	case event == unix.PTRACE_EVENT_STOP && status.StopSignal() != unix.SIGTRAP:
		request = unix.PTRACE_LISTEN
	}
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, request, uintptr(pid), 0, signal, 0, 0)
	if e != 0 && !errors.Is(e, unix.ESRCH) { // it was killed meanwhile
		return e
	}
	return nil
}
