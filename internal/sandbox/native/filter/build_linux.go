package filter

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Options say what the program is for. The zero Options are those of profile
// "command": no socket but a pair, nothing that leads out of the process without
// its own namespaces.
type Options struct {
	// Agent adds what agents, tool servers, builds and just-in-time compilers need
	// beyond a command: shared memory, watching files, memory files and keys,
	// asynchronous input and output, priorities, Landlock of their own.
	Agent bool
	// Namespaces says that mount, IPC and PID namespaces of the box's own stand
	// around the program. Without them what changes modes, owners, times and
	// attributes of files, watches directories, shares memory by key, or adjusts
	// other processes is refused: no other layer holds it back.
	Namespaces bool
	// Unix adds AF_UNIX sockets: stream, datagram and sequenced packets.
	Unix bool
	// Inet adds AF_INET and AF_INET6 sockets: TCP and UDP.
	Inet bool
	// RouteNetlink adds AF_NETLINK sockets of NETLINK_ROUTE, which list interfaces
	// and addresses. Changing them needs a capability that no box has.
	RouteNetlink bool
	// Hold hands to the supervisor of held names (SECCOMP_RET_USER_NOTIF) what makes,
	// removes, renames or links names and what changes the content or the mode of
	// files: open and openat with a bit of O_WRONLY, O_RDWR, O_CREAT, O_TRUNC or
	// O_TMPFILE, creat, truncate, mkdir, mknod, link, symlink, rename, unlink, rmdir,
	// chmod and their relatives, and umask, which they depend on. Setting extended
	// attributes is answered EOPNOTSUPP: an access list changes a mode. The program
	// must then be installed with a listener.
	Hold bool
	// Sockets hands connect and bind to the same supervisor, whatever the socket, and
	// leaves out datagram sockets of AF_UNIX, pairs too: these send to any address. With
	// Init it adds what performs those calls.
	Sockets bool
	// Init makes the program of the box's own pid 1 after the start of the program:
	// it reaps, serves notifications and performs what is held. It may not execute,
	// make processes, or make sockets. It goes with no other member but Sockets and Trace.
	Init bool
	// Trace, with Init, lets it have go on what has stopped because it is traced.
	Trace bool
}

// maxProgram is BPF_MAXINSNS of include/uapi/linux/bpf_common.h.
const maxProgram = 4096

// Build returns the program for o and the architecture that this code runs on. It
// takes less than a millisecond. The error names Options that contradict each
// other, or the architecture if there is no table for it.
//
// A call that is allowed whatever its arguments costs nothing from Linux 5.11 on: the
// kernel runs the program once per number, with the instructions that are used here,
// and remembers (seccomp_is_const_allow).
//
// Who installs it sets no_new_privs first. With Hold, SECCOMP_FILTER_FLAG_NEW_LISTENER
// is needed, and SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19) keeps signals
// from repeating calls that are being performed.
func Build(o Options) ([]unix.SockFilter, error) {
	a, err := host()
	if err != nil {
		return nil, err
	}
	return build(a, o)
}

// An arch is an architecture of system calls.
type arch struct {
	audit  uint32 // AUDIT_ARCH_…, as the kernel writes it into the data
	x32    bool   // numbers from x32Bit are another table
	number func(number) int16
}

// x32Bit is __X32_SYSCALL_BIT of arch/x86/include/uapi/asm/unistd.h.
const x32Bit = 0x40000000

var (
	amd64 = arch{unix.AUDIT_ARCH_X86_64, true, func(n number) int16 { return n.amd64 }}
	arm64 = arch{unix.AUDIT_ARCH_AARCH64, false, func(n number) int16 { return n.arm64 }}
)

func host() (arch, error) {
	switch runtime.GOARCH {
	case "amd64":
		return amd64, nil
	case "arm64":
		return arm64, nil
	}
	return arch{}, fmt.Errorf("building the filter of system calls: no table for %s; there are amd64 and arm64", runtime.GOARCH)
}

// conditions returns what of o the tables depend on.
func (o Options) conditions() (condition, error) {
	if o.Init && o != (Options{Init: true, Sockets: o.Sockets, Trace: o.Trace}) {
		return 0, errors.New("building the filter of system calls: Init goes with no other option but Sockets and Trace")
	}
	if o.Trace && !o.Init {
		return 0, errors.New("building the filter of system calls: Trace is for Init")
	}
	var c condition
	for set, bit := range map[*bool]condition{
		&o.Agent: agent, &o.Namespaces: namespaces, &o.Unix: unixSockets, &o.Inet: inetSockets,
		&o.RouteNetlink: routeNetlink, &o.Hold: hold, &o.Sockets: heldSockets, &o.Init: pidOne, &o.Trace: tracing,
	} {
		if *set {
			c |= bit
		}
	}
	if o.Unix || o.Inet || o.RouteNetlink {
		c |= anySocket
	}
	if !o.Init {
		c |= program
		if !o.Namespaces {
			c |= bare
		}
	}
	return c, nil
}

func build(a arch, o Options) ([]unix.SockFilter, error) {
	c, err := o.conditions()
	if err != nil {
		return nil, err
	}
	rules, err := resolve(c)
	if err != nil {
		return nil, err
	}
	var p code
	checks := map[*group]target{}
	last := int16(0)
	for _, n := range numbers {
		last = max(last, a.number(n))
	}
	byNumber := make([]target, last+2)
	for i := range byNumber {
		byNumber[i] = to(newer)
	}
	for i, n := range numbers {
		nr := a.number(n)
		if nr == absent {
			continue
		}
		byNumber[nr] = to(rules[i].otherwise)
		if g := rules[i].group; g != nil {
			if _, ok := checks[g]; !ok {
				checks[g] = p.check(g.check, c)
			}
			byNumber[nr] = checks[g]
		}
	}
	spans := make([]span, len(byNumber))
	for i, t := range byNumber {
		spans[i] = span{uint32(i), t}
	}
	start := p.tree(spans)
	if a.x32 {
		start = p.branch(unix.BPF_JGE, x32Bit, to(kill), start)
	}
	start = p.load(offsetNumber, start)
	start = p.branch(unix.BPF_JEQ, a.audit, start, to(kill))
	p.load(offsetArch, start)
	program := p.forward()
	if len(program) > maxProgram {
		return nil, fmt.Errorf("building the filter of system calls: %d instructions, at most %d", len(program), maxProgram)
	}
	return program, nil
}
