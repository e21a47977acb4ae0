// Package landlock confines threads with the Landlock security module of Linux:
// what they and all their descendants may do with files, with TCP and UDP ports,
// and to processes outside.
//
// It is not a file system view: what no rule grants still exists, and can be found
// by stat(2). It does not hold back changes of mode, owner, times and attributes,
// MPTCP, SCTP, raw and other sockets, and below the ABI that brought them (see
// [Rights]) what later rights are about. That is for mounts, namespaces and the
// filter of system calls.
//
// Invariants:
//
//	L1  A ruleset handles every right of the kernel's ABI that the Rules do not
//	    open by name. What a handled right is about is refused unless granted.
//	L2  A kernel below Rules.MinABI is an error that names what is missing, and
//	    so is a limit that the kernel does not know. Nothing is weakened silently.
//	L3  A path that is not there, or has a symbolic link in it, is an error.
//	L4  Making device nodes is never granted.
//	L5  Nothing is logged to the audit log of the machine unless Rules say so: a
//	    box cannot flood it.
//
// Sources: the kernel's include/uapi/linux/landlock.h and
// Documentation/userspace-api/landlock.rst up to Linux 7.2 (ABI 10), landlock(7).
package landlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrAbsent says that the kernel is too old or was built without Landlock:
	// run Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK.
	ErrAbsent = errors.New("this kernel has no Landlock; run Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK")
	// ErrDisabled says that Landlock is built in and was not chosen at boot.
	ErrDisabled = errors.New("this kernel was started without Landlock; add landlock to the lsm= list of its command line, and restart")
	// ErrRefused says that something, usually the system call filter of a
	// container, answers for the kernel.
	ErrRefused = errors.New("the calls of Landlock are refused here; allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self in the container's seccomp profile")
	// ErrTooOld says that the kernel's Landlock lacks what the Rules need.
	ErrTooOld = errors.New("this kernel's Landlock is too old")
)

// An Access is a set of things that may be done with a path. What is about
// directories is dropped where the path is a file.
type Access uint8

// What may be done.
const (
	Read    Access = 1 << iota // read files, list directories
	Execute                    // execute files
	Write                      // write and truncate files; make, remove, link and rename everything but device nodes
	Device                     // ioctl on device nodes (needs Read or Write to open them)
	Connect                    // connect to Unix sockets, by path, that were made outside the domain

	allAccess = Read | Execute | Write | Device | Connect
)

// String returns the names of a, as "read+execute".
func (a Access) String() string {
	var names []string
	for i, n := range []string{"read", "execute", "write", "device", "connect"} {
		if a&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, "+")
}

// A Path is a file, or a directory with all that is beneath it.
type Path struct {
	// Name is the absolute path, without symbolic links. Where FD is given it only
	// serves to name it.
	Name string
	// FD is an open descriptor, O_PATH or other, that is used instead of Name if it
	// is not 0. It stays open.
	FD     int
	Access Access
}

// Rules say what remains possible. The zero Rules are refused for want of a MinABI,
// and grant nothing.
type Rules struct {
	// MinABI is the version of Landlock that is needed, at least 1. All that a newer
	// kernel can hold back is held back too.
	MinABI int
	Paths  []Path

	// Ports that may be bound to and connected (or, for UDP, sent) to; 0 for
	// binding is any free port. A list that is not empty needs a kernel that limits
	// ports (TCP: ABI 4, UDP: ABI 10).
	BindTCP, ConnectTCP []uint16
	BindUDP, SendUDP    []uint16

	// AnyPort leaves ports alone: for boxes whose network is a namespace of their
	// own. The lists must be empty then.
	AnyPort bool
	// AnySocket leaves abstract Unix sockets made outside reachable.
	AnySocket bool
	// AnySignal leaves processes outside open to signals. Who must signal what was
	// started before it restricted itself needs it.
	AnySignal bool

	// Log lets denials of programs started under the ruleset reach the audit log
	// (ABI 7; older kernels do not log).
	Log bool
}

// The rights by bit, in the order of the kernel's header.
const (
	fsExecute = 1 << iota
	fsWriteFile
	fsReadFile
	fsReadDir
	fsRemoveDir
	fsRemoveFile
	fsMakeChar
	fsMakeDir
	fsMakeReg
	fsMakeSock
	fsMakeFifo
	fsMakeBlock
	fsMakeSym
	fsRefer
	fsTruncate
	fsIoctlDev
	fsResolveUnix
)

const (
	netBindTCP = 1 << iota
	netConnectTCP
	netBindUDP
	netSendUDP
)

const (
	scopeAbstract = 1 << iota
	scopeSignal
)

// Flags of landlock_restrict_self(2).
const (
	flagLogSameExecOff   = 1 << iota // ABI 7
	flagLogNewExecOn                 // ABI 7
	flagLogSubdomainsOff             // ABI 7
	flagTSync                        // ABI 8
)

// The ABI that brought what is asked for by number below.
const (
	abiLog   = 7
	abiTSync = 8
)

// onFiles are the rights that may stand on a file. The kernel answers EINVAL to
// others there (security/landlock/fs.c, ACCESS_FILE).
const onFiles = fsExecute | fsWriteFile | fsReadFile | fsTruncate | fsIoctlDev | fsResolveUnix

// granted says which rights make up an Access.
var granted = []struct {
	access Access
	rights uint64
}{
	{Read, fsReadFile | fsReadDir},
	{Execute, fsExecute},
	{Write, fsWriteFile | fsTruncate | fsRemoveDir | fsRemoveFile | fsMakeDir | fsMakeReg | fsMakeSock | fsMakeFifo | fsMakeSym | fsRefer},
	{Device, fsIoctlDev},
	{Connect, fsResolveUnix},
}

type kind uint8

const (
	kindFS kind = iota
	kindNet
	kindScope
)

// A Right is one thing that Landlock can hold back.
type Right struct {
	Name  string // "truncate"
	ABI   int    // the version of Landlock that brought it
	Linux string // the version of Linux that has that ABI
	kind  kind
	bit   uint64
}

// rights is all that is known here, up to the newest ABI.
var rights = []Right{
	{"execute", 1, "5.13", kindFS, fsExecute},
	{"write-file", 1, "5.13", kindFS, fsWriteFile},
	{"read-file", 1, "5.13", kindFS, fsReadFile},
	{"read-dir", 1, "5.13", kindFS, fsReadDir},
	{"remove-dir", 1, "5.13", kindFS, fsRemoveDir},
	{"remove-file", 1, "5.13", kindFS, fsRemoveFile},
	{"make-char", 1, "5.13", kindFS, fsMakeChar},
	{"make-dir", 1, "5.13", kindFS, fsMakeDir},
	{"make-reg", 1, "5.13", kindFS, fsMakeReg},
	{"make-sock", 1, "5.13", kindFS, fsMakeSock},
	{"make-fifo", 1, "5.13", kindFS, fsMakeFifo},
	{"make-block", 1, "5.13", kindFS, fsMakeBlock},
	{"make-sym", 1, "5.13", kindFS, fsMakeSym},
	{"refer", 2, "5.19", kindFS, fsRefer},
	{"truncate", 3, "6.2", kindFS, fsTruncate},
	{"bind-tcp", 4, "6.7", kindNet, netBindTCP},
	{"connect-tcp", 4, "6.7", kindNet, netConnectTCP},
	{"ioctl-dev", 5, "6.10", kindFS, fsIoctlDev},
	{"scope-abstract-unix-socket", 6, "6.12", kindScope, scopeAbstract},
	{"scope-signal", 6, "6.12", kindScope, scopeSignal},
	{"resolve-unix", 9, "7.1", kindFS, fsResolveUnix},
	{"bind-udp", 10, "7.2", kindNet, netBindUDP},
	{"connect-send-udp", 10, "7.2", kindNet, netSendUDP},
}

// NewestABI is the newest version of Landlock that is known here.
const NewestABI = 10

// Rights returns what Landlock of version abi can hold back, oldest first.
func Rights(abi int) []Right {
	return slices.DeleteFunc(slices.Clone(rights), func(r Right) bool { return r.ABI > abi })
}

// Handled is what a ruleset holds back unless a rule grants it.
type Handled struct {
	ABI            int    // the kernel's, at most NewestABI
	fs, net, scope uint64 // bits of the kernel's header
}

// Names returns the names of the rights in h, as in [Right].
func (h Handled) Names() []string {
	var names []string
	for _, r := range rights {
		if h.has(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

// Has reports whether h holds back the right called name.
func (h Handled) Has(name string) bool { return slices.Contains(h.Names(), name) }

func (h Handled) has(r Right) bool {
	switch r.kind {
	case kindFS:
		return h.fs&r.bit != 0
	case kindNet:
		return h.net&r.bit != 0
	default:
		return h.scope&r.bit != 0
	}
}

// Plan says what a ruleset made from r on a kernel with Landlock of version abi
// would handle. Errors wrap ErrTooOld where a newer kernel would do. It does not
// look at the paths themselves.
func (r Rules) Plan(abi int) (Handled, error) {
	if err := r.check(); err != nil {
		return Handled{}, err
	}
	if abi < r.MinABI {
		return Handled{}, fmt.Errorf("%w: ABI %d of %d; it lacks %s", ErrTooOld, abi, r.MinABI, missing(abi, r.MinABI))
	}
	h := Handled{ABI: min(abi, NewestABI)}
	for _, right := range Rights(abi) {
		switch right.kind {
		case kindFS:
			h.fs |= right.bit
		case kindNet:
			h.net |= right.bit
		case kindScope:
			h.scope |= right.bit
		}
	}
	if r.AnyPort {
		h.net = 0
	}
	if r.AnySocket {
		h.scope &^= scopeAbstract
	}
	if r.AnySignal {
		h.scope &^= scopeSignal
	}
	for _, p := range r.ports() {
		if len(p.ports) > 0 && h.net&p.right == 0 {
			return Handled{}, fmt.Errorf("%w: ABI %d; ports can be limited with %s", ErrTooOld, abi, find(kindNet, p.right))
		}
	}
	return h, nil
}

func (r Rules) check() error {
	if r.MinABI < 1 || r.MinABI > NewestABI {
		return fmt.Errorf("landlock: minimum ABI %d is not 1 to %d", r.MinABI, NewestABI)
	}
	for _, p := range r.Paths {
		switch {
		case p.FD < 0 || p.FD == 0 && !strings.HasPrefix(p.Name, "/"):
			return fmt.Errorf("landlock: %q is neither an absolute path nor a descriptor", p.Name)
		case strings.IndexByte(p.Name, 0) >= 0:
			return fmt.Errorf("landlock: path %q holds a NUL", p.Name)
		case p.Access == 0 || p.Access&^allAccess != 0:
			return fmt.Errorf("landlock: access %#x to %s is none", uint8(p.Access), p.Name)
		}
	}
	for _, p := range r.ports() {
		if r.AnyPort && len(p.ports) > 0 {
			return errors.New("landlock: ports are listed and left alone at the same time")
		}
		if p.right != netBindTCP && p.right != netBindUDP && slices.Contains(p.ports, 0) {
			return errors.New("landlock: nothing connects to port 0")
		}
	}
	return nil
}

type portRule struct {
	right uint64
	ports []uint16
}

func (r Rules) ports() []portRule {
	return []portRule{{netBindTCP, r.BindTCP}, {netConnectTCP, r.ConnectTCP}, {netBindUDP, r.BindUDP}, {netSendUDP, r.SendUDP}}
}

// grants returns the rights that a stands for, on a directory or on a file, of
// those that h handles. Granting what is not handled is an error of the kernel,
// and needless: it is not held back.
func (h Handled) grants(a Access, dir bool) uint64 {
	var bits uint64
	for _, g := range granted {
		if a&g.access != 0 {
			bits |= g.rights
		}
	}
	if !dir {
		bits &= onFiles
	}
	return bits & h.fs
}

// flags returns the flags for landlock_restrict_self.
func (r Rules) flags(abi int) uint32 {
	switch {
	case abi < abiLog:
		return 0
	case r.Log:
		return flagLogNewExecOn | flagLogSubdomainsOff
	}
	return flagLogSameExecOff | flagLogSubdomainsOff
}

// missing lists what versions above abi, up to want, brought.
func missing(abi, want int) string {
	var names []string
	for _, r := range rights {
		if r.ABI > abi && r.ABI <= want {
			names = append(names, r.String())
		}
	}
	if len(names) == 0 {
		return "nothing that is held back"
	}
	return strings.Join(names, ", ")
}

func find(k kind, bit uint64) string {
	for _, r := range rights {
		if r.kind == k && r.bit == bit {
			return r.String()
		}
	}
	return "no known right"
}

// String returns "truncate (ABI 3, Linux 6.2)".
func (r Right) String() string { return fmt.Sprintf("%s (ABI %d, Linux %s)", r.Name, r.ABI, r.Linux) }
