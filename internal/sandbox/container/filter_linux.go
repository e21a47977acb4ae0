package container

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// The default filters of Docker and Podman are allow-lists that serve every
// container there is: depending on their age they let through 32-bit calls, ptrace,
// io_uring or new user namespaces. The stage adds what no box of ours needs. It
// can only add: the kernel takes the strictest answer of all filters (seccomp(2)).

// denied are the calls that fail with EPERM, whatever their arguments.
var denied = []uint32{
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	// Namespaces and mounts.
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_MOUNT_SETATTR,
	// Large and young parts of the kernel.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_FANOTIFY_INIT,
	// Keys, which have no namespace of their own.
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	// Files without a path.
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	// The machine.
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SYSLOG, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_VHANGUP, unix.SYS_LOOKUP_DCOOKIE,
}

// newNamespaces are the flags of clone(2) that make one.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Offsets in struct seccomp_data; the low half of an argument comes first on the
// machines below.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg0   = 16
	dataArg1   = 24
	dataArg2   = 32
)

// x32 is the bit of the numbers of the x32 ABI on amd64 (__X32_SYSCALL_BIT).
const x32 = 0x40000000

// Answers of a filter.
const (
	retAllow = unix.SECCOMP_RET_ALLOW
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
	retPerm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retNoSys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	retNoFam = unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func ret(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }

// jump goes yes or no instructions on from the next.
func jump(test uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jt: yes, Jf: no}
}

// filterFor returns the program for a machine with the audit number arch.
func filterFor(arch uint32) []unix.SockFilter {
	p := []unix.SockFilter{
		load(dataArch), jump(unix.BPF_JEQ, arch, 1, 0), ret(retKill),
		load(dataNumber), jump(unix.BPF_JGE, x32, 0, 1), ret(retKill),
		// Its flags are in memory, where a filter cannot look; libraries then use clone.
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), ret(retNoSys),
	}
	for _, n := range denied {
		p = append(p, jump(unix.BPF_JEQ, n, 0, 1), ret(retPerm))
	}
	return append(p,
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4),
		load(dataArg0), jump(unix.BPF_JSET, newNamespaces, 0, 1), ret(retPerm), ret(retAllow),
		jump(unix.BPF_JEQ, unix.SYS_IOCTL, 0, 5),
		load(dataArg1), jump(unix.BPF_JEQ, unix.TIOCSTI, 1, 0), jump(unix.BPF_JEQ, unix.TIOCLINUX, 0, 1), ret(retPerm), ret(retAllow),
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 0, 9),
		load(dataArg0),
		jump(unix.BPF_JEQ, unix.AF_UNIX, 6, 0), jump(unix.BPF_JEQ, unix.AF_INET, 5, 0), jump(unix.BPF_JEQ, unix.AF_INET6, 4, 0),
		jump(unix.BPF_JEQ, unix.AF_NETLINK, 0, 2),
		load(dataArg2), jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 1, 0),
		ret(retNoFam), ret(retAllow),
		ret(retAllow),
	)
}

// denyCalls installs the filter.
func denyCalls() error {
	switch runtime.GOARCH {
	case "amd64":
		return installFilter(filterFor(unix.AUDIT_ARCH_X86_64))
	case "arm64":
		return installFilter(filterFor(unix.AUDIT_ARCH_AARCH64))
	}
	return fmt.Errorf("there is no table for %s", runtime.GOARCH)
}
