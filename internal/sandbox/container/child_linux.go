package container

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
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
//	we      → stage  a frame: the order
//	stage   → we     a byte, with its credentials; a frame: its account
//	we      → stage  a byte: go
//	stage   → we     nothing, when its end closes because the program starts; else
//	                 two bytes: why it does not
//	we      → init   bytes: signals for the program
//	init    → we     a frame: how the program ended, when all else is dead

// notInContainer is the exit status of the init that does not come to anything.
const notInContainer = 125

// Bounds of what passes between us and the container.
const (
	maxHandover = 64 << 10
	maxOrder    = 8 << 20
	maxAccount  = 4 << 20
)

// Child runs this process as a part of a container, and does not return, if args
// (those of the process, with its name) say that it is one. main calls it before
// anything else.
func Child(args []string) {
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
}

// An order goes to the stage. Bytes, because arguments need not be UTF-8.
type order struct {
	Argv, Env [][]byte
	Dir       []byte
	Limits    limits
	Paths     []pathOrder
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
}

type pathAccount struct {
	ID     fileID
	Failed string `json:",omitempty"`
}

// An ending is how the program ended.
type ending struct {
	Code, Signal int // Signal 0: it ended by itself
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
	pid, err := startStage(h, fds)
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err != nil {
		return notInContainer
	}
	p := &program{pid: pid}
	go func() {
		for s := range signals {
			if n, ok := s.(syscall.Signal); ok && (n == syscall.SIGTERM || n == syscall.SIGINT) {
				p.signal(n)
			}
		}
	}()
	go func() {
		end, err := p.reap()
		text, jsonErr := json.Marshal(end)
		if errors.Join(err, jsonErr) != nil || ipc.WriteFrame(c, text, nil) != nil {
			os.Exit(notInContainer)
		}
	}()
	// When we outside are gone, or have heard enough, the box ends.
	b := make([]byte, 1)
	for {
		if n, err := c.Read(b); n != 1 || err != nil {
			return 0
		}
		p.signal(syscall.Signal(b[0]))
	}
}

// idleThreads is how many threads are kept in store. Two block in the kernel for
// long, waiting for processes and for signals.
const idleThreads = 5

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

// runStage becomes the program, or says on its channel why it does not.
func runStage(number string) int {
	runtime.LockOSThread() // limits and filter are of the process; no_new_privs is of a thread
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 3 {
		return notInContainer
	}
	syscall.CloseOnExec(fd)
	if _, err := unix.Write(fd, []byte{'!'}); err != nil {
		return notInContainer
	}
	channel := fdReader(fd)
	text, _, err := ipc.ReadFrame(bufio.NewReaderSize(channel, 1), maxOrder, 0)
	var o order
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return tell(fd, account{Failed: "reading its order: " + err.Error()})
	}
	x, a, err := prepare(o)
	if err != nil {
		return tell(fd, account{Failed: err.Error()})
	}
	text, err = json.Marshal(a)
	if err != nil {
		return notInContainer
	}
	var frame frameBuffer
	if err := ipc.WriteFrame(&frame, text, nil); err != nil {
		return notInContainer
	}
	// From here on there may be no room for anything new.
	debug.SetGCPercent(-1)
	if o.Limits.AddressSpace > 0 {
		if err := limit(unix.RLIMIT_AS, o.Limits.AddressSpace); err != nil {
			return tell(fd, account{Failed: "limiting the address space: " + err.Error()})
		}
	}
	if !writeAll(fd, frame) {
		return notInContainer
	}
	var answer [2]byte
	if n, err := unix.Read(fd, answer[:1]); n != 1 || err != nil {
		return notInContainer // whoever confirms said no
	}
	errno := x.exec()
	answer[0], answer[1] = byte(errno>>8), byte(errno)
	writeAll(fd, answer[:])
	return notInContainer
}

// tell says what the stage could not do.
func tell(fd int, a account) int {
	if text, err := json.Marshal(a); err == nil {
		var frame frameBuffer
		if ipc.WriteFrame(&frame, text, nil) == nil {
			writeAll(fd, frame)
		}
	}
	return notInContainer
}

// prepare does everything but limiting the address space and starting the program.
func prepare(o order) (*execution, account, error) {
	if len(o.Argv) == 0 {
		return nil, account{}, errors.New("no program")
	}
	x, err := newExecution(o)
	if err != nil {
		return nil, account{}, err
	}
	if err := preferForOOM(); err != nil {
		return nil, account{}, fmt.Errorf("offering itself to the kernel when memory is short: %w", err)
	}
	if err := unix.Chdir(string(o.Dir)); err != nil {
		return nil, account{}, fmt.Errorf("working directory %s: %w", o.Dir, err)
	}
	unix.Umask(0o022)
	for resource, value := range map[int]uint64{unix.RLIMIT_CPU: o.Limits.CPU, unix.RLIMIT_NOFILE: o.Limits.Descriptors} {
		if value == 0 {
			continue
		}
		if err := limit(resource, value); err != nil {
			return nil, account{}, fmt.Errorf("setting a limit: %w", err)
		}
	}
	if err := limit(unix.RLIMIT_CORE, 0); err != nil {
		return nil, account{}, fmt.Errorf("turning core dumps off: %w", err)
	}
	var a account
	for _, p := range o.Paths {
		a.Paths = append(a.Paths, accountOf(p))
	}
	if err := denyCalls(); err != nil {
		return nil, account{}, fmt.Errorf("filtering system calls: %w", err)
	}
	a.Facts = readFacts("/proc/self")
	return x, a, nil
}

// accountOf says what the box sees at a path, and whether it may use it.
func accountOf(p pathOrder) pathAccount {
	fi, err := os.Lstat(string(p.Target))
	if err != nil {
		return pathAccount{Failed: err.Error()}
	}
	mode := uint32(unix.R_OK)
	switch {
	case p.Write && fi.IsDir():
		mode |= unix.W_OK | unix.X_OK
	case p.Write || fi.Mode()&os.ModeSocket != 0:
		mode |= unix.W_OK
	case fi.IsDir():
		mode |= unix.X_OK
	}
	a := pathAccount{ID: idOf(fi)}
	if err := unix.Access(string(p.Target), mode); err != nil {
		a.Failed = err.Error()
	}
	return a
}

func limit(resource int, value uint64) error {
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}

// preferForOOM lets the kernel end the program rather than the init.
func preferForOOM() error {
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(strconv.Itoa(maxOOMScore)))
	return errors.Join(err, unix.Close(fd))
}

// An fdReader reads a blocking descriptor.
type fdReader int

func (fd fdReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// An fdWriter writes to a blocking descriptor.
type fdWriter int

func (fd fdWriter) Write(p []byte) (int, error) {
	if !writeAll(int(fd), p) {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// A frameBuffer is a frame that is ready to be sent without allocating.
type frameBuffer []byte

func (b *frameBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}

func writeAll(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}
