package container

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/proc"
)

// initProgram returns the path of the binary that runs as a container's init.
func (o Options) initProgram() (string, error) {
	path := o.Init
	if path == "" {
		var err error
		if path, err = proc.Executable(); err != nil {
			return "", err
		}
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("looking at the init %s: %w", path, err)
	}
	defer shut(f)
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%s is not static, and images have no libraries for it; build it without cgo", path)
		}
	}
	return path, nil
}

// startLocal completes a box whose init is ours.
func (t *Tier) startLocal(ctx, setUp context.Context, b *box, s sandbox.Spec, p *plan, body createBody, image string) (err error) {
	program, err := t.o.initProgram()
	if err != nil {
		return err
	}
	r, err := newMeetingPlace(b.dir)
	if err != nil {
		return err
	}
	defer r.close()
	if err := atomicfile.WriteSoon(filepath.Join(b.dir, hostsName), []byte(hosts), 0o644); err != nil {
		return fmt.Errorf("naming the loopback of the container: %w", err)
	}
	if err := atomicfile.WriteSoon(filepath.Join(b.dir, resolverName), []byte(resolver), 0o644); err != nil {
		return fmt.Errorf("naming the resolver of the container: %w", err)
	}
	body.runInit(b.engine, program, b.dir, mostFiles())
	body.reach(b.engine, s, b.dir)
	if err := body.holds(b.engine, p); err != nil {
		return err
	}
	if b.id, err = b.engine.create(setUp, body); err != nil {
		return err
	}
	l := &line{pidfd: -1}
	l.refused.list = p.held.untold()
	b.life = l
	defer func() {
		if err != nil {
			l.cut()
			err = errors.Join(err, b.engine.removeAnyway(ctx, b.id))
			l.close()
		}
	}()
	if err := l.connect(setUp, b.engine, b.id, r); err != nil {
		return err
	}
	if p.attached {
		if err := attach(p, l.pid); err != nil {
			return err
		}
	}
	ends, err := b.streams(s)
	if err != nil {
		return err
	}
	defer ends.closeTheirs()
	defer func() {
		if err != nil {
			ends.closeOurs()
		}
	}()
	st, err := l.handOver(setUp, ends, s, p)
	if err != nil {
		return err
	}
	defer shut(st.conn)
	defer func() { err = errors.Join(err, st.listening.Close()) }()
	j := judge{limitless: t.limitless, e: b.engine, p: p, spec: s, pid: l.pid, tmpfs: body.HostConfig.Tmpfs}
	if b.report, err = st.confirm(setUp, &j, image, s.Argv[0]); err != nil {
		return err
	}
	l.cgroup = j.cg
	if err := st.handOut(s); err != nil {
		return err
	}
	if s.Confirm != nil {
		if err := s.Confirm(b.report); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return st.begin(ctx, s.Argv[0])
}

// A meetingPlace is the socket at which a container's init meets us, in a directory
// of ours.
type meetingPlace struct {
	path     string
	listener *ipc.Listener
}

// maxSocketPath is what fits into a sockaddr_un, with a NUL (unix(7)).
const maxSocketPath = 107

func newMeetingPlace(dir string) (*meetingPlace, error) {
	r := &meetingPlace{path: filepath.Join(dir, controlName)}
	if len(r.path) > maxSocketPath {
		return nil, fmt.Errorf("making a place to meet the container: %s has %d bytes, and the path of a socket at most %d; set TMPDIR to a shorter directory", r.path, len(r.path), maxSocketPath)
	}
	var err error
	if r.listener, err = ipc.Listen(r.path); err != nil {
		return nil, fmt.Errorf("making a place to meet the container: %w", err)
	}
	// Any user of the container may connect; of the machine, the directory lets in
	// none but us.
	if err := os.Chmod(r.path, 0o666); err != nil { //nolint:gosec // G302: a socket, in a directory of mode 0700
		r.close()
		return nil, fmt.Errorf("making a place to meet the container: %w", err)
	}
	return r, nil
}

// close stops listening. What is left of it goes with the directory.
func (r *meetingPlace) close() { _ = r.listener.Close() }

// accept waits for one connection, until ctx ends.
func (r *meetingPlace) accept(ctx context.Context) (*net.UnixConn, error) {
	stop := context.AfterFunc(ctx, func() { _ = r.listener.Close() })
	defer stop()
	c, err := r.listener.Accept()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.ErrUnsupported, c.Close())
	}
	return u, nil
}

// A line is the connection to a container's init.
type line struct {
	conn    *net.UnixConn
	pidfd   int // of the init; its end is that of everything in the container
	pid     int
	cgroup  cgroup
	lost    bool // a mount is
	refused refusals

	once sync.Once
}

var _ lifeline = (*line)(nil)

// connect starts the container and waits for its init.
func (l *line) connect(ctx context.Context, e *engine, id string, r *meetingPlace) error {
	if err := e.startContainer(ctx, id); err != nil {
		return err
	}
	// The init that ends instead of connecting ends our waiting too.
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if status, err := e.wait(waiting, id); err == nil {
			cancel(fmt.Errorf("the container ended with status %d before its init could be reached", status))
		}
	}()
	c, err := r.accept(waiting)
	cancel(nil)
	<-watched
	if err != nil {
		return fmt.Errorf("waiting for the container's init: %w", err)
	}
	l.conn = c
	peer, err := ipc.PeerOf(c)
	if err != nil {
		return err
	}
	a, err := e.inspect(ctx, id)
	switch {
	case err != nil:
		return err
	case peer.PID <= 0 || peer.PID != a.State.Pid:
		return fmt.Errorf("process %d connected, and the container's first is %d", peer.PID, a.State.Pid)
	}
	l.pid = peer.PID
	if l.pidfd, err = unix.PidfdOpen(l.pid, 0); err != nil {
		return fmt.Errorf("holding on to the container's init: %w", err)
	}
	return nil
}

// handOver gives the init what the program needs, and the stage its order.
func (l *line) handOver(ctx context.Context, ends *ends, s sandbox.Spec, p *plan) (*stage, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a channel: %w", err)
	}
	defer unix.Close(pair[1])
	// The kernel then says which process the stage is, in our numbers.
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	conn, err := unixConn(pair[0])
	if err != nil {
		return nil, fmt.Errorf("making a channel: %w", err)
	}
	h, err := json.Marshal(handover{Files: len(s.Files), Terminal: isTerminal(s.Stdin), Mounts: p.hasNested(), Ways: waysOf(s), Hold: p.held != nil})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	fds := []int{int(ends.theirs[0].Fd()), int(ends.theirs[1].Fd()), int(ends.theirs[2].Fd())}
	for _, f := range s.Files {
		fds = append(fds, int(f.Fd()))
	}
	fds = append(fds, pair[1])
	st := &stage{conn: conn}
	lift := bound(ctx, l.conn)
	_, _, err = l.conn.WriteMsgUnix(h, unix.UnixRights(fds...), nil)
	if err == nil && waysOf(s) != nil {
		st.listening, err = takeWays(l.conn)
	}
	if err == nil && p.held != nil {
		err = l.command(p.held, s.Sockets())
	}
	lift()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("handing over to the container's init: %w", err), conn.Close())
	}
	if err := st.order(ctx, s, p); err != nil {
		return nil, errors.Join(err, conn.Close(), st.listening.Close())
	}
	return st, nil
}

// command tells the init what to hold.
func (l *line) command(h *holding, sockets bool) error {
	text, err := json.Marshal(ordersOf(h, sockets))
	if err != nil {
		return err
	}
	return ipc.WriteFrame(l.conn, text, nil)
}

func isTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// await implements [lifeline].
func (l *line) await() (sandbox.Exit, error) {
	r := bufio.NewReader(l.conn)
	var e ending
	for {
		text, _, err := ipc.ReadFrame(r, maxHandover, 0)
		if err == nil {
			e = ending{}
			err = json.Unmarshal(text, &e)
		}
		if err != nil {
			return sandbox.Exit{}, fmt.Errorf("listening to the container's init: %w", err)
		}
		if e.Refused == nil {
			break
		}
		l.refused.note(*e.Refused)
	}
	if e.Lost {
		l.lost = true
		return sandbox.Exit{Cause: sandbox.CauseKill}, nil
	}
	if e.Signal != 0 {
		return sandbox.Exit{Cause: sandbox.CauseSignal, Signal: e.Signal}, nil
	}
	return sandbox.Exit{Cause: sandbox.CauseExit, Code: e.Code}, nil
}

// denials implements [lifeline].
func (l *line) denials() []sandbox.Denial {
	list := append(l.refused.all(), l.cgroup.denials()...)
	if l.lost {
		list = append(list, sandbox.Denial{
			Op: "mount", Object: "the container", Observed: true, Count: 1,
			Rule: "a path that is held, denied or shown was replaced or removed outside, and with it went its mount; the box was ended",
			Fix:  "leave such paths alone while the box runs, or use the tier native",
		})
	}
	return list
}

// signal implements [lifeline].
func (l *line) signal(number int) error {
	_, err := l.conn.Write([]byte{byte(number)})
	if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) {
		return nil // it has ended
	}
	return err
}

// cut implements [lifeline]. The init ends when its connection does, and with it
// everything in its pid namespace.
func (l *line) cut() {
	l.once.Do(func() {
		if l.conn != nil {
			shut(l.conn)
		}
	})
}

// goneTime is how long the kernel may take to take a container down.
const goneTime = 10 * time.Second

// gone implements [lifeline].
func (l *line) gone() error {
	defer l.close()
	fds := []unix.PollFd{{Fd: int32(l.pidfd), Events: unix.POLLIN}}
	deadline := time.Now().Add(goneTime)
	for {
		n, err := unix.Poll(fds, int(max(time.Until(deadline), 0)/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("waiting for process %d: %w", l.pid, err)
		case n == 0:
			return fmt.Errorf("process %d of a container still runs after %v", l.pid, goneTime)
		}
		return nil
	}
}

// close gives back what is left of the line.
func (l *line) close() {
	if l.pidfd >= 0 {
		unix.Close(l.pidfd)
		l.pidfd = -1
	}
}

// A stage is the process that becomes the program, seen from here.
type stage struct {
	conn *net.UnixConn
	read *bufio.Reader
	pid  int
	// What listens in the container, until it is handed on.
	listening sandbox.Listening
}

// order tells the stage what to become, and learns which process it is.
func (st *stage) order(ctx context.Context, s sandbox.Spec, p *plan) error {
	lift := bound(ctx, st.conn)
	defer lift()
	o := order{Argv: byteWords(s.Argv), Env: byteWords(s.Env), Search: byteWords(p.search), Dir: []byte(p.dir), Limits: p.limits, Wide: s.Profile.Wide(), Sockets: s.Sockets()}
	if p.held != nil {
		o.Hold = &holdOrder{Trees: byteWords(p.held.Rules.Writable), Own: byteWords(p.held.Own)}
	}
	for _, m := range p.mounts {
		o.Paths = append(o.Paths, pathOrder{Target: []byte(m.target), Write: !m.readOnly})
	}
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("telling the container what to do: %w", err)
	}
	first, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	_, oobn, _, _, err := st.conn.ReadMsgUnix(first, oob)
	if err != nil {
		return fmt.Errorf("hearing from the container: %w", err)
	}
	if st.pid, err = senderOf(oob[:oobn]); err != nil {
		return fmt.Errorf("hearing from the container: %w", err)
	}
	if err := ipc.WriteFrame(st.conn, text, nil); err != nil {
		return fmt.Errorf("telling the container what to do: %w", err)
	}
	st.read = bufio.NewReader(st.conn)
	return nil
}

func byteWords(words []string) [][]byte {
	list := make([][]byte, len(words))
	for i, w := range words {
		list[i] = []byte(w)
	}
	return list
}

// senderOf returns the process that the kernel says has sent a message.
func senderOf(oob []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, err
	}
	for i := range messages {
		if cred, err := unix.ParseUnixCredentials(&messages[i]); err == nil && cred.Pid > 0 {
			return int(cred.Pid), nil
		}
	}
	return 0, errors.New("the kernel does not say which process it is")
}

// confirm reads everything back and judges it.
func (st *stage) confirm(ctx context.Context, j *judge, image, program string) (sandbox.Report, error) {
	lift := bound(ctx, st.conn)
	defer lift()
	text, _, err := ipc.ReadFrame(st.read, maxAccount, 0)
	if err != nil {
		return sandbox.Report{}, fmt.Errorf("hearing what the container is like: %w", err)
	}
	var a account
	if err := json.Unmarshal(text, &a); err != nil {
		return sandbox.Report{}, fmt.Errorf("hearing what the container is like: %w", err)
	}
	if a.Failed != "" {
		return sandbox.Report{}, errors.New(a.Failed)
	}
	if len(a.Paths) != len(j.p.mounts) {
		return sandbox.Report{}, fmt.Errorf("hearing what the container is like: %d paths, not %d", len(a.Paths), len(j.p.mounts))
	}
	j.inside, j.paths, j.held = a.Facts, a.Paths, a.Held
	outside := readFacts("/proc/" + strconv.Itoa(st.pid))
	j.cg = cgroupOf(outside.Cgroup)
	j.outside = outside.orInside(a.Facts)
	j.ours = readFacts("/proc/self")
	r, err := j.verdict()
	if err == nil && len(a.Found) > 0 {
		r.Evidence[sandbox.LayerContainer] += runs(string(a.Found), program)
	}
	r.Image = image
	return r, err
}

// begin lets the stage become the program, and waits until it has.
func (st *stage) begin(ctx context.Context, program string) error {
	lift := bound(ctx, st.conn)
	defer lift()
	if _, err := st.conn.Write([]byte{1}); err != nil {
		return fmt.Errorf("starting the program: %w", err)
	}
	why, err := io.ReadAll(io.LimitReader(st.read, 2))
	switch {
	case err != nil:
		return fmt.Errorf("starting the program: %w", err)
	case len(why) == 0:
		return nil
	case len(why) == 1:
		return errors.New("starting the program: half an answer")
	}
	errno := unix.Errno(uint(why[0])<<8 | uint(why[1]))
	switch errno { //nolint:exhaustive // there are hundreds, and these mean one thing
	case unix.ESTALE:
		return errors.New("starting the program: a path that it was given was replaced or removed outside meanwhile, and with it went its mount")
	case unix.ENOENT, unix.EACCES, unix.ENOTDIR, unix.ENOEXEC, unix.EISDIR, unix.ELOOP:
		return fmt.Errorf("%w: %s: %w; it is looked for in the image", sandbox.ErrNotFound, program, errno)
	}
	return fmt.Errorf("starting the program %s: %w", program, errno)
}
