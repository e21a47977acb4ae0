package hold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Calls are performed by few workers: the kernel gives them calls in turn, and one
// that was idle for long is slow to wake. What can block for long does not occupy
// one. Where all are occupied for stall all the same, by a file system that does
// not answer, there will be one more, up to maxWorkers.
const (
	workers    = 2
	maxWorkers = 32
	stall      = 50 * time.Millisecond
)

// Serve performs what the program's filter notifies through listener, until nobody
// is left who could: then it returns nil. It takes listener over. An error means that
// calls are no longer answered: the box must be killed.
//
// It runs in pid 1 of the box, started as its program was: in the same mount
// namespace and root, under the same user, with the umask that the program starts
// with (which it sets to 0 for this process), and with the right to look into the
// processes of the box: CAP_SYS_PTRACE of its user namespace, or the same user without
// any; and a Landlock domain that the program's is nested in, or none. What it may not look
// into, because nobody without that capability may, changes nothing in the writable trees.
//
// When ctx ends it returns its cause; calls are then refused.
func Serve(ctx context.Context, listener int, o Options) error {
	s, err := newServer(listener, o)
	if err != nil {
		return errors.Join(err, unix.Close(listener))
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return errors.Join(fmt.Errorf("serving held files: %w", err), s.close())
	}
	s.over = func() bool { return ctx.Err() != nil }
	rouse := func() {
		// The counter cannot overflow: this is called a few times.
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	rung := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		rouse()
		close(rung)
	})
	s.failed = func(err error) {
		s.failure.CompareAndSwap(nil, &err)
		rouse()
	}
	for range workers {
		s.employ()
	}
	err = s.watch(wake)
	if !stop() {
		<-rung
	}
	if f := s.failure.Load(); f != nil {
		err = errors.Join(err, *f)
	}
	s.leave(wake)
	if err == nil && s.over() {
		err = context.Cause(ctx)
	}
	return err
}

// leave waits for the workers, but not for those that cannot be woken: where nobody
// is left to call, before Linux 6.11; and where there is, as the box is to be killed.
func (s *server) leave(wake int) {
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		_ = s.close()
		unix.Close(wake)
		close(done)
	}()
	if !s.alone() {
		return
	}
	limit := time.NewTimer(2 * stall)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	}
}

// A server is what the workers share.
type server struct {
	listener int
	judge    *judge
	born     births
	denials  denials
	linked   known // files that got further names here
	bound    known // sockets that were made here, in the writable trees
	services services
	unheld   bool
	within   bool // no mount keeps the program from modes and times
	shared   bool // the network is that of the machine
	mask     mask
	// order is held by who renames a directory, and shared by who does anything
	// else: what a path was judged to be, it still is when the call is performed.
	order sync.RWMutex
	moved atomic.Int64 // directories that were renamed
	// proc and fds are handles of /proc and of our own descriptors in it, and self
	// is the name of our directory there.
	proc, fds int
	self      string
	over      func() bool // the context has ended: nothing more is done for anybody

	running   sync.WaitGroup // workers
	employed  atomic.Int32   // how many these are
	busy      atomic.Int32   // those that serve a call
	served    atomic.Int64   // calls, so far
	attentive atomic.Bool    // somebody looks whether all are stuck
	failure   atomic.Pointer[error]
	failed    func(error)
}

// employ starts one more worker.
func (s *server) employ() {
	s.employed.Add(1)
	s.running.Go(func() {
		if err := (&worker{server: s}).run(); err != nil {
			s.failed(err)
		}
	})
}

// relieve sees to it that one more worker is employed if nothing moves for stall.
func (s *server) relieve() {
	if !s.attentive.CompareAndSwap(false, true) {
		return
	}
	before := s.served.Load()
	time.AfterFunc(stall, func() {
		s.attentive.Store(false)
		if n := s.employed.Load(); s.busy.Load() >= n && s.served.Load() == before && n < maxWorkers {
			s.employ()
			s.relieve()
		}
	})
}

func newServer(listener int, o Options) (*server, error) {
	if err := o.Rules.Validate(); err != nil {
		return nil, err
	}
	s := &server{listener: listener, judge: newJudge(o.Rules), proc: -1, fds: -1}
	s.born.tell, s.born.at = o.OnBirth, map[string]identity{}
	s.denials.tell, s.unheld, s.within, s.shared = o.OnDenial, o.Unheld, o.Within, o.Shared
	if err := s.services.gather(o); err != nil {
		return nil, err
	}
	s.self = "/proc/" + strconv.Itoa(os.Getpid())
	var err error
	if s.proc, err = unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("serving held files: opening /proc: %w", err)
	}
	if s.fds, err = unix.Open(s.self+"/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("serving held files: opening %s/fd: %w", s.self, err), unix.Close(s.proc))
	}
	s.mask.first = uint32(unix.Umask(0))
	wakeHere(listener)
	return s, nil
}

func (s *server) close() error {
	return errors.Join(unix.Close(s.listener), unix.Close(s.proc), unix.Close(s.fds))
}

// watch returns when nobody is left to serve, or wake is readable.
func (s *server) watch(wake int) error {
	for {
		fds := []unix.PollFd{{Fd: int32(s.listener)}, {Fd: int32(wake), Events: unix.POLLIN}}
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("serving held files: waiting for calls: %w", err)
		}
		return nil
	}
}

// alone reports whether nobody is left who could call.
func (s *server) alone() bool {
	fds := []unix.PollFd{{Fd: int32(s.listener)}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLHUP != 0
}

// Exists implements [Look].
func (s *server) Exists(path string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(unix.AT_FDCWD, path, &st, unix.AT_SYMLINK_NOFOLLOW)
	// What cannot be looked at is there.
	return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR)
}

// Born implements [Look].
func (s *server) Born(path string) bool { return s.born.is(path) }

// A worker serves one call after the other.
type worker struct {
	*server
	n    notification
	open []int // handles of this call
	text [maxPath]byte
}

func (w *worker) run() error {
	for {
		switch e := receive(w.listener, &w.n); e {
		case 0:
			w.serve()
		case unix.EINTR:
		case unix.ENOENT:
			if w.alone() {
				return nil
			}
		default:
			return fmt.Errorf("serving held files: receiving a call: %w", e)
		}
	}
}

func (w *worker) serve() {
	if w.busy.Add(1) == w.employed.Load() {
		w.relieve()
	}
	defer func() {
		w.busy.Add(-1)
		w.served.Add(1)
	}()
	a := refuse(unix.EPERM)
	if call, ok := calls[w.n.nr]; ok && w.n.arch == nativeArch && w.n.pid != 0 && !w.over() {
		a = call(w)
	}
	w.reply(w.n.id, a)
	for _, fd := range w.open {
		unix.Close(fd)
	}
	w.open = w.open[:0]
}

// An answer is what a caller gets. The zero answer is a call that succeeded with 0.
type answer struct {
	err     unix.Errno
	passOn  bool // the kernel performs the call itself
	none    bool // it will be answered later
	gives   bool // fd is what the caller gets, and is closed here
	fd      int
	cloexec bool
}

func refuse(e unix.Errno) answer { return answer{err: e} }

var (
	pass   = answer{passOn: true}
	parked = answer{none: true}
)

// result is the answer for a call that we performed.
func result(err error) answer { return refuse(errnoOf(err)) }

func (s *server) reply(id uint64, a answer) {
	if a.none {
		return
	}
	if a.gives {
		add := addition{id: id, ours: uint32(a.fd)}
		if a.cloexec {
			add.newFlags = unix.O_CLOEXEC
		}
		e := give(s.listener, &add)
		unix.Close(a.fd)
		if e == 0 || e == unix.ENOENT {
			return
		}
		a.err = e
	}
	r := response{id: id, err: -int32(a.err)}
	if a.passOn {
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	// ENOENT: the caller died. Anything else leaves it waiting, which is not letting
	// it through.
	_ = send(s.listener, &r)
}
