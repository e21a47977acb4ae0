package filter

import "golang.org/x/sys/unix"

// Flags and modes, equal on both architectures. The kernel looks at the low 32 bits
// of all of them.
const (
	// cloneNamespaces are the flags of clone that make a namespace. CLONE_NEWTIME is
	// a signal number there, and a flag only of clone3 and unshare.
	cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	cloneThread = unix.CLONE_THREAD
	// cloneRefused adds what leaves the tracer of a box without namespaces behind.
	cloneRefused = cloneNamespaces | unix.CLONE_UNTRACED

	// tmpfile is __O_TMPFILE: O_TMPFILE is that and O_DIRECTORY.
	tmpfile  = 0x400000
	creating = unix.O_CREAT | tmpfile
	changing = unix.O_ACCMODE | unix.O_TRUNC

	setID = unix.S_ISUID | unix.S_ISGID

	addrNoRandomize  = 0x0040000  // include/uapi/linux/personality.h
	personalityQuery = 0xffffffff // personality(2)

	seccompSetFilter   = unix.SECCOMP_SET_MODE_FILTER
	seccompNewListener = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
)

const textMode = "no set-user-ID or set-group-ID bit"

// control checks fcntl.
var control = check{
	clauses: []clause{{tests: []test{is(1, unix.F_SETLEASE, unix.F_NOTIFY, unix.F_SETDELEG)}, then: refused}},
	text:    "no leases, no notices",
}

// noSetID refuses a mode that lets others run a file as its owner.
func noSetID(mode uint8) clause {
	return clause{tests: []test{has(mode, setID)}, then: refused}
}

// held hands everything over where names are held.
var held = check{clauses: []clause{{when: hold, then: notify}}}

// modes checks the calls that set one.
func modes(mode uint8) check {
	return check{clauses: []clause{noSetID(mode), {when: hold, then: notify}}, text: textMode}
}

// opening checks open and openat. The mode counts only where a file may be made.
func opening(flags, mode uint8) check {
	return check{
		clauses: []clause{
			{tests: []test{has(flags, creating), has(mode, setID)}, then: refused},
			{when: hold, tests: []test{has(flags, creating|changing)}, then: notify},
		},
		text: textMode,
	}
}

// nodes checks mknod and mknodat: a type of 0 is a plain file.
func nodes(mode uint8) check {
	return check{
		clauses: []clause{
			noSetID(mode),
			{
				when:  hold,
				tests: []test{masked(mode, unix.S_IFMT, 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK)}, then: notify,
			},
			{tests: []test{masked(mode, unix.S_IFMT, 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK)}, then: allow},
		},
		otherwise: refused, text: "no device; " + textMode,
	}
}

// prctl: what is not named is answered as by a kernel that does not know it. Not
// there: PR_SET_MM (moves what /proc shows), PR_SET_PTRACER (opens the process to a
// debugger), PR_CAP_AMBIENT_RAISE, PR_SET_SECUREBITS, PR_SET_TSC, PR_SET_IO_FLUSHER,
// PR_SCHED_CORE, PR_TASK_PERF_EVENTS_*.
const (
	prGetAuxv      = 0x41555856 // PR_GET_AUXV
	prFutexHash    = 78         // PR_FUTEX_HASH
	capIsSet       = 1          // PR_CAP_AMBIENT_IS_SET
	capLower       = 3          // PR_CAP_AMBIENT_LOWER
	capClear       = 4          // PR_CAP_AMBIENT_CLEAR_ALL
	specDisable    = 4          // PR_SPEC_DISABLE
	specForce      = 8          // PR_SPEC_FORCE_DISABLE
	specUntilExec  = 16         // PR_SPEC_DISABLE_NOEXEC
	seccompStrict  = 1          // SECCOMP_MODE_STRICT
	seccompFilters = 2          // SECCOMP_MODE_FILTER
)

var processSettings = check{
	clauses: []clause{
		{tests: []test{is(0,
			unix.PR_SET_PDEATHSIG, unix.PR_GET_PDEATHSIG, unix.PR_GET_DUMPABLE, unix.PR_SET_DUMPABLE,
			unix.PR_GET_KEEPCAPS, unix.PR_GET_TIMING, unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_GET_SECCOMP,
			unix.PR_CAPBSET_READ, unix.PR_CAPBSET_DROP, unix.PR_GET_TSC, unix.PR_GET_SECUREBITS,
			unix.PR_SET_TIMERSLACK, unix.PR_GET_TIMERSLACK, unix.PR_MCE_KILL_GET,
			unix.PR_SET_CHILD_SUBREAPER, unix.PR_GET_CHILD_SUBREAPER, unix.PR_SET_NO_NEW_PRIVS,
			unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_TID_ADDRESS, unix.PR_SET_THP_DISABLE, unix.PR_GET_THP_DISABLE,
			unix.PR_SVE_SET_VL, unix.PR_SVE_GET_VL, unix.PR_SME_SET_VL, unix.PR_SME_GET_VL,
			unix.PR_PAC_RESET_KEYS, unix.PR_PAC_SET_ENABLED_KEYS, unix.PR_PAC_GET_ENABLED_KEYS,
			unix.PR_SET_TAGGED_ADDR_CTRL, unix.PR_GET_TAGGED_ADDR_CTRL, unix.PR_GET_SPECULATION_CTRL,
			unix.PR_SET_MDWE, unix.PR_GET_MDWE, unix.PR_SET_VMA, prGetAuxv, prFutexHash,
		)}, then: allow},
		{tests: []test{is(0, unix.PR_SET_SECCOMP), is(1, seccompStrict, seccompFilters)}, then: allow},
		{tests: []test{is(0, unix.PR_CAP_AMBIENT), is(1, capIsSet, capLower, capClear)}, then: allow},
		{tests: []test{is(0, unix.PR_SET_SPECULATION_CTRL), is(2, specDisable, specForce, specUntilExec)}, then: allow},
	},
	otherwise: noOption, text: "names, death signal, dumps, no_new_privs, filters, dropping capabilities, vector and pointer settings",
}

// arch_prctl of x86: include/uapi/asm/prctl.h of arch/x86. Not there: faulting
// CPUID, the vDSO's place, tagged addresses.
var processorSettings = check{
	clauses: []clause{{tests: []test{is(0,
		0x1001, 0x1002, 0x1003, 0x1004, // ARCH_SET_GS, ARCH_SET_FS, ARCH_GET_FS, ARCH_GET_GS
		0x1011,                 // ARCH_GET_CPUID
		0x1021, 0x1022, 0x1023, // ARCH_GET_XCOMP_SUPP, ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM
		0x5001, 0x5002, 0x5003, 0x5005, // ARCH_SHSTK_ENABLE, DISABLE, LOCK, STATUS
	)}, then: allow}},
	otherwise: noOption, text: "FS and GS, CPUID read, vector state, shadow stacks",
}

// ioctl: the kernel takes its number as unsigned int. What is not named is answered
// as by a descriptor that does not have it. So TIOCSTI, TIOCLINUX, TIOCSETD,
// TIOCCONS, TIOCSSERIAL, TIOCVHANGUP, the consoles' KD* and VT*, setting attributes of
// files, file encryption, snapshots and everything of devices are not there.
const (
	fioNClex     = 0x5450 // include/uapi/asm-generic/ioctls.h
	fioClex      = 0x5451
	fioAsync     = 0x5452
	fioNBIO      = 0x5421
	fioQSize     = 0x5460
	fioSetOwn    = 0x8901 // include/uapi/asm-generic/sockios.h
	fioGetOwn    = 0x8903
	figetBSZ     = 2          // FIGETBSZ of include/uapi/linux/fs.h
	fsFiemap     = 0xc020660b // FS_IOC_FIEMAP
	fsGetXAttr   = 0x801c581f // FS_IOC_FSGETXATTR
	fsGetVersion = 0x80087601 // FS_IOC_GETVERSION
)

var deviceControls = check{
	clauses: []clause{{tests: []test{is(1,
		// Terminals: attributes, size, sessions and groups, flow, both ends of a pair.
		unix.TCGETS, unix.TCSETS, unix.TCSETSW, unix.TCSETSF, unix.TCGETA, unix.TCSETA, unix.TCSETAW, unix.TCSETAF,
		unix.TCGETS2, unix.TCSETS2, unix.TCSETSW2, unix.TCSETSF2,
		unix.TCSBRK, unix.TCSBRKP, unix.TCXONC, unix.TCFLSH, unix.TIOCSBRK, unix.TIOCCBRK,
		unix.TIOCEXCL, unix.TIOCNXCL, unix.TIOCGEXCL, unix.TIOCSCTTY, unix.TIOCNOTTY, unix.TIOCGPGRP, unix.TIOCSPGRP,
		unix.TIOCGSID, unix.TIOCGWINSZ, unix.TIOCSWINSZ, unix.TIOCOUTQ, unix.TIOCINQ, unix.TIOCGETD, unix.TIOCMGET,
		unix.TIOCPKT, unix.TIOCGPKT, unix.TIOCGPTN, unix.TIOCSPTLCK, unix.TIOCGPTLCK, unix.TIOCGPTPEER,
		// Descriptors.
		fioNBIO, fioAsync, fioClex, fioNClex, fioQSize,
		// Files: where their blocks are, what attributes they have, copies that share blocks.
		figetBSZ, fsFiemap, unix.FS_IOC_GETFLAGS, fsGetXAttr, fsGetVersion,
		unix.FICLONE, unix.FICLONERANGE, unix.FIDEDUPERANGE,
		// Random numbers: how much there is.
		unix.RNDGETENTCNT,
		// Sockets: queues, marks, owners, and reading interfaces.
		unix.SIOCOUTQNSD, unix.SIOCATMARK, unix.SIOCGPGRP, unix.SIOCSPGRP, fioGetOwn, fioSetOwn,
		unix.SIOCGIFNAME, unix.SIOCGIFCONF, unix.SIOCGIFFLAGS, unix.SIOCGIFADDR, unix.SIOCGIFDSTADDR,
		unix.SIOCGIFBRDADDR, unix.SIOCGIFNETMASK, unix.SIOCGIFMETRIC, unix.SIOCGIFMTU, unix.SIOCGIFHWADDR,
		unix.SIOCGIFINDEX, unix.SIOCGIFCOUNT, unix.SIOCGIFTXQLEN,
	)}, then: allow}},
	otherwise: noIoctl, text: "terminals, descriptors, copies that share blocks, reading interfaces",
}

// noticeControls are of include/uapi/linux/seccomp.h. The terminal is asked for by
// libraries that look whether they write to one.
var noticeControls = check{
	clauses: []clause{{tests: []test{is(1,
		unix.SECCOMP_IOCTL_NOTIF_RECV, unix.SECCOMP_IOCTL_NOTIF_SEND, unix.SECCOMP_IOCTL_NOTIF_ID_VALID,
		unix.SECCOMP_IOCTL_NOTIF_ADDFD, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.TCGETS,
	)}, then: allow}},
	otherwise: noIoctl, text: "notifications of seccomp",
}

// Of a type of sockets the kernel takes the low four bits; the others are flags
// (SOCK_TYPE_MASK of include/linux/net.h).
const (
	socketType  = 0xf
	anyProtocol = 0
)

// heldCalls hands everything over where sockets are held.
var heldCalls = check{clauses: []clause{{when: heldSockets, then: notify}}}

// goingOn is how a tracer has go on what stopped.
var goingOn = check{
	clauses:   []clause{{tests: []test{is(0, unix.PTRACE_CONT, unix.PTRACE_LISTEN)}, then: allow}},
	otherwise: refused, text: "PTRACE_CONT, PTRACE_LISTEN",
}

// timeouts is all that pid 1 sets of a socket that it connects.
var timeouts = check{
	clauses:   []clause{{tests: []test{is(1, unix.SOL_SOCKET), is(2, unix.SO_SNDTIMEO)}, then: allow}},
	otherwise: noSockOpt, text: "SO_SNDTIMEO",
}

var makingSockets = check{
	clauses: []clause{
		{when: unixSockets | heldSockets, tests: []test{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_DGRAM)}, then: refused},
		{when: unixSockets, tests: []test{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET)}, then: allow},
		{when: inetSockets, tests: []test{is(0, unix.AF_INET, unix.AF_INET6), masked(1, socketType, unix.SOCK_STREAM), is(2, anyProtocol, unix.IPPROTO_TCP)}, then: allow},
		{when: inetSockets, tests: []test{is(0, unix.AF_INET, unix.AF_INET6), masked(1, socketType, unix.SOCK_DGRAM), is(2, anyProtocol, unix.IPPROTO_UDP)}, then: allow},
		{when: inetSockets, tests: []test{is(0, unix.AF_INET, unix.AF_INET6), masked(1, socketType, unix.SOCK_STREAM, unix.SOCK_DGRAM)}, then: noProtocol},
		{when: routeNetlink, tests: []test{is(0, unix.AF_NETLINK), masked(1, socketType, unix.SOCK_RAW, unix.SOCK_DGRAM), is(2, unix.NETLINK_ROUTE)}, then: allow},
		{when: routeNetlink, tests: []test{is(0, unix.AF_NETLINK)}, then: noProtocol},
		{tests: []test{masked(1, socketType, unix.SOCK_RAW, unix.SOCK_PACKET)}, then: refused},
	},
	otherwise: noFamily, text: "by option: AF_UNIX; AF_INET and AF_INET6 as TCP and UDP; AF_NETLINK as NETLINK_ROUTE; no AF_UNIX datagrams where sockets are held",
}

var makingPairs = check{
	clauses: []clause{
		{when: unixSockets | heldSockets, tests: []test{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_DGRAM)}, then: refused},
		{tests: []test{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_STREAM, unix.SOCK_SEQPACKET)}, then: allow},
		{when: unixSockets, tests: []test{is(0, unix.AF_UNIX), masked(1, socketType, unix.SOCK_DGRAM)}, then: allow},
		{tests: []test{is(0, unix.AF_UNIX)}, then: refused},
	},
	otherwise: noFamily, text: "AF_UNIX, streams and sequenced packets; datagrams where AF_UNIX sockets can be made and are not held",
}

// Options that install a filter program, or put another protocol on a connection
// (TCP_ULP loads modules; IPV6_ADDRFORM changes the family).
const (
	soAttachReuseportCBPF = 51 // SO_ATTACH_REUSEPORT_CBPF
	soAttachReuseportEBPF = 52 // SO_ATTACH_REUSEPORT_EBPF
	ipv6AddrForm          = 1  // IPV6_ADDRFORM
)

var socketOptions = check{
	clauses: []clause{
		{tests: []test{is(1, unix.SOL_SOCKET), is(2, unix.SO_ATTACH_FILTER, unix.SO_ATTACH_BPF, soAttachReuseportCBPF, soAttachReuseportEBPF)}, then: refused},
		{tests: []test{is(1, unix.SOL_TCP), is(2, unix.TCP_ULP)}, then: noSockOpt},
		{tests: []test{is(1, unix.SOL_IPV6), is(2, ipv6AddrForm)}, then: noSockOpt},
		{tests: []test{is(1, unix.SOL_SOCKET, unix.SOL_IP, unix.SOL_IPV6, unix.SOL_TCP, unix.SOL_UDP, unix.SOL_NETLINK)}, then: allow},
	},
	otherwise: noSockOpt, text: "sockets, IP, TCP, UDP and netlink; no filter programs, TCP_ULP, IPV6_ADDRFORM",
}
