package container

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/hold"
	"ringfence/internal/sandbox/native/landlock"
	"ringfence/internal/sys/ipc"
)

// This file is how names are held in the container. The stage puts itself under Landlock,
// by which the program may change nothing in the live trees, and under a filter that hands
// calls which make and change names to the init. The init does for the program what the
// rules allow. It is not dumpable and in no domain, so nobody inside can look into it, and
// when it ends the kernel ends all that is left.

// programMask is the umask that programs start with.
const programMask = 0o022

// orders are what the init is told, as bytes: paths need not be UTF-8.
type orders struct {
	Writable, Copied, Held, Led, Above [][]byte
	Private, Reachable                 [][]byte
	Home                               []byte
	Later, Sockets                     bool
}

func ordersOf(h *holding, sockets bool) orders {
	r := h.Rules
	return orders{
		Writable: byteWords(r.Writable), Copied: byteWords(r.Copied), Held: byteWords(r.Held), Led: byteWords(r.Led), Above: byteWords(r.Private),
		Private: byteWords(h.Private), Reachable: byteWords(h.Reachable), Home: []byte(r.Home), Later: r.Later, Sockets: sockets,
	}
}

func textWords(words [][]byte) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return list
}

func (o orders) options() hold.Options {
	return hold.Options{
		Rules: hold.Rules{
			Writable: textWords(o.Writable), Copied: textWords(o.Copied), Private: textWords(o.Above),
			Held: textWords(o.Held), Led: textWords(o.Led), Later: o.Later, Home: string(o.Home),
		},
		Private: textWords(o.Private), Reachable: textWords(o.Reachable),
	}
}

// A supervisor is what the init is to the program whose names are held.
type supervisor struct {
	ours    int // where the stage hands its listener over
	options hold.Options
}

// newSupervisor reads its orders, and returns what the stage is given too: the other end
// of a channel.
func newSupervisor(c *net.UnixConn) (*supervisor, int, error) {
	text, _, err := ipc.ReadFrame(bufio.NewReaderSize(c, 1), maxOrder, 0)
	if err != nil {
		return nil, -1, err
	}
	var o orders
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, -1, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	return &supervisor{ours: pair[0], options: o.options()}, pair[1], nil
}

// serve does what is handed over, and returns when nobody is left who could hand over
// anything. An error is the end of the box.
func (s *supervisor) serve(refused func(hold.Denial), born func(string)) error {
	runtime.GOMAXPROCS(runtime.NumCPU()) // many calls may be held at once
	listener, err := takeListener(s.ours)
	unix.Close(s.ours)
	if err != nil {
		return err
	}
	unix.Umask(programMask)
	s.options.OnDenial, s.options.OnBirth = refused, born
	return hold.Serve(context.Background(), listener, s.options)
}

// takeListener receives the one descriptor that the stage sends.
func takeListener(channel int) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		_, n, _, _, err := unix.Recvmsg(channel, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1, err
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil || len(messages) != 1 {
			return -1, errors.Join(errors.New("no listener"), err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			return -1, errors.Join(errors.New("no listener"), err)
		}
		return fds[0], nil
	}
}

// A held is what the stage says of what holds names for it.
type held struct {
	ABI     int // of Landlock
	Handled []string
}

// confine holds names for the program that the stage becomes: it may only look at trees,
// but for own, and what it may do there beyond that is handed over through channel. Each
// part is tried.
func confine(o order, channel int) (*held, error) {
	unix.CloseOnExec(channel)
	if err := canSupervise(o.Sockets); err != nil {
		return nil, err
	}
	rules, err := rulesOf(textWords(o.Hold.Own))
	if err != nil {
		return nil, fmt.Errorf("holding names: %w", err)
	}
	defer shut(rules)
	// What no rule grants opens before and not after.
	if err := opens(initPath); err != nil {
		return nil, fmt.Errorf("holding names: opening %s: %w", initPath, err)
	}
	if err := rules.Restrict(); err != nil {
		return nil, fmt.Errorf("holding names: %w", err)
	}
	if err := opens(initPath); !errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("holding names: opening what no rule grants: %w: Landlock does not hold", cmp.Or(err, errOpens))
	}
	for _, tree := range o.Hold.Trees {
		if err := nameless(tree); err == nil {
			return nil, fmt.Errorf("holding names: %s can be written to: Landlock does not hold", tree)
		}
	}
	listener, err := denyCalls(o)
	if err != nil {
		return nil, err
	}
	err = unix.Sendmsg(channel, []byte{1}, unix.UnixRights(listener), nil, 0)
	if err := errors.Join(err, unix.Close(listener), unix.Close(channel)); err != nil {
		return nil, fmt.Errorf("holding names: handing over: %w", err)
	}
	for _, tree := range o.Hold.Trees {
		// A file system may have no files without a name.
		if err := nameless(tree); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return nil, fmt.Errorf("holding names: nothing can be made in %s by way of the init: %w", tree, err)
		}
	}
	return &held{rules.Handled().ABI, rules.Handled().Names()}, nil
}

var errOpens = errors.New("it opens")

func opens(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// nameless makes a file without a name in dir, which is gone again at once.
func nameless(dir []byte) error {
	fd, err := unix.Open(string(dir), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// canSupervise tries on this process the calls by which the init looks into others: it
// and the stage are under the same filter of the engine until now.
func canSupervise(sockets bool) error {
	const fix = "its seccomp profile must let the init of a box make that call, as its own default profile of today, or the one of ringfence, does"
	if err := readsMemory(); err != nil {
		return fmt.Errorf("%w: the engine refuses process_vm_readv (%w); %s", errNotLive, err, fix)
	}
	if !sockets {
		return nil
	}
	process, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("%w: the engine refuses pidfd_open (%w); %s", errNotLive, err, fix)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, process, 0)
	if err != nil {
		return fmt.Errorf("%w: the engine refuses pidfd_getfd (%w); %s", errNotLive, err, fix)
	}
	return unix.Close(fd)
}

// rulesOf are those of the program: everything may be read and executed but our own
// directory, which is how the rules are tried.
func rulesOf(own []string) (*landlock.Ruleset, error) {
	const use = landlock.Read | landlock.Execute
	rules := landlock.Rules{MinABI: 1, AnyPort: true}
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join("/", e.Name())
		if name == ownDir || e.Type()&os.ModeSymlink != 0 {
			continue
		}
		access := use
		switch name {
		case "/dev":
			access = use | landlock.Write | landlock.Device
		case "/proc":
			access = landlock.Read
		}
		rules.Paths = append(rules.Paths, landlock.Path{Name: name, Access: access})
	}
	for _, name := range own {
		rules.Paths = append(rules.Paths, landlock.Path{Name: name, Access: use | landlock.Write})
	}
	set, err := landlock.New(rules)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotLive, err)
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(grantListing(set.FD(), root), unix.Close(root))
	}
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	return set, nil
}

// start serves, and tells us outside what was refused. At the end of this process, if it
// cannot, everything else in the container is killed.
func (s *supervisor) start(c *net.UnixConn) {
	if s == nil {
		return
	}
	tell := func(op, path, rule string, count int) {
		say(c, ending{Refused: &notice{op, []byte(path), rule, count}}, nil)
	}
	go func() {
		err := s.serve(
			func(d hold.Denial) { tell(d.Op, d.Path, d.Rule, d.Count) },
			func(path string) { tell(sandbox.OpNotHeld, path, ruleBorn, 1) },
		)
		if err != nil {
			os.Exit(notInContainer)
		}
	}()
}

const ruleBorn = "this repository was made in the box, with hooks and settings of its own: look at them before git here does"
