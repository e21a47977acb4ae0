package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/hold"
)

// programMask is the umask that programs start with.
const programMask = 0o022

// serve is the life of pid 1 while the program runs: it reaps, and it ends when the
// program does, or when the caller is gone. Its end is that of all others (N4).
func (s *stage) serve() error {
	go func() {
		// The caller says nothing more: he lives, or he does not.
		_, err := s.wire.recv(0)
		if err = errors.Join(err, s.end()); !errors.Is(err, io.EOF) {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}()
	if s.plan.hold.on {
		runtime.GOMAXPROCS(runtime.NumCPU()) // many calls may be held at once
		go s.hold()
	}
	for {
		var status unix.WaitStatus
		var used unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WALL, &used)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case status.Stopped():
			if err := s.goOn(pid, status); err != nil {
				return errors.Join(err, s.end())
			}
		case pid == s.pid && (status.Exited() || status.Signaled()):
			if err := s.alone(); err != nil {
				return err
			}
			b, err := encode(&ending{int(status), (used.Utime.Nano() + used.Stime.Nano()) / 1000})
			if err != nil {
				return err
			}
			return errors.Join(s.wire.send(frameEnded, b), s.end())
		}
	}
}

// alone ends all other processes of the box, and returns when there are none. All that is
// left of them becomes a child of pid 1.
func (s *stage) alone() error {
	if s.plan.plain {
		return nil // that takes its time, and how the program ended is known
	}
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return err
	}
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			return nil
		} else if err != nil && err != unix.EINTR {
			return err
		}
	}
}

// hold performs what is held back from the program. If it cannot, the box ends: calls
// would wait for ever.
func (s *stage) hold() {
	unix.Umask(programMask)
	h := s.plan.hold
	err := hold.Serve(context.Background(), s.listener, hold.Options{
		Rules:  hold.Rules{Writable: h.writable, Copied: h.copied, Private: h.above, Held: h.held, Led: h.led, Later: h.later, Home: h.home},
		Unheld: !h.names, Within: s.plan.plain, Shared: h.shared, Private: h.private, Reachable: h.reachable,
		OnDenial: s.tell,
		OnBirth:  s.born,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		_ = s.end()
		os.Exit(3)
	}
}

// tell tells the caller what was refused. He reads all the time, or is gone.
func (s *stage) tell(d hold.Denial) {
	if b, err := encode(&denied{d.Op, d.Path, d.Rule, d.Count}); err == nil {
		_ = s.wire.send(frameDenied, b)
	}
}

// born tells the caller of a repository that was made in the box.
func (s *stage) born(path string) {
	s.tell(hold.Denial{
		Op: sandbox.OpNotHeld, Path: path, Count: 1,
		Rule: "this repository was made in the box, with hooks and settings of its own: look at them before git here does",
	})
}

// end ends all other processes of the box. Where we are pid 1 the kernel does that
// when we end.
func (s *stage) end() error {
	if !s.plan.plain {
		return nil
	}
	return endDescendants()
}
