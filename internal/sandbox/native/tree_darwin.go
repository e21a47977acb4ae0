package native

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

const (
	maxRounds = 64   // of stopping before we kill what we have
	maxKnown  = 4096 // processes that are remembered
	zombie    = 5    // SZOMB (sys/proc.h)
)

// A session is the processes of a box: its first one leads a session, which what it
// starts is in. Who starts a session of its own is remembered as a descendant, if it is
// seen before its parent is gone: the kernel says when a process forks, and we look.
type session struct {
	pid   int
	queue int // of events of the kernel (kqueue(2))

	mu     sync.Mutex
	reaped bool // the number may be somebody else's by now
	killed bool
	known  map[task]bool
}

// newSession watches pid, a child of ours that leads a session.
func newSession(pid int) (*session, error) {
	queue, err := unix.Kqueue()
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(queue)
	s := &session{pid: pid, queue: queue, known: map[task]bool{}}
	if err := s.follow(pid, unix.NOTE_EXIT|unix.NOTE_FORK); err != nil && !errors.Is(err, unix.ESRCH) {
		unix.Close(queue)
		return nil, err
	}
	return s, nil
}

// follow asks for events of a process.
func (s *session) follow(pid int, what uint32) error {
	e := unix.Kevent_t{Fflags: what}
	unix.SetKevent(&e, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_CLEAR)
	_, err := unix.Kevent(s.queue, []unix.Kevent_t{e}, nil, nil)
	return err
}

// wait implements tree.
func (s *session) wait() (sandbox.Exit, bool, error) {
	err := s.untilExit()
	s.mu.Lock()
	defer s.mu.Unlock()
	// Its number is ours until it is reaped.
	err = errors.Join(err, s.end())
	var status unix.WaitStatus
	for {
		_, waited := unix.Wait4(s.pid, &status, 0, nil)
		if waited == unix.EINTR {
			continue
		}
		s.reaped = true
		unix.Close(s.queue)
		if err = errors.Join(err, waited); err != nil {
			return sandbox.Exit{}, s.killed, fmt.Errorf("waiting for the box: %w", err)
		}
		break
	}
	if status.Signaled() {
		return sandbox.Exit{Cause: sandbox.CauseSignal, Signal: int(status.Signal())}, s.killed, nil
	}
	return sandbox.Exit{Cause: sandbox.CauseExit, Code: status.ExitStatus()}, false, nil
}

// untilExit blocks until the first process has ended, and looks around at each fork.
func (s *session) untilExit() error {
	events := make([]unix.Kevent_t, 16)
	for {
		if dead, err := s.isZombie(); dead || err != nil {
			return err
		}
		n, err := unix.Kevent(s.queue, nil, events, nil)
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if int(e.Ident) == s.pid && e.Fflags&unix.NOTE_EXIT != 0 {
				return nil
			}
		}
		s.mu.Lock()
		_, err = s.look()
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// isZombie reports whether the first process has ended: events of one that ended before
// it was followed never come.
func (s *session) isZombie() (bool, error) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", s.pid)
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return k.Proc.P_stat == zombie, nil
}

// look returns the processes of the box, and remembers and follows them.
func (s *session) look() ([]task, error) {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	all := make([]task, 0, len(list))
	for _, k := range list {
		pid := int(k.Proc.P_pid)
		sid, err := unix.Getsid(pid)
		if err != nil {
			sid = 0 // it is gone, or not to be asked: then it is not in our session
		}
		all = append(all, task{
			pid: pid, parent: int(k.Eproc.Ppid), group: int(k.Eproc.Pgid), session: sid,
			started: k.Proc.P_starttime.Nano(), zombie: k.Proc.P_stat == zombie,
		})
	}
	ours := descend(all, s.pid, os.Getpid(), s.known)
	for _, t := range ours {
		if !s.known[t.key()] && len(s.known) < maxKnown {
			s.known[t.key()] = true
			_ = s.follow(t.pid, unix.NOTE_FORK) // it may be gone already
		}
	}
	return ours, nil
}

// end ends all processes of the box: all are stopped first, again and again until no new
// one appears, so that none can fork while we count.
func (s *session) end() error {
	stopped := map[task]bool{}
	for range maxRounds {
		ours, err := s.look()
		if err != nil {
			return err
		}
		news := 0
		for _, t := range ours {
			if t.zombie || stopped[t.key()] {
				continue
			}
			if err := unix.Kill(t.pid, unix.SIGSTOP); err != nil && err != unix.ESRCH {
				return fmt.Errorf("stopping process %d: %w", t.pid, err)
			}
			stopped[t.key()] = true
			news++
		}
		if news == 0 {
			break
		}
	}
	var errs []error
	for t := range stopped {
		if err := unix.Kill(t.pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			errs = append(errs, fmt.Errorf("ending process %d: %w", t.pid, err))
		}
	}
	return errors.Join(errs...)
}

// kill implements tree.
func (s *session) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reaped {
		return nil
	}
	s.killed = true
	return s.end()
}

// signal implements tree.
func (s *session) signal(number int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reaped {
		return nil
	}
	if err := unix.Kill(s.pid, syscall.Signal(number)); err != nil && err != unix.ESRCH {
		return err
	}
	return nil
}
