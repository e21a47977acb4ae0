package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sys/ipc"
)

// This file is what runs in the container before the program: the init, which
// stays as its first process, and the stage, which becomes the program.
//
//	we      → init   one message: the descriptors of the program and of the stage
//	init    → we     one message, if the box has ways: the sockets that listen
//	we      → init   a frame, if names are held: its orders
//	we      → stage  a frame: the order
//	stage   → we     a byte, with its credentials; a frame: its account
//	we      → stage  a byte: go
//	stage   → we     nothing, when its end closes because the program starts; else
//	                 two bytes: why it does not
//	we      → init   bytes: signals for the program
//	stage   → init   the listener of its filter, if names are held
//	init    → we     frames: what it refused; the last: how the program ended, when all else
//	                 is dead

// Bounds of what passes between us and the container.
const (
	maxHandover = 64 << 10
	maxOrder    = 8 << 20
	maxAccount  = 4 << 20
)

// child runs this process as a part of a container, if args say that it is one.
func child(args []string) {
	if len(args) < 2 {
		return
	}
	switch {
	case args[1] == childVerb && len(args) == 2:
		os.Exit(runInit())
	case args[1] == stageVerb && len(args) == 3:
		os.Exit(runStage(args[2]))
	case args[1] == tryVerb && len(args) == 2:
		os.Exit(runTry(fdWriter(1)))
	}
}

// A handover goes to the init, with the descriptors: three streams, those of
// Spec.Files, and the stage's channel.
type handover struct {
	Files    int
	Terminal bool // the first is one, and becomes the controlling terminal
	Mounts   bool // there are some that could go away
	Ways     *ways
	Hold     bool // names: a frame with orders comes next
}

// An order goes to the stage. Bytes, because arguments need not be UTF-8.
type order struct {
	Argv, Env [][]byte
	Search    [][]byte // what the program can be if it is not at Argv[0]
	Dir       []byte
	Limits    limits
	Paths     []pathOrder
	Wide      bool // the calls that agents and servers need
	Sockets   bool // of the box's own network, and to the way out
	Hold      *holdOrder
}

// A holdOrder tells the stage whose names are held.
type holdOrder struct {
	Trees [][]byte // by the init
	Own   [][]byte // by nobody
}

// A pathOrder asks what the box sees at a path.
type pathOrder struct {
	Target []byte
	Write  bool
}

// An account is what the stage says before the program starts.
type account struct {
	Failed string `json:",omitempty"` // what it could not do; nothing else is set then
	Facts  facts
	Paths  []pathAccount
	Found  []byte `json:",omitempty"` // which of Search it is
	Held   *held  `json:",omitempty"`
}

type pathAccount struct {
	ID     fileID
	Failed string `json:",omitempty"`
}

// An ending is how the program ended, or, with Refused, something before that.
type ending struct {
	Code, Signal int     // Signal 0: it ended by itself
	Lost         bool    // a mount went away, and the init ended it
	Refused      *notice `json:",omitempty"`
}

// runInit is the first process of the container. Nothing of the program can be
// allowed to read or end it: it is not dumpable, and signals reach it from inside
// only where it has handlers, which pass on two and drop the rest.
func runInit() int {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return notInContainer
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	keepThreads()
	c, err := dialControl()
	if err != nil {
		return notInContainer
	}
	h, fds, err := receive(c)
	if err != nil {
		return notInContainer
	}
	var mounts *mountWatch
	if h.Mounts { // as they are before anybody outside judges them
		if mounts, err = newMountWatch(); err != nil {
			return notInContainer
		}
	}
	if h.Ways != nil && giveWays(c, *h.Ways) != nil {
		return notInContainer
	}
	var holds *supervisor
	if h.Hold {
		var theirs int
		if holds, theirs, err = newSupervisor(c); err != nil {
			return notInContainer
		}
		fds = append(fds, theirs)
	}
	pid, err := startStage(h, fds)
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err != nil {
		return notInContainer
	}
	p := &program{pid: pid}
	holds.start(c)
	go func() {
		for s := range signals {
			if n, ok := s.(syscall.Signal); ok && (n == syscall.SIGTERM || n == syscall.SIGINT) {
				p.signal(n)
			}
		}
	}()
	go func() {
		end, err := p.reap()
		say(c, end, err)
	}()
	if mounts != nil {
		go func() {
			// At the end of this process everything else in the container is killed.
			say(c, ending{Lost: true}, mounts.lost())
			os.Exit(notInContainer)
		}()
	}
	// When we outside are gone, or have heard enough, the box ends.
	b := make([]byte, 1)
	for {
		if n, err := c.Read(b); n != 1 || err != nil {
			return 0
		}
		p.signal(syscall.Signal(b[0]))
	}
}

// say tells us outside how the program ended, or what was refused: in one piece, because
// several do.
func say(c *net.UnixConn, end ending, err error) {
	text, jsonErr := json.Marshal(end)
	var frame frameBuffer
	if errors.Join(err, jsonErr) != nil || ipc.WriteFrame(&frame, text, nil) != nil {
		os.Exit(notInContainer)
	}
	if _, err := c.Write(frame); err != nil {
		os.Exit(notInContainer)
	}
}

// mountPause is how long a lost mount may go unnoticed.
const mountPause = 100 * time.Millisecond

// A mountWatch looks for mounts of the container that go away. Nobody inside can
// unmount anything, but when what a mount stands on is removed or replaced outside,
// the kernel takes the mount away here too, and shows what is beneath.
type mountWatch struct {
	f    *os.File
	fds  []unix.PollFd
	were int
}

func newMountWatch() (*mountWatch, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	was, err := parseMountinfo(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// The kernel says so that the mounts changed (proc_pid_mounts(5)), but not always
	// of those that it takes away itself (seen with 6.18).
	return &mountWatch{f, []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}, len(was)}, nil
}

// lost returns when a mount has gone away.
func (w *mountWatch) lost() error {
	for {
		if _, err := unix.Poll(w.fds, int(mountPause/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if _, err := w.f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		is, err := parseMountinfo(w.f)
		if err != nil {
			return err
		}
		if len(is) < w.were {
			return nil
		}
	}
}

// idleThreads is how many threads are kept in store. Three block in the kernel for
// long, waiting for processes, for signals and for changes of mounts.
const idleThreads = 9

// keepThreads makes threads that the runtime then keeps for when it needs one: in
// a container that is full, a runtime that cannot make a thread would end the box.
func keepThreads() {
	var all, done sync.WaitGroup
	all.Add(idleThreads)
	for range idleThreads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		})
	}
	done.Wait()
}

// dialControl connects to the socket that was mounted into the container. Who
// listens there made the container.
func dialControl() (*net.UnixConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: controlPath}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return unixConn(fd)
}

// unixConn makes a connection of a descriptor, which it owns.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.ErrUnsupported, c.Close())
	}
	return u, nil
}

// receive reads the handover and its descriptors, which come in one message.
func receive(c *net.UnixConn) (h handover, fds []int, err error) {
	text := make([]byte, maxHandover)
	oob := make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, oobn, _, _, err := c.ReadMsgUnix(text, oob)
	if err != nil {
		return h, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return h, nil, err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return h, nil, err
		}
		fds = append(fds, got...)
	}
	if err := json.Unmarshal(text[:n], &h); err != nil {
		return h, nil, err
	}
	if len(fds) != h.Files+4 {
		return h, nil, fmt.Errorf("%d descriptors, want %d", len(fds), h.Files+4)
	}
	return h, fds, nil
}

// maxDescriptors is how many the kernel passes in one message (SCM_MAX_FD).
const maxDescriptors = 253

// startStage starts the process that becomes the program. The stage's channel has
// the first number after those that the program gets.
func startStage(h handover, fds []int) (int, error) {
	files := make([]uintptr, len(fds))
	for i, fd := range fds {
		files[i] = uintptr(fd)
	}
	return syscall.ForkExec(initPath, []string{initPath, stageVerb, strconv.Itoa(h.Files + 3)}, &syscall.ProcAttr{
		Env:   []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: h.Terminal},
	})
}

// A program is the process that the box is about. Lock order: mu is a leaf.
type program struct {
	mu     sync.Mutex
	pid    int
	reaped bool
}

func (p *program) signal(n syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = unix.Kill(p.pid, n) // it may be about to end: then it needs none
	}
}

// reap waits for the program, and for what is left to it in the meantime. Then it
// kills everything else and returns when that is gone.
func (p *program) reap() (ending, error) {
	for {
		// Left as it is until the lock is held, so that its number stays its own.
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return ending{}, err
		}
		p.mu.Lock()
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		p.reaped = p.reaped || pid == p.pid
		p.mu.Unlock()
		if err != nil || pid != p.pid {
			continue
		}
		return endingOf(ws), killAll()
	}
}

func endingOf(ws unix.WaitStatus) ending {
	if ws.Signaled() {
		return ending{Signal: int(ws.Signal())}
	}
	return ending{Code: ws.ExitStatus()}
}

// killAll ends every process of the container but us.
func killAll() error {
	for {
		if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return nil
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
			if pid == 0 {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
}
