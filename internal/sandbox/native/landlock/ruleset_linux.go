package landlock

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The numbers in landlock.go are the kernel's, or this does not compile.
var _ [0]struct{} = [0 |
	(fsExecute ^ unix.LANDLOCK_ACCESS_FS_EXECUTE) | (fsWriteFile ^ unix.LANDLOCK_ACCESS_FS_WRITE_FILE) |
	(fsReadFile ^ unix.LANDLOCK_ACCESS_FS_READ_FILE) | (fsReadDir ^ unix.LANDLOCK_ACCESS_FS_READ_DIR) |
	(fsRemoveDir ^ unix.LANDLOCK_ACCESS_FS_REMOVE_DIR) | (fsRemoveFile ^ unix.LANDLOCK_ACCESS_FS_REMOVE_FILE) |
	(fsMakeChar ^ unix.LANDLOCK_ACCESS_FS_MAKE_CHAR) | (fsMakeDir ^ unix.LANDLOCK_ACCESS_FS_MAKE_DIR) |
	(fsMakeReg ^ unix.LANDLOCK_ACCESS_FS_MAKE_REG) | (fsMakeSock ^ unix.LANDLOCK_ACCESS_FS_MAKE_SOCK) |
	(fsMakeFifo ^ unix.LANDLOCK_ACCESS_FS_MAKE_FIFO) | (fsMakeBlock ^ unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK) |
	(fsMakeSym ^ unix.LANDLOCK_ACCESS_FS_MAKE_SYM) | (fsRefer ^ unix.LANDLOCK_ACCESS_FS_REFER) |
	(fsTruncate ^ unix.LANDLOCK_ACCESS_FS_TRUNCATE) | (fsIoctlDev ^ unix.LANDLOCK_ACCESS_FS_IOCTL_DEV) |
	(fsResolveUnix ^ unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX) |
	(netBindTCP ^ unix.LANDLOCK_ACCESS_NET_BIND_TCP) | (netConnectTCP ^ unix.LANDLOCK_ACCESS_NET_CONNECT_TCP) |
	(netBindUDP ^ unix.LANDLOCK_ACCESS_NET_BIND_UDP) | (netSendUDP ^ unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP) |
	(scopeAbstract ^ unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET) | (scopeSignal ^ unix.LANDLOCK_SCOPE_SIGNAL) |
	(flagLogSameExecOff ^ unix.LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF) | (flagLogNewExecOn ^ unix.LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON) |
	(flagLogSubdomainsOff ^ unix.LANDLOCK_RESTRICT_SELF_LOG_SUBDOMAINS_OFF) | (flagTSync ^ unix.LANDLOCK_RESTRICT_SELF_TSYNC)]struct{}{}

// ABI returns the version of Landlock that this kernel has. It may be newer than
// [NewestABI]. Errors wrap ErrAbsent, ErrDisabled or ErrRefused, which say what to
// do.
func ABI() (int, error) {
	v, e := createRuleset(nil, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch e {
	case 0:
		return v, nil
	case unix.ENOSYS:
		return 0, ErrAbsent
	case unix.EOPNOTSUPP:
		return 0, ErrDisabled
	case unix.EPERM, unix.EACCES:
		return 0, fmt.Errorf("%w (%w)", ErrRefused, e)
	default:
		return 0, fmt.Errorf("asking for the version of Landlock: %w", e)
	}
}

// Errata returns which faults of Landlock are mended in this kernel: bit n-1 for
// erratum n of the kernel's documentation, 0 where the kernel does not tell.
//
// Erratum 1: TCP rights also held MPTCP, SCTP and SMC; mended kernels let these
// pass. Erratum 2: threads of one process under different domains could not signal
// each other. Erratum 3: rights were lost for directories disconnected by a rename.
func Errata() uint32 {
	v, e := createRuleset(nil, 0, unix.LANDLOCK_CREATE_RULESET_ERRATA)
	if e != 0 {
		return 0
	}
	return uint32(v)
}

const erratumSignals = 1 << 1

// A Ruleset is a set of rules that the kernel holds behind a descriptor. Nothing is
// restricted before Restrict, RestrictAll or RawRestrict. It may be used from one
// goroutine at a time.
type Ruleset struct {
	fd      int
	flags   uint32
	handled Handled
}

// New makes a ruleset from r, as strict as this kernel can. The paths are opened
// here, through the mounts and the root that the caller sees, and stand for the
// files they are now, whatever is renamed later. On error nothing stays open.
func New(r Rules) (*Ruleset, error) {
	abi, err := ABI()
	if err != nil {
		return nil, err
	}
	return newAt(abi, r)
}

// newAt makes a ruleset as a kernel with Landlock of version abi would, which must
// not be above the real one.
func newAt(abi int, r Rules) (*Ruleset, error) {
	h, err := r.Plan(abi)
	if err != nil {
		return nil, err
	}
	fd, e := makeRuleset(unix.LandlockRulesetAttr{Handled_access_fs: h.fs, Handled_access_net: h.net, Scoped: h.scope})
	if e != 0 {
		return nil, fmt.Errorf("making a Landlock ruleset of ABI %d: %w", h.ABI, e)
	}
	s := &Ruleset{fd: fd, flags: r.flags(h.ABI), handled: h}
	if err := s.fill(r); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Ruleset) fill(r Rules) error {
	for _, p := range r.Paths {
		if err := s.add(p); err != nil {
			return fmt.Errorf("granting %s to %s: %w", p.Access, p.Name, err)
		}
	}
	for _, rule := range r.ports() {
		for _, port := range rule.ports {
			if e := addPort(s.fd, port, rule.right); e != 0 {
				return fmt.Errorf("granting port %d: %w", port, e)
			}
		}
	}
	return nil
}

func (s *Ruleset) add(p Path) error {
	fd := p.FD
	if fd == 0 {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
		var err error
		fd, err = open(p.Name, &how)
		if errors.Is(err, unix.ELOOP) {
			return fmt.Errorf("it has a symbolic link in it: give the path that it leads to: %w", err)
		}
		if err != nil {
			return err
		}
		defer unix.Close(fd)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	rights := s.handled.grants(p.Access, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	if rights == 0 {
		// All that is asked for is not held back by this kernel, or has no meaning
		// on a file. An empty rule would be ENOMSG.
		return nil
	}
	switch e := addPath(s.fd, fd, rights); e {
	case 0:
		return nil
	case unix.EBADFD:
		return fmt.Errorf("it is not a file of a mounted file system: %w", e)
	default:
		return e
	}
}

func open(name string, how *unix.OpenHow) (int, error) {
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, name, how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// FD returns the descriptor of the ruleset, close-on-exec, for RawRestrict.
func (s *Ruleset) FD() int { return s.fd }

// Flags returns the flags for RawRestrict.
func (s *Ruleset) Flags() uint32 { return s.flags }

// Handled says what the ruleset holds back.
func (s *Ruleset) Handled() Handled { return s.handled }

// Restrict sets no_new_privs and puts the ruleset in force for the calling thread
// and all that it starts from now on, for good. The caller must be locked to its
// thread, and stay so. Under a ruleset nothing can be mounted, unmounted or pivoted.
func (s *Ruleset) Restrict() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	return explain(RawRestrict(s.fd, s.flags))
}

// RestrictAll does the same for every thread of this process. Where the kernel
// cannot (ABI 8), each thread gets a domain of its own with the same rules: abstract
// Unix sockets then do not connect across threads, and what one thread starts cannot
// be signalled by another, unless Rules.AnySocket and Rules.AnySignal are set. A
// kernel without the mending of erratum 2 would even keep threads from signalling
// each other, which the Go runtime needs; that is an error.
//
// It is an error in a program linked with cgo, below ABI 8.
func (s *Ruleset) RestrictAll() error {
	if s.handled.ABI >= abiTSync {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("setting no_new_privs: %w", err)
		}
		return explain(RawRestrict(s.fd, s.flags|flagTSync))
	}
	if s.handled.scope&scopeSignal != 0 && Errata()&erratumSignals == 0 {
		return errors.New("restricting all threads: this kernel would keep them from signalling each other (erratum 2 of Landlock); leave signals open or run Linux 6.15 or newer")
	}
	if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); e != 0 {
		return fmt.Errorf("setting no_new_privs on all threads: %w", e)
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(s.fd), uintptr(s.flags), 0)
	return explain(e)
}

func explain(e syscall.Errno) error {
	switch e {
	case 0:
		return nil
	case unix.E2BIG:
		return fmt.Errorf("restricting: more than 16 Landlock rulesets are in force already: %w", e)
	default:
		return fmt.Errorf("restricting with Landlock: %w", e)
	}
}

// Close gives the descriptor back. What is in force stays so.
func (s *Ruleset) Close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

// Canary proves that a restriction is in force on the calling thread, which cannot be
// read back: it tries to open the directory dir, which no rule grants Read, and wants
// EACCES. It proves something only if dir could be opened by the same user before:
// call [RawProbe] first and see it return 0. dir must exist: every other answer is an
// error, also success.
func Canary(dir string) error {
	name, err := unix.BytePtrFromString(dir)
	if err != nil {
		return fmt.Errorf("probing %q: %w", dir, err)
	}
	switch e := RawProbe(name); e {
	case unix.EACCES:
		return nil
	case 0:
		return fmt.Errorf("probing %s: it opens, so Landlock is not in force", dir)
	default:
		return fmt.Errorf("probing %s: %w, which proves nothing", dir, e)
	}
}
