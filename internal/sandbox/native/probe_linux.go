package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/landlock"
	"ringfence/internal/sys/proc"
)

// testName is the only argument of a process that tests the box that it is in.
const testName = "ringfence-box-test"

// probe runs our own program in a box, where it tries what must not be possible. Where
// we may not look up our own program, another has to do.
func (t Tier) probe(ctx context.Context) (sandbox.Report, error) {
	argv := []string{"/bin/true"} // which only shows that a box can be built
	if exe, err := proc.Executable(); err == nil {
		argv = []string{exe, testName}
	}
	out, err := sandbox.Run(ctx, t, sandbox.Spec{Argv: argv, Profile: sandbox.ProfileAgent}, nil)
	if err != nil {
		for _, cannot := range []error{landlock.ErrAbsent, landlock.ErrDisabled, landlock.ErrRefused, landlock.ErrTooOld} {
			if errors.Is(err, cannot) {
				err = fmt.Errorf("%w: %w", sandbox.ErrUnsupported, err)
			}
		}
		if lack := (*lackError)(nil); errors.As(err, &lack) {
			err = fmt.Errorf("%w: %w", sandbox.ErrUnsupported, err)
		}
		return sandbox.Report{Tier: TierName}, err
	}
	if out.Exit.Status() != 0 {
		return sandbox.Report{Tier: TierName}, fmt.Errorf("the box does not hold: %v: %s%s", out.Exit, out.Stdout, out.Stderr)
	}
	return out.Report, nil
}

// attempts are what a program in a box of ours cannot do. Each returns nil if it could,
// and then has changed nothing but the process that tried.
var attempts = []struct {
	name string
	try  func() error
}{
	{"read /etc/shadow", func() error { return opened("/etc/shadow", unix.O_RDONLY) }},
	{"read what is outside", func() error { return opened("/sys/kernel", unix.O_RDONLY) }},
	{"write to the system", func() error { return opened("/etc/ld.so.cache", unix.O_WRONLY) }},
	{"make a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{"mount", func() error { _, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC); return err }},
	{"make a raw socket", func() error { return routed(unix.SOCK_RAW, nil) }},
	// No packet is sent: the kernel only looks for a route.
	{"reach other machines", func() error {
		return routed(unix.SOCK_DGRAM, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 1}})
	}},
}

func opened(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func routed(kind int, to unix.Sockaddr) error {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil || to == nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, to)
}

// test is the program that probe runs. It returns what it found, or nil. Where it is
// not confined at all it tries nothing.
func test() error {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil && !strings.Contains(string(status), "\nSeccomp:\t2\n") {
		return errors.New("this is no box: there is no filter of system calls")
	}
	var could []string
	for _, a := range attempts {
		if a.try() == nil {
			could = append(could, a.name)
		}
	}
	if len(could) > 0 {
		return errors.New("a program in it can " + strings.Join(could, ", "))
	}
	return nil
}
