package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox/native/landlock"
)

// stageName is argument 0 of a stage, and its only argument. That is no secret: who
// starts us by that name gets a process with his own rights, which does what the
// plan says that he sent.
const stageName = "ringfence-box"

// wireFD is the descriptor at which a stage finds its wire.
const wireFD = 3

// imageFD is the descriptor that a stage is started from, if that is an image.
const imageFD = 4

// topFD is a descriptor that a stage is started with for its number alone. A table of
// descriptors that grows in a process of several threads waits for all processors, some
// 5 ms (fs/file.c, expand_fdtable); so it has its size before there are any.
const topFD = 2*firstFD - 1

// Child does not return in a process that was started as a stage, or to test a box.
// Main calls it before anything else; in any other process it does nothing.
func Child() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == testName:
		if err := test(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) == 1 && os.Args[0] == stageName:
	default:
		return
	}
	// What is said of the thread (its domain, its cgroup namespace) passes to what it
	// forks, so one thread does it all.
	runtime.LockOSThread()
	s := &stage{gate: -1, report: -1, listener: -1}
	if err := s.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A stage is the process that builds a box and then stays as its pid 1.
type stage struct {
	wire *wire
	plan *plan
	fds  []int // the program's, then the mounts
	done []string
	fail error // of the first step that failed; nothing follows it
	step string

	tree            *tree
	canary          string
	canaryFD        int
	rules, ownRules *landlock.Ruleset
	spawn           *spawn
	pid             int // of the program's process
	pidfd           int
	report, gate    int // our ends
	traced          bool
	listener        int
}

var errInjected = errors.New("a fault, injected by a test")

// do takes one step. After a step that failed none is taken.
func (s *stage) do(name string, f func() error) {
	if s.fail != nil {
		return
	}
	s.step = name
	if s.plan != nil && s.plan.failAt == name {
		s.fail = errInjected
		return
	}
	if s.fail = f(); s.fail == nil {
		s.done = append(s.done, name)
	}
}

func (s *stage) run() error {
	w, err := newWire(os.NewFile(wireFD, "wire"))
	if err != nil {
		return err
	}
	s.wire = w
	s.do("reading the plan", func() (err error) {
		if s.plan, s.fds, err = w.recvPlan(); err == nil && s.plan.failAt == s.step {
			err = errInjected
		}
		return err
	})
	s.do("process", s.becomeStage)
	if s.fail == nil && !s.plan.plain {
		s.buildRoot()
		s.isolate()
	}
	if s.fail == nil {
		s.prepare()
		s.forkProgram()
		s.confineSelf()
	}
	if s.fail == nil {
		s.awaitGo()
	}
	if s.fail != nil {
		// No process of a box that was not built may stay.
		failed := s.sayFailure()
		if s.plan != nil && s.pid > 0 {
			return errors.Join(failed, s.end())
		}
		return failed
	}
	return s.serve()
}

// sayFailure tells the caller why there is no box. If he is gone nobody needs to know.
func (s *stage) sayFailure() error {
	f := failure{step: s.step, text: s.fail.Error()}
	if errno, ok := errors.AsType[syscall.Errno](s.fail); ok {
		f.errno = int(errno)
	}
	b, err := encode(&f)
	if err != nil {
		return err
	}
	return s.wire.send(frameFailed, b)
}

// becomeStage makes this process die with its parent, seals what it inherited, and
// takes the ids of the box. Taking them undoes the death signal (prctl(2)), so that
// comes last; a parent that died before shows at the wire.
func (s *stage) becomeStage() error {
	p := s.plan
	if p.files < 3 || p.files > firstFD || p.mounts < 0 || p.groups < 0 || p.files+p.mounts+p.groups != len(s.fds) {
		return fmt.Errorf("%d, %d and %d descriptors, but %d came", p.files, p.mounts, p.groups, len(s.fds))
	}
	unix.Umask(0)
	preferForOOM()
	unix.CloseOnExec(wireFD)
	unix.Close(topFD)
	unix.Close(imageFD)
	if p.slack > 0 { // of this thread, which forks the program
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(p.slack), 0, 0, 0); err != nil {
			return err
		}
	}
	if p.uid >= 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(p.gid, p.gid, p.gid), syscall.Setresuid(p.uid, p.uid, p.uid)); err != nil {
			return err
		}
	}
	if p.plain {
		// The box's tree is ended by us, not by the kernel: we must live to do it.
		return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if os.Getpid() != 1 {
		return errors.New("this is not pid 1 of a namespace")
	}
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// buildRoot builds the file tree and enters it.
func (s *stage) buildRoot() {
	p := s.plan
	s.do(stepFirstMount, func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") })
	s.do("mount root", func() (err error) {
		s.tree, err = newTree(s.fds[p.files : p.files+p.mounts])
		return
	})
	for _, n := range p.nodes {
		s.do("mount "+n.path, func() error { return s.tree.place(n) })
	}
	s.do("hidden files", func() error { return s.tree.unname() })
	s.do("seal root", func() error { return s.tree.seal(p.nodes) })
	s.do("pivot root", func() error { return s.tree.pivot() })
	s.do("canary", func() error {
		s.canaryFD = s.tree.canary
		return unix.Close(s.tree.root)
	})
}

// prepare makes the rulesets, and all that the program's process needs.
func (s *stage) prepare() {
	p := s.plan
	s.do("landlock rules", s.makeRules)
	if s.fail == nil && s.confinesSelf() {
		s.do("landlock of pid 1", func() error { return s.ownRules.RestrictAll() })
	}
	s.do("program", func() error {
		s.spawn = &spawn{
			terminal: p.terminal, death: p.plain, space: !p.plain, bounding: !p.plain || haveCapability(unix.CAP_SETPCAP),
			limits: p.limits, flags: s.rules.Flags(), failAt: childStep(p),
		}
		if p.hold.on {
			s.spawn.filter = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
		}
		var ok bool
		if s.spawn.program, ok = programOf(p.program); !ok || len(p.limits) > childLast-childLimits {
			return errors.New("the plan is malformed")
		}
		return errors.Join(s.words(), s.descriptors())
	})
}

// confinesSelf reports whether pid 1 puts itself under Landlock. Below ABI 8 each of its
// threads would get a domain of its own, and a thread may only look into processes
// whose domain is within its own: the supervisor of held names then could not read
// what a call is about. It is left to its filter, its mounts and its lack of
// capabilities.
func (s *stage) confinesSelf() bool {
	return !s.plan.hold.on || s.ownRules.Handled().ABI >= landlockTSync
}

// landlockTSync is the version of Landlock that puts all threads into one domain.
const landlockTSync = 8

// makeRules makes two rulesets: that of the program, and ours, in which the
// program's is nested. Ours leaves signals and sockets alone, because each of our
// threads gets a domain of its own.
func (s *stage) makeRules() error {
	theirs := landlock.Rules{MinABI: s.plan.minABI, AnyPort: !s.plan.plain}
	ours := landlock.Rules{MinABI: s.plan.minABI, AnyPort: true, AnySocket: true, AnySignal: true}
	for _, g := range s.plan.grants {
		fd, err := openPath(g.path)
		if err != nil {
			return fmt.Errorf("%s: %w", g.path, err)
		}
		defer unix.Close(fd)
		if g.access != 0 {
			theirs.Paths = append(theirs.Paths, landlock.Path{Name: g.path, FD: fd, Access: g.access})
		}
		if all := g.access | g.own; all != 0 {
			ours.Paths = append(ours.Paths, landlock.Path{Name: g.path, FD: fd, Access: all})
		}
	}
	// The canary opens under ours, and not under theirs.
	if s.plan.plain {
		s.canary = "/"
		ours.Paths = append(ours.Paths, landlock.Path{Name: "/", Access: landlock.Read})
	} else {
		ours.Paths = append(ours.Paths, landlock.Path{Name: "canary", FD: s.canaryFD, Access: landlock.Read})
	}
	var err error
	if s.rules, err = landlock.New(theirs); err != nil {
		return err
	}
	if s.ownRules, err = landlock.New(ours); err != nil {
		return err
	}
	if s.plan.plain {
		return nil
	}
	root, err := openPath("/")
	if err != nil {
		return err
	}
	defer unix.Close(root)
	return errors.Join(grantListing(s.rules.FD(), root), grantListing(s.ownRules.FD(), root))
}

func openPath(path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	return openat2(unix.AT_FDCWD, path, &how)
}

// words makes the strings of execve.
func (s *stage) words() (err error) {
	p, sp := s.plan, s.spawn
	if len(p.argv) == 0 {
		return errors.New("no program")
	}
	if sp.argv, err = syscall.SlicePtrFromStrings(p.argv); err != nil {
		return err
	}
	sp.path = sp.argv[0]
	if sp.env, err = syscall.SlicePtrFromStrings(p.env); err != nil {
		return err
	}
	sp.dir, err = unix.BytePtrFromString(p.dir)
	return err
}

// descriptors moves all that the program's process needs out of the way of the
// numbers that it hands to the program, and makes its two pipes.
func (s *stage) descriptors() error {
	sp := s.spawn
	up := func(fd int) (int32, error) {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, firstFD)
		return int32(n), err
	}
	for i, fd := range s.fds[:s.plan.files] {
		n, err := up(fd)
		if err != nil {
			return err
		}
		unix.Close(fd)
		s.fds[i] = int(n)
		sp.files = append(sp.files, n)
	}
	for _, fd := range s.fds[s.plan.files+s.plan.mounts:] {
		sp.groups = append(sp.groups, int32(fd))
	}
	var report, gate [2]int
	if err := errors.Join(unix.Pipe2(report[:], unix.O_CLOEXEC), unix.Pipe2(gate[:], unix.O_CLOEXEC)); err != nil {
		return err
	}
	s.report, s.gate = report[0], gate[1]
	canary := s.canary
	var errs [4]error
	sp.report, errs[0] = up(report[1])
	sp.gate, errs[1] = up(gate[0])
	sp.ruleset, errs[2] = up(s.rules.FD())
	if canary == "" {
		var fd int32
		fd, errs[3] = up(s.canaryFD)
		canary = fmt.Sprintf("/proc/self/fd/%d", fd)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	unix.Close(report[1])
	unix.Close(gate[0])
	var err error
	sp.canary, err = unix.BytePtrFromString(canary)
	return err
}

// forkProgram makes the program's process and waits until it is confined.
func (s *stage) forkProgram() {
	s.do("fork", func() error {
		s.spawn.prepare()
		pid, e := s.spawn.fork()
		if e != 0 {
			return e
		}
		s.pid = pid
		unix.Close(int(s.spawn.report))
		unix.Close(int(s.spawn.gate))
		closeFDs(s.fds[:s.plan.files])
		closeFDs(s.fds[s.plan.files+s.plan.mounts:])
		return nil
	})
	if !s.plan.plain {
		s.giveUp() // while it does the same
	}
	if s.fail != nil {
		return
	}
	out, err := s.outcome()
	if err == nil && out.step == 0 {
		s.done = append(s.done, childSteps(s.plan)...)
		if s.plan.plain {
			s.do("process tree", s.trace)
		}
		s.do("handles", func() error { return s.handles(out) })
		return
	}
	s.step, s.fail = "program's process", io.ErrUnexpectedEOF
	if err == nil {
		s.step, s.fail = childName(s.plan, out.step), childError(out)
	}
}

// outcome reads one report of the program's process: io.EOF if it has gone on to
// execute the program, or has ended.
func (s *stage) outcome() (outcome, error) {
	var o outcome
	b := make([]byte, 64)
	n, err := readAgain(s.report, b)
	switch {
	case err != nil:
		return o, err
	case n == 0:
		return o, io.EOF
	case !o.read(b[:n]):
		return o, fmt.Errorf("a report of %d bytes", n)
	}
	return o, nil
}

func readAgain(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

func childError(out outcome) error {
	switch {
	case out.errno == 0:
		return errInjected
	case out.step == childCanaryAfter && out.errno == notDenied:
		return errors.New("a file that no rule grants can be opened: Landlock does not hold")
	}
	return syscall.Errno(out.errno)
}

// handles gets hold of the program's process for the caller, and of its listener.
func (s *stage) handles(out outcome) (err error) {
	if s.pidfd, err = unix.PidfdOpen(s.pid, 0); err != nil {
		return err
	}
	if s.plan.hold.on {
		if s.listener, err = unix.PidfdGetfd(s.pidfd, int(out.listener), 0); err != nil {
			return err
		}
	}
	return s.wire.send(frameChild, nil, s.pidfd)
}

// giveUp takes from pid 1 what it does not need any more, before the program runs beside
// it.
func (s *stage) giveUp() {
	s.do("no dumps of pid 1", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) })
	s.do("capabilities of pid 1", func() error {
		keep := uint64(0)
		if s.plan.hold.on && !s.plan.plain {
			keep = 1 << unix.CAP_SYS_PTRACE // reads the names in held calls
		}
		return capsetAll(keep)
	})
}

// confineSelf leaves pid 1 the system calls that it needs, and says that all is set up.
func (s *stage) confineSelf() {
	if s.plan.plain {
		s.giveUp()
	}
	s.do("seccomp of pid 1", func() error {
		program, ok := programOf(s.plan.own)
		if !ok {
			return errors.New("the plan is malformed")
		}
		return filterAll(program)
	})
	s.do("ready", func() error {
		s.wire.plain = true
		b, err := encode(&setup{abi: s.rules.Handled().ABI, handled: s.rules.Handled().Names(), traced: s.traced, done: s.done})
		if err != nil {
			return err
		}
		return s.wire.send(frameReady, b)
	})
}

// awaitGo lets the program start when the caller says so.
func (s *stage) awaitGo() {
	fr, err := s.wire.recv(0)
	s.do("go", func() error {
		if err == nil && fr.kind != frameGo {
			err = fmt.Errorf("a frame of kind %d instead of the word to go", fr.kind)
		}
		return err
	})
	s.do("start", func() error {
		if _, err := unix.Write(s.gate, []byte{1}); err != nil {
			return err
		}
		out, err := s.outcome()
		switch {
		case errors.Is(err, io.EOF):
			return s.wire.send(frameStarted, nil)
		case err != nil:
			return err
		}
		s.step = childName(s.plan, out.step)
		return childError(out)
	})
}

func haveCapability(c int) bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&head, &data[0]) == nil && data[c/32].Effective&(1<<(c%32)) != 0
}
