package native

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageName is the only argument of a stage. That is no secret: who starts us by that
// name gets a process with his own rights, which does what the plan says that he sent.
const stageName = "ringfence-box"

// testName is the only argument of a process that tests the box that it is in.
const testName = "ringfence-box-test"

// What a stage finds where. Standard input and output are empty; what it says on its
// standard error is for the case that it crashes.
const (
	planFD    = 3 // what to do comes from here, and then the word to start
	reportFD  = 4 // what was done goes here, as frames
	streamsFD = 5 // the three streams, and then the files of the Spec
)

// programMask is the umask that programs start with.
const programMask = 0o022

// A plan is what a stage does.
type plan struct {
	argv, env []string
	dir       string
	files     int    // streams and files of the Spec
	canary    string // a file that must not open, "" for none
	network   bool   // there must be no network
	limits    []limit
}

// A limit is one resource limit, soft and hard.
type limit struct {
	name     string
	resource int
	value    int64
}

func (p *plan) visit(c *coder) {
	c.strs(&p.argv)
	c.strs(&p.env)
	c.str(&p.dir)
	c.integer(&p.files)
	c.str(&p.canary)
	c.flag(&p.network)
	list(c, &p.limits, func(l *limit) {
		c.str(&l.name)
		c.integer(&l.resource)
		c.num(&l.value)
	})
}

// A result is what a stage reports: before the program starts with step "", and if it
// does not start with the step that failed.
type result struct {
	step, text string
	errno      int
	proved     []string // what was tried and refused
	limits     []string // names of limits that are set
}

func (r *result) visit(c *coder) {
	c.str(&r.step)
	c.str(&r.text)
	c.integer(&r.errno)
	c.strs(&r.proved)
	c.strs(&r.limits)
}

// stepExec is the last step of all: what fails there is the program, not the box.
const stepExec = "exec"

// Child does not return in a process that was started as a stage, or to test its box.
// Main calls it before anything else; in any other process it does nothing.
func Child() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == testName:
		testBox()
	case len(os.Args) != 2 || os.Args[1] != stageName:
		return
	}
	s := &stage{report: os.NewFile(reportFD, "report")}
	step, err := s.run()
	r := result{step: step, text: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		r.errno = int(errno)
	}
	if err := send(s.report, &r); err != nil {
		fmt.Fprintln(os.Stderr, r.text, err)
	}
	os.Exit(1)
}

// A stage is the process that becomes the program. It is under the profile already:
// sandbox-exec put itself under it, and then executed us.
type stage struct {
	plan   plan
	report *os.File
	done   result
}

// run returns only if the program does not start, with the step that failed.
func (s *stage) run() (string, error) {
	in := os.NewFile(planFD, "plan")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"reading the plan", func() error { return receive(in, &s.plan) }},
		{"descriptors", s.seal},
		{"canary", s.tryFile},
		{"network", s.tryNetwork},
		{"signals", s.trySignal},
		{"limits", s.limit},
		{"working directory", func() error { return os.NewSyscallError("chdir", unix.Chdir(s.plan.dir)) }},
		{"report", func() error { return send(s.report, &s.done) }},
		{"go", func() error { return awaitGo(in) }},
		{stepExec, s.exec},
	} {
		if err := step.do(); err != nil {
			return step.name, err
		}
	}
	return stepExec, errors.New("it returned")
}

// seal closes, for the program, all that it was not given: what our caller's own parent
// left open comes down to here.
func (s *stage) seal() error {
	if s.plan.files < 3 || len(s.plan.argv) == 0 {
		return errors.New("the plan is malformed")
	}
	// Out of the way of the numbers that the program gets, while there is no limit yet.
	top, err := unix.FcntlInt(reportFD, unix.F_DUPFD_CLOEXEC, streamsFD+s.plan.files)
	if err != nil {
		return err
	}
	s.report = os.NewFile(uintptr(top), "report")
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	unix.Umask(programMask)
	return nil
}

// refused judges what became of something that a profile of ours forbids.
func (s *stage) refused(what string, err error) error {
	if err == nil {
		return fmt.Errorf("the profile does not hold: %s is possible", what)
	}
	if !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("trying out the profile: %s: %w", what, err)
	}
	s.done.proved = append(s.done.proved, what)
	return nil
}

// tryFile opens a file that opens for our caller.
func (s *stage) tryFile() error {
	if s.plan.canary == "" {
		return nil
	}
	fd, err := unix.Open(s.plan.canary, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return s.refused("files", err)
}

// tryNetwork connects a datagram socket, which sends nothing.
func (s *stage) tryNetwork() error {
	if !s.plan.network {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}})
		unix.Close(fd)
	}
	return s.refused("network", err)
}

// trySignal looks whether our caller could be signalled.
func (s *stage) trySignal() error { return s.refused("signals", unix.Kill(os.Getppid(), 0)) }

// limit sets the resource limits, and reads them back.
func (s *stage) limit() error {
	for _, l := range s.plan.limits {
		want := syscall.Rlimit{Cur: uint64(l.value), Max: uint64(l.value)}
		var old, got syscall.Rlimit
		if err := syscall.Getrlimit(l.resource, &old); err != nil {
			return fmt.Errorf("limit of %s: %w", l.name, err)
		}
		// Lower than wanted already, by who started us: it cannot be raised.
		want.Max = min(want.Max, old.Max)
		want.Cur = min(want.Cur, want.Max)
		if err := syscall.Setrlimit(l.resource, &want); err != nil {
			return fmt.Errorf("limit of %s: %w", l.name, err)
		}
		if err := syscall.Getrlimit(l.resource, &got); err != nil {
			return fmt.Errorf("limit of %s: %w", l.name, err)
		}
		if got != want {
			return fmt.Errorf("limit of %s: it is %v, not %v", l.name, got, want)
		}
		s.done.limits = append(s.done.limits, l.name)
	}
	return nil
}

// awaitGo waits for the word that the program may start. If our caller is gone, it never
// comes.
func awaitGo(in io.Reader) error {
	var word [1]byte
	if _, err := io.ReadFull(in, word[:]); err != nil {
		return err
	}
	return nil
}

// exec puts the descriptors where the program expects them and becomes it.
func (s *stage) exec() error {
	// Each goes to a lower number than it has, so none is overwritten before its turn.
	for i := range s.plan.files {
		if err := unix.Dup2(streamsFD+i, i); err != nil {
			return err
		}
	}
	return syscall.Exec(s.plan.argv[0], s.plan.argv, s.plan.env)
}

// send writes m with its length before it (4 bytes, big endian).
func send(w io.Writer, m message) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// receive reads m as send wrote it: io.EOF if nothing comes.
func receive(r io.Reader, m message) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return fmt.Errorf("a message of %d bytes", n)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return err
	}
	return decode(b.Bytes(), m)
}

// An attempt is something that a program might do.
type attempt struct {
	name string
	try  func() error
}

// attempts are what a program in a box of ours cannot do, whatever its Spec. Each returns
// nil if it could.
var attempts = []attempt{
	{"read /etc/passwd", func() error { return opened("/private/etc/passwd", unix.O_RDONLY) }},
	{"list the homes", func() error { return opened("/Users", unix.O_RDONLY) }},
	{"list /tmp", func() error { return opened("/private/tmp", unix.O_RDONLY) }},
	{"signal its parent", func() error { return unix.Kill(os.Getppid(), 0) }},
	{"list all processes", func() error { _, err := unix.SysctlKinfoProcSlice("kern.proc.all"); return err }},
	{"reach other machines", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 1}})
	}},
	{"reach the resolver", func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: "/private/var/run/mDNSResponder"})
	}},
}

func opened(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// testBox is the program that probe runs. It does not return.
func testBox() {
	could := slices.DeleteFunc(slices.Clone(attempts), func(a attempt) bool { return a.try() != nil })
	for _, a := range could {
		fmt.Fprintln(os.Stderr, "a program in it can", a.name)
	}
	if len(could) > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}
