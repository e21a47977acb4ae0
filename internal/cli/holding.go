package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/session/attach"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// What "ringfence run" runs at a terminal is held by a process of its own, the holder: this
// program again, with the same arguments, in a session of its own. The process that the
// person started is a front: it passes bytes between his terminal and the holder, and may
// go, and another come.

// holdVerb is the hidden verb of a holder. Descriptor 3 is the connection of its first front.
const (
	holdVerb = "hold"
	frontFD  = 3
)

// newHold is the verb of a holder.
func newHold() *cobra.Command {
	return &cobra.Command{
		Use: holdVerb + " -- run …", Hidden: true, Args: cobra.MinimumNArgs(1),
		Short: "Hold the terminal of what \"ringfence run\" runs",
		RunE: func(c *cobra.Command, args []string) error {
			first, err := ipc.Inherited(frontFD)
			if err != nil {
				return &exitError{code: codeUsage, err: fmt.Errorf("this verb is started by \"ringfence run\": %w", err)}
			}
			if code := holdRun(c.Context(), args, first); code != codeDone {
				return &exitError{code: code}
			}
			return nil
		},
	}
}

// A holding is what a holder has besides the program.
type holding struct {
	*attach.Holder
	screen *lastOf         // what is kept of the screen
	life   context.Context // of the holder

	mu     sync.Mutex
	end    func() // ends the program, or the start of it
	socket *ipc.Listener
}

// holdRun runs args and returns the exit status, which fronts are told.
func holdRun(ctx context.Context, args []string, first net.Conn) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	life, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	h := &holding{screen: &lastOf{most: maxScreenLog}, life: life}
	h.end = func() { cancel(&signalled{os.Interrupt}) }
	h.Holder = attach.NewHolder(strings.Join(args, " "), h.screen, func() {
		h.mu.Lock()
		end := h.end
		h.mu.Unlock()
		end()
	})
	h.Add(first)
	s := &streams{in: strings.NewReader(""), out: &sink{w: h}, err: &sink{w: h}, held: h, args: args}
	root := newRoot(s)
	root.SetArgs(args)
	c, failure := root.ExecuteContextC(ctx)
	code := s.report(s.usage(c, failure))
	if h.socket != nil {
		_ = h.socket.Close() // nobody comes any more
	}
	h.End(code)
	return code
}

// opened has fronts come to a session, from now on.
func (h *holding) opened(home, session string) (socket string, err error) {
	if socket, err = paths.HolderSocket(home, session); err != nil {
		return "", err
	}
	if h.socket, err = ipc.Listen(socket); err != nil {
		return "", fmt.Errorf("listening for people who come back: %w", err)
	}
	go func() { _ = h.Serve(h.socket) }() // an error is that of a listener that is gone
	h.Session(session)
	return socket, nil
}

// ends says how the program is ended: politely, then not.
func (h *holding) ends(signal func(int) error, kill func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end = sync.OnceFunc(func() {
		const hangup = 1
		_ = signal(hangup) // of one that has ended already it is nothing
		time.AfterFunc(endAfter, func() { _ = kill() })
	})
}

const (
	endAfter     = 5 * time.Second
	maxScreenLog = 1 << 20
	saveEvery    = 3 * time.Second
)

// lastOf keeps the last bytes that were written.
type lastOf struct {
	most int

	mu    sync.Mutex
	data  []byte
	fresh bool // something of it is not saved
}

func (l *lastOf) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fresh = true
	l.data = append(l.data, p...)
	if over := len(l.data) - l.most; over > l.most {
		l.data = append(l.data[:0], l.data[over:]...)
	}
	return len(p), nil
}

// keep saves what is new from time to time, so that what a run has shown outlives the death of
// the process that holds it.
func (l *lastOf) keep(ctx context.Context, dir string) {
	each := time.NewTicker(saveEvery)
	defer each.Stop()
	for {
		select {
		case <-each.C:
			_ = l.save(dir) // the end of the run says what stands in the way
		case <-ctx.Done():
			return
		}
	}
}

// save writes what is kept, if there is something new.
func (l *lastOf) save(dir string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fresh {
		return nil
	}
	l.fresh = false
	return atomicfile.WriteSoon(filepath.Join(dir, screenLog), l.data[max(0, len(l.data)-l.most):], 0o600)
}

// screenLog is where a run keeps the last of its screen.
const screenLog = "screen.log"

// hold has args run by a holder, in dir, "" being the working directory, and looks at it. With
// detached it only waits until the program runs.
func (s *streams) hold(ctx context.Context, dir string, args []string, detached bool) error {
	self, err := proc.Executable()
	if err == nil && dir == "" {
		dir, err = os.Getwd()
	}
	if err != nil {
		return err
	}
	conn, theirs, err := ipc.Pair()
	if err != nil {
		return err
	}
	child, err := proc.Detach(proc.Command{Argv: append([]string{self, holdVerb, "--"}, args...), Env: os.Environ(), Dir: dir, Files: []*os.File{theirs}})
	if err = errors.Join(err, theirs.Close()); err != nil {
		return errors.Join(err, conn.Close())
	}
	if detached {
		state, status, err := attach.Await(ctx, conn, s.err)
		if err = errors.Join(err, conn.Close()); err != nil || !state.Started {
			return errors.Join(err, &exitError{code: max(status, codeFailed)})
		}
		_, err = fmt.Fprintln(s.out, state.Session)
		return err
	}
	began, err := s.look(ctx, conn)
	if err != nil && ctx.Err() != nil && !began {
		return errors.Join(&exitError{code: codeInterrupted}, child.Kill())
	}
	return err
}

// look shows the session behind conn to the person, until that ends or he leaves.
func (s *streams) look(ctx context.Context, conn net.Conn) (began bool, err error) {
	conf, _, err := settings()
	if err != nil {
		return false, errors.Join(err, conn.Close())
	}
	f := &onlooker{s: s, key: conf.Terminal.Key, stop: func() {}, quit: make(chan os.Signal, 1)}
	// Where the terminal is as it was, the hot-key is a signal, which would end us.
	signal.Notify(f.quit, syscall.SIGQUIT)
	defer signal.Stop(f.quit)
	front := attach.Front{Out: s.out, Err: s.err, Key: f.key, Menu: f.menu, Clipboard: conf.Terminal.Clipboard, Changed: func(st attach.State) { f.changed(ctx, st) }}
	status, err := front.Run(ctx, conn)
	f.end()
	switch {
	case errors.Is(err, attach.ErrDetached):
		fmt.Fprintln(s.err)
		s.say("it runs on: \"ringfence sessions attach %s\" comes back", f.state.Session)
		return true, nil
	case f.state.Started && ctx.Err() != nil:
		return true, nil // the terminal has gone, and it runs on
	case err != nil:
		return f.state.Started, err
	case status != codeDone:
		return true, &exitError{code: status}
	}
	return true, nil
}

// An onlooker is a person at a front.
type onlooker struct {
	s     *streams
	key   byte // the hot-key
	state attach.State
	stop  func() // to ask here what waits before the program runs
	quit  chan os.Signal
}

// changed asks the person what the session waits for, until the program has the terminal.
func (o *onlooker) changed(ctx context.Context, st attach.State) {
	was := o.state
	o.state = st
	switch {
	case st.Started:
		o.end()
		if !was.Started {
			o.title(st.Title)
		}
	case was.Session == "" && st.Session != "":
		client, err := connect(ctx)
		if err != nil {
			o.s.say("asking you: %v", err)
			return
		}
		stop := o.s.answerHere(ctx, client, st.Session)
		o.stop = func() {
			stop()
			_ = client.Close() // it was asked only
		}
	}
}

func (o *onlooker) end() {
	o.stop()
	if o.stop = func() {}; o.state.Started {
		fmt.Fprint(o.s.out, "\x1b[23;2t") // the title as it was (xterm)
	}
}

// title names the terminal, which most show outside of it.
func (o *onlooker) title(text string) {
	fmt.Fprintf(o.s.out, "\x1b[22;2t\x1b]2;%s\x07", printable("ringfence: "+text))
}
