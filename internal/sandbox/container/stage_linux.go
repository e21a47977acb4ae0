package container

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"ringfence/internal/sys/ipc"
)

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
	x, a, err := prepare(o, fd+1)
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
	mounts, err := newProcText("/proc/self/mountinfo", a.Facts.Mounts)
	if err != nil {
		return tell(fd, account{Failed: "looking at its mounts: " + err.Error()})
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
	errno := unix.ESTALE // what was confirmed is not what is there (K3)
	if mounts.same() {
		errno = x.exec()
	}
	answer[0], answer[1] = byte(errno>>8), byte(errno)
	writeAll(fd, answer[:])
	return notInContainer
}

// A procText is a file of /proc and what was read of it, to compare it without allocating.
type procText struct {
	fd       int
	was, buf []byte
}

func newProcText(name, was string) (*procText, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return &procText{fd, []byte(was), make([]byte, len(was)+1)}, err
}

// same reports whether the file is as it was.
func (t *procText) same() bool {
	n := 0
	for n < len(t.buf) {
		more, err := unix.Pread(t.fd, t.buf[n:], int64(n))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false
		}
		if more == 0 {
			break
		}
		n += more
	}
	return bytes.Equal(t.buf[:n], t.was)
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

// prepare does everything but limiting the address space and starting the program. A
// listener of held names is handed over through channel.
func prepare(o order, channel int) (*execution, account, error) {
	if len(o.Argv) == 0 {
		return nil, account{}, errors.New("no program")
	}
	var a account
	if a.Found = found(o); a.Found != nil {
		o.Argv[0] = a.Found
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
	for _, p := range o.Paths {
		a.Paths = append(a.Paths, accountOf(p))
	}
	if o.Hold != nil {
		a.Held, err = confine(o, channel)
	} else {
		_, err = denyCalls(o)
	}
	if err != nil {
		return nil, account{}, err
	}
	a.Facts = readFacts("/proc/self")
	return x, a, nil
}

// found returns which program of the image stands for that of the order, nil if that
// is there or none does.
func found(o order) []byte {
	if err := unix.Access(string(o.Argv[0]), unix.F_OK); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	for _, file := range o.Search {
		if fi, err := os.Stat(string(file)); err == nil && fi.Mode().IsRegular() && unix.Access(string(file), unix.X_OK) == nil {
			return file
		}
	}
	return nil
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
