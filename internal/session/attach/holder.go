package attach

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"ringfence/internal/sys/pty"
)

// Bounds of a holder.
const (
	maxFronts = 16
	maxScreen = 256 << 10 // bytes of output that a front gets when it comes
	maxQueue  = 4 << 20   // bytes that wait for one front
	maxTyped  = 256       // pieces of input that wait for the program, of one front
)

// A Holder holds the terminal of one program. Make one with [NewHolder].
type Holder struct {
	log  io.Writer // gets what the program writes; errors of it are dropped
	stop func()    // ends the program

	mu     sync.Mutex
	state  State
	master *os.File // nil until the program starts
	size   pty.Size
	screen []byte // the last of what was written
	modes  modes  // what of the terminal it has switched
	told   []byte // messages that nobody has been shown yet
	fronts map[*front]struct{}
	ended  bool
	all    sync.WaitGroup
}

// NewHolder returns a holder. stop is called when a front wants the program to end. log gets
// what it writes.
func NewHolder(title string, log io.Writer, stop func()) *Holder {
	return &Holder{log: log, stop: stop, state: State{Title: title}, fronts: map[*front]struct{}{}}
}

// Add serves a front on c, which it owns, until that ends. The first front's size is that of
// the terminal to come.
func (h *Holder) Add(c net.Conn) {
	f := newFront(c)
	h.mu.Lock()
	if h.ended || len(h.fronts) >= maxFronts {
		h.mu.Unlock()
		f.close()
		return
	}
	h.fronts[f] = struct{}{}
	f.put(frameState, h.stateJSON())
	if len(h.told) > 0 {
		f.put(frameMessage, h.told)
		h.told = nil
	}
	if len(h.screen) > 0 {
		f.put(frameOutput, h.shown())
	}
	h.all.Add(1)
	h.mu.Unlock()
	go func() {
		defer h.all.Done()
		h.hear(f)
		h.left(f)
		f.close()
	}()
}

// shown is what a front gets that comes late: what was written last, from the beginning of a
// line if the beginning is gone, and what was switched in the terminal before. His terminal is
// asked nothing. The caller holds mu.
func (h *Holder) shown() []byte {
	text := h.screen
	if len(text) == maxScreen {
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	return slices.Concat(h.modes.on(), silent(text), h.modes.on())
}

// Serve adds every front that comes to l, until l is closed.
func (h *Holder) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		h.Add(c)
	}
}

// hear does what a front says, until it has gone or says what it should not.
func (h *Holder) hear(f *front) {
	// A program that does not read holds up no other word of the front.
	typed := make(chan []byte, maxTyped)
	defer close(typed)
	go h.enter(typed)
	for {
		kind, p, err := readFrame(f.conn)
		if err != nil {
			return
		}
		switch {
		case kind == frameInput:
			select {
			case typed <- p:
			default: // the program reads nothing: what is typed to it is lost
			}
		case kind == frameSize && len(p) == 4:
			h.resize(f, pty.Size{Rows: binary.BigEndian.Uint16(p), Columns: binary.BigEndian.Uint16(p[2:])})
		case kind == frameStop && len(p) == 0:
			h.stop()
		default:
			return
		}
	}
}

// enter types what a front sends, until that is over.
func (h *Holder) enter(typed <-chan []byte) {
	for p := range typed {
		h.mu.Lock()
		m := h.master
		h.mu.Unlock()
		if m != nil {
			_, _ = m.Write(p) // the program has gone: its end comes
		}
	}
}

// resize takes in the size of a front. The terminal has that of the smallest, so that each
// shows all of it. One that it has already is told again by way of another, so that the
// program draws its page anew for a front that has just come.
func (h *Holder) resize(f *front, s pty.Size) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.Rows == 0 || s.Columns == 0 {
		return
	}
	f.size = s
	s = h.smallest()
	if h.master != nil && s == h.size && s.Rows > 1 {
		_ = pty.SetSize(h.master, pty.Size{Rows: s.Rows - 1, Columns: s.Columns}) // of a program that has gone there is none
	}
	h.sized(s)
}

// smallest is the size that all fronts can show. The caller holds mu.
func (h *Holder) smallest() (s pty.Size) {
	for f := range h.fronts {
		if f.size == (pty.Size{}) {
			continue
		}
		if s == (pty.Size{}) {
			s = f.size
		}
		s = pty.Size{Rows: min(s.Rows, f.size.Rows), Columns: min(s.Columns, f.size.Columns)}
	}
	return s
}

// sized gives the terminal a size. The caller holds mu.
func (h *Holder) sized(s pty.Size) {
	h.size = s
	if h.master != nil {
		_ = pty.SetSize(h.master, s)
	}
}

// left forgets a front. The others may show more now.
func (h *Holder) left(f *front) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.fronts, f)
	if s := h.smallest(); s != (pty.Size{}) && s != h.size {
		h.sized(s)
	}
}

// Relay passes what the program writes to all fronts until it has closed its terminal, of
// which master is our end.
func (h *Holder) Relay(master *os.File) error {
	h.mu.Lock()
	h.master, h.state.Started = master, true
	if h.size != (pty.Size{}) {
		_ = pty.SetSize(master, h.size)
	}
	h.tell(frameState, h.stateJSON())
	h.mu.Unlock()
	buf := make([]byte, 32<<10)
	for {
		n, err := master.Read(buf)
		if n > 0 {
			h.write(buf[:n])
		}
		if err != nil {
			h.mu.Lock()
			h.master = nil
			h.mu.Unlock()
			if errors.Is(err, io.EOF) || pty.Gone(err) {
				return nil
			}
			return err
		}
	}
}

// write passes on what the program wrote.
func (h *Holder) write(p []byte) {
	if h.log != nil {
		_, _ = h.log.Write(p) // what is kept of the screen is no record
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.modes.feed(p)
	h.screen = append(h.screen, p...)
	if over := len(h.screen) - maxScreen; over > 0 {
		h.screen = append(h.screen[:0], h.screen[over:]...)
	}
	h.tell(frameOutput, p)
}

// tell queues a frame for every front. The caller holds mu.
func (h *Holder) tell(kind byte, p []byte) {
	for f := range h.fronts {
		f.put(kind, p)
	}
}

func (h *Holder) stateJSON() []byte {
	raw, err := json.Marshal(h.state)
	if err != nil {
		return []byte("{}") // of three plain members it is none
	}
	return raw
}

// Session says which session of the engine it is.
func (h *Holder) Session(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.Session = id
	h.tell(frameState, h.stateJSON())
}

// Write tells people something of ours; without a front it waits for the first.
func (h *Holder) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.fronts) == 0 && len(h.told)+len(p) <= maxScreen {
		h.told = append(h.told, p...)
	}
	h.tell(frameMessage, p)
	return len(p), nil
}

// End says how the program ended, and ends all fronts when they know it.
func (h *Holder) End(status int) {
	h.mu.Lock()
	h.ended = true
	h.tell(frameEnd, binary.BigEndian.AppendUint16(nil, uint16(status)))
	for f := range h.fronts {
		f.finish()
	}
	h.mu.Unlock()
	h.all.Wait()
}

// A front is one connection of a person.
type front struct {
	conn net.Conn
	size pty.Size // of its terminal; zero until it has said so. The holder's mu guards it

	mu     sync.Mutex
	more   *sync.Cond
	queue  []byte
	ending bool // nothing more comes
	gone   bool
}

// stall is how long a front may take nothing in.
const stall = 30 * time.Second

func newFront(c net.Conn) *front {
	f := &front{conn: c}
	f.more = sync.NewCond(&f.mu)
	go f.send()
	return f
}

// put queues a frame. A front that has too much waiting is let go.
func (f *front) put(kind byte, p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone || f.ending {
		return
	}
	if len(f.queue)+len(p) > maxQueue {
		f.gone = true
		_ = f.conn.Close()
	} else {
		_ = writeFrame(appender{&f.queue}, kind, p) // to memory
	}
	f.more.Signal()
}

// finish has what is queued sent, and the connection closed then.
func (f *front) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	f.more.Signal()
}

func (f *front) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	_ = f.conn.Close()
	f.more.Signal()
}

// send writes what is queued.
func (f *front) send() {
	for {
		f.mu.Lock()
		for len(f.queue) == 0 && !f.gone && !f.ending {
			f.more.Wait()
		}
		p, over := f.queue, f.gone || f.ending
		f.queue = nil
		f.mu.Unlock()
		err := f.conn.SetWriteDeadline(time.Now().Add(stall))
		if err == nil {
			_, err = f.conn.Write(p)
		}
		if err != nil || over {
			_ = f.conn.Close()
			return
		}
	}
}

// An appender is memory that is written to.
type appender struct{ to *[]byte }

func (a appender) Write(p []byte) (int, error) {
	*a.to = append(*a.to, p...)
	return len(p), nil
}
