package native

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/cgroup"
	"ringfence/internal/sandbox/native/landlock"
	"ringfence/internal/sandbox/native/readback"
	"ringfence/internal/sys/proc"
)

// setupTime is how long building a box may take at most, but for Confirm.
const setupTime = 30 * time.Second

// self is our own program, whatever became of its file since.
const self = "/proc/self/exe"

// stageCaps are the capabilities that a stage has in its user namespace, and there
// only: for mounts, ids, the loopback interface, the limits of its namespaces, and to
// give all of them up.
var stageCaps = []uintptr{
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SYS_PTRACE,
	unix.CAP_SYS_RESOURCE,
}

// stageEnv is the environment of a stage. The runtime need not look for limits of
// processor time: that takes longer than what it would save. Steps follow each other, so
// that one processor does, and there are fewer threads to start and to confine.
var stageEnv = []string{"GODEBUG=containermaxprocs=0,updatemaxprocs=0", "GOMAXPROCS=1"}

// errNoUserNamespaces says that this machine makes no user namespaces for us.
var errNoUserNamespaces = errors.New("user namespaces are not to be had")

func (t Tier) start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	if err := s.Validate(sandbox.Overlays, sandbox.Copies, sandbox.Entrances, sandbox.Homes); err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrNotBuilt, err)
	}
	b := t.builder(s)
	err := b.build(ctx)
	if errors.Is(err, errNoUserNamespaces) {
		because := err
		b = t.builder(s)
		b.plain, b.because = true, because
		b.box.plain = true
		b.do("the copy of the workspace", b.inCopy)
		err = b.build(ctx)
	}
	if err != nil {
		return nil, err
	}
	return b.box, nil
}

// A builder builds one box, from the caller's side. Its steps and those of the stage
// run at the same time, until the plan is sent.
type builder struct {
	spec    sandbox.Spec
	state   []string // files and trees that no box sees
	image   func() *os.File
	fault   fault
	plain   bool
	because error // why plain
	shared  int64 // processes that the user had, where the limit counts all of his

	box       *box
	ids       ids
	become    bool // the stage takes the ids of the box itself
	plan      *plan
	fds       []int
	own       []int // descriptors of ours among fds
	wire      *wire
	theirs    []*os.File // ends of pipes that go to the box
	ours      readback.Facts
	facts     readback.Facts     // of the program's process
	listening *sandbox.Listening // what the stage handed out, until it is handed on
	setup     setup
	known     groundwork
	steps     []string
	fail      error
}

func (t Tier) builder(s sandbox.Spec) *builder {
	return &builder{spec: s, state: t.Own, image: t.Image, fault: t.fault, box: newBox(s, t.fault.stage)}
}

// do takes one step, as in the stage.
func (b *builder) do(name string, f func() error) {
	if b.fail != nil {
		return
	}
	err := errInjected
	if b.fault.at != name {
		err = f()
	}
	switch {
	case err == nil:
		b.steps = append(b.steps, name)
	case errors.Is(err, sandbox.ErrNotBuilt) || errors.Is(err, sandbox.ErrNotFound):
		b.fail = err
	default:
		b.fail = notBuilt(name, err)
	}
}

// build takes all steps. When it returns an error nothing of the box is left.
func (b *builder) build(ctx context.Context) error {
	setup, cancel := context.WithTimeoutCause(ctx, setupTime, errors.New("it took too long"))
	defer cancel()
	b.do("context", func() error { return context.Cause(setup) })
	b.ground(setup)
	thought := b.thinkAside()
	b.do("stage", b.startStage)
	return b.complete(ctx, setup, thought)
}

// ground takes the steps for which it does not matter what the program may see.
func (b *builder) ground(setup context.Context) {
	b.do("kernel", b.checkKernel)
	b.do("descriptors of ours", proc.SealDescriptors)
	b.do("user ids", b.takeIDs)
	b.do("control group", func() error { return b.makeGroup(setup) })
	b.do("program of the stage", b.chooseProgram)
}

// thinkAside works out the plan while something else is done.
func (b *builder) thinkAside() <-chan error {
	thought := make(chan error, 1)
	if b.fail != nil {
		thought <- nil
		return thought
	}
	go func() { thought <- b.think() }()
	return thought
}

// complete takes the steps after those of ground and the start of the stage.
func (b *builder) complete(ctx, setup context.Context, thought <-chan error) error {
	err := <-thought
	b.do("streams", b.streams)
	if b.box.stage == nil {
		return b.undo()
	}
	stop := context.AfterFunc(setup, b.box.end)
	// Beyond the set-up the context alone counts.
	defer context.AfterFunc(ctx, func() { b.box.kill(sandbox.CauseKill) })()
	b.do("plan", func() error { return err })
	b.do("id-mapped mounts", b.mountOutside)
	b.do("joining the control group", b.openGroup)
	b.do("sending the plan", func() error { return b.wire.sendPlan(b.plan, b.fds) })
	b.release()
	b.do("looking at ourselves", func() (err error) { b.ours, err = readback.Read(os.Getpid()); return })
	b.do("set-up", b.awaitReady)
	b.do("read back", b.readBack)
	b.do("our own state", b.checkOwn)
	if !stop() && b.fail == nil {
		b.fail = notBuilt("set-up", context.Cause(setup))
	}
	b.do("handing out the ways", b.handOut)
	b.do("confirm", b.confirm)
	b.box.left = leftoversOf(b.spec)
	b.do("start", b.letGo)
	b.box.tellUnseen(b.plan)
	if b.fail != nil {
		if err := context.Cause(setup); err != nil && !errors.Is(b.fail, err) {
			b.fail = fmt.Errorf("%w (%w)", b.fail, err)
		}
		return b.abandon()
	}
	b.box.begin(ctx, b.wire)
	return nil
}

// checkKernel fails early, and with what can be done, where there is no Landlock or too
// little of it.
func (b *builder) checkKernel() error {
	abi, err := landlock.ABI()
	if err != nil {
		return err
	}
	if b.plain && abi < plainABI {
		_, err = landlock.Rules{MinABI: plainABI}.Plan(abi)
		return &lackError{what: fmt.Sprintf("a box on this kernel (%v)", err), because: b.because}
	}
	return nil
}

// takeIDs chooses who the box runs as: root of the machine is somebody else in it,
// anybody else is himself.
func (b *builder) takeIDs() (err error) {
	b.box.ids = ownIDs()
	if !b.plain && machineRoot() {
		uid, gid, err := ownerOf(b.spec)
		if err != nil {
			return err
		}
		if b.box.ids, err = takeBlock(uid, gid); err != nil {
			return err
		}
	}
	b.ids = b.box.ids
	return nil
}

// ownerOf returns whose box of root's that of s is: a tree that belongs to somebody is
// only of use to him.
func ownerOf(s sandbox.Spec) (uid, gid int, err error) {
	if s.Workspace.Mode == sandbox.NoAccess {
		return 0, 0, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(s.Workspace.Path, &st); err != nil {
		return 0, 0, fmt.Errorf("workspace %s: %w", s.Workspace.Path, err)
	}
	return int(st.Uid), int(st.Gid), nil
}

// streams makes the pipes of the three streams, where the Spec has no file for them.
func (b *builder) streams() error {
	for i, given := range []*os.File{b.spec.Stdin, b.spec.Stdout, b.spec.Stderr} {
		if given != nil {
			b.fds = append(b.fds, int(given.Fd()))
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		ours, theirs := r, w
		if i == 0 {
			ours, theirs = w, r
		}
		if b.ids.outer >= 0 { // or the program cannot open /dev/stdout
			if err := theirs.Chown(b.ids.outer+b.ids.uid, b.ids.outer+b.ids.gid); err != nil {
				return errors.Join(err, ours.Close(), theirs.Close())
			}
		}
		b.box.files[i] = ours
		b.theirs = append(b.theirs, theirs)
		b.fds = append(b.fds, int(theirs.Fd()))
	}
	for _, f := range b.spec.Files {
		b.fds = append(b.fds, int(f.Fd()))
	}
	return nil
}

// startStage starts our own program as the stage. The thread that forks it lives as
// long as the stage: the kernel takes its death for ours (PR_SET_PDEATHSIG, prctl(2)).
func (b *builder) startStage() error {
	if b.fault.plain && !b.plain {
		return fmt.Errorf("%w: %w: %w", sandbox.ErrNotBuilt, errNoUserNamespaces, errInjected)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "wire")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return err
	}
	if b.wire, err = newWire(os.NewFile(uintptr(pair[0]), "wire")); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	last, lastWords, err := os.Pipe()
	if err != nil {
		return err
	}
	defer lastWords.Close()
	b.box.lastWords = last
	files := make([]*os.File, topFD+1)
	files[0], files[1], files[2], files[wireFD], files[imageFD], files[topFD] = null, null, lastWords, theirs, cmp.Or(b.box.image, null), null
	attr := &os.ProcAttr{Dir: "/", Env: stageEnv, Files: files, Sys: b.attributes()}
	started := make(chan error)
	go b.box.live(attr, started)
	err = <-started
	if err != nil && !b.plain && noNamespaces(err) {
		return fmt.Errorf("%w: %w: %w", sandbox.ErrNotBuilt, errNoUserNamespaces, err)
	}
	return err
}

func (b *builder) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if fd := b.box.leaf.FD(); fd >= 0 {
		attr.UseCgroupFD, attr.CgroupFD = true, fd
	}
	if b.plain {
		return attr
	}
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if b.spec.Network != sandbox.NetworkOpen {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	attr.UidMappings, attr.GidMappings = b.ids.maps()
	attr.AmbientCaps = stageCaps
	if b.spec.Workspace.Upper != "" {
		attr.AmbientCaps = slices.Concat(attr.AmbientCaps, overlayCaps)
	}
	if b.spec.Network == sandbox.NetworkPolicy {
		attr.AmbientCaps = append(slices.Clip(attr.AmbientCaps), unix.CAP_NET_BIND_SERVICE)
	}
	if b.ids.outer >= 0 {
		attr.GidMappingsEnableSetgroups = true
		if !b.become {
			attr.Credential = &syscall.Credential{Uid: uint32(b.ids.uid), Gid: uint32(b.ids.gid)}
		}
	}
	return attr
}

// noNamespaces reports whether err is how the kernel refuses namespaces: switched off
// (EPERM, ENOSYS, EINVAL), or a limit of zero (ENOSPC, EUSERS).
func noNamespaces(err error) bool {
	for _, e := range []syscall.Errno{unix.EPERM, unix.ENOSYS, unix.EINVAL, unix.ENOSPC, unix.EUSERS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// makeGroup makes the control group of the box. It may hold less than a profile wants:
// the report says what.
func (b *builder) makeGroup(ctx context.Context) error {
	bounds := b.spec.Bounds()
	limits := cgroup.Limits{Memory: bounds.Memory, Processes: int64(bounds.Processes)}
	if _, err := os.Stat("/sys/fs/cgroup/pids/cgroup.procs"); err != nil && limits.Processes > 0 {
		limits.Processes += ownThreads // pid 1 is in groups of version 2 only
	}
	name, err := cgroup.NewName()
	if err != nil {
		return err
	}
	if b.box.leaf, err = cgroup.Make(ctx, name, limits); err != nil {
		return err
	}
	// What a profile sets is held where it can be; what somebody asked for is held.
	if why, missing := b.box.leaf.Missing()[cgroup.Memory]; missing && b.spec.Limits.Memory > 0 {
		return fmt.Errorf("a limit of memory for the whole box cannot be held here (%s); leave it out, or run where a control group can be had", why)
	}
	return nil
}

// openGroup opens where the program's process joins the groups of version 1. It does
// so by itself, as the only thread of its process: moving another process waits for
// all processors, some 10 ms (kernel/cgroup/cgroup.c, cgroup_procs_write_start). The
// group of version 2 it is born in.
func (b *builder) openGroup() error {
	for _, dir := range b.box.leaf.Dirs() {
		fd, err := unix.Open(dir+"/tasks", unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s/tasks: %w", dir, err)
		}
		b.own = append(b.own, fd)
		b.fds = append(b.fds, fd)
		b.plan.groups++
	}
	return nil
}

// release closes what the stage has received.
func (b *builder) release() {
	for _, f := range b.theirs {
		f.Close()
	}
	closeFDs(b.own)
	b.theirs, b.own = nil, nil
	runtime.KeepAlive(b.spec.Files)
}

// awaitReady follows the stage until all is set up and nothing runs.
func (b *builder) awaitReady() error {
	var looked error
	for {
		fr, err := b.wire.recv(maxSmall)
		if err != nil {
			return b.lost(err)
		}
		switch {
		case fr.kind == frameFailed:
			return stageFailure(fr.payload, b.spec)
		case fr.kind == frameChild && len(fr.fds) == 1 && b.box.program < 0:
			b.box.program = fr.fds[0]
			// It is confined; while it is looked at, pid 1 confines itself.
			// If it is gone, the stage says why.
			b.facts, looked = readback.ReadPidfd(b.box.program)
		case fr.kind == frameWays:
			if err := b.taken(fr); err != nil {
				return err
			}
		case fr.kind == frameReady && b.box.program >= 0:
			b.wire.plain = true
			return errors.Join(looked, decode(fr.payload, &b.setup))
		default:
			closeFDs(fr.fds)
			return fmt.Errorf("the stage sent a frame of kind %d", fr.kind)
		}
	}
}

// lost says what became of a stage that says nothing more.
func (b *builder) lost(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	b.box.end()
	<-b.box.reaped
	return fmt.Errorf("the stage ended (%v)%s", b.box.state, b.box.words())
}

// confirm asks who wanted the box whether it may go on.
func (b *builder) confirm() error {
	if b.spec.Confirm == nil {
		return nil
	}
	return b.spec.Confirm(b.box.report)
}

// letGo lets the program start and waits until it has.
func (b *builder) letGo() error {
	if err := b.wire.send(frameGo, nil); err != nil {
		return b.lost(err)
	}
	fr, err := b.wire.recv(maxSmall)
	switch {
	case err != nil:
		return b.lost(err)
	case fr.kind == frameFailed:
		return stageFailure(fr.payload, b.spec)
	case fr.kind != frameStarted:
		return fmt.Errorf("the stage sent a frame of kind %d", fr.kind)
	}
	return nil
}

// undo gives back what was taken before there was a stage, and returns what failed.
func (b *builder) undo() error {
	b.release()
	if b.wire != nil {
		b.wire.close()
	}
	b.box.closeStreams()
	return errors.Join(b.fail, b.box.giveBack())
}

// abandon ends a box that was not built, waits until nothing of it is left, and
// returns what failed.
func (b *builder) abandon() error {
	b.release()
	b.box.end()
	<-b.box.reaped
	b.wire.close()
	b.box.closeStreams()
	return errors.Join(b.fail, b.dropWays(), b.box.giveBack())
}

// words returns what the stage said on its standard error, which is only written when
// it crashes.
func (b *box) words() string {
	text, err := io.ReadAll(io.LimitReader(b.lastWords, 4096))
	if err != nil || len(text) == 0 {
		return ""
	}
	return ": " + string(bytes.TrimSpace(text))
}
