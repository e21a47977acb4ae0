package attach

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/sys/pty"
)

// A Choice is what a person wants who pressed the hot-key.
type Choice int

// The choices.
const (
	Back   Choice = iota // to the program
	Detach               // and leave the program running
	Stop                 // the program
	Send                 // the hot-key itself, to the program
)

// A Front is one person at a terminal. The zero value shows nothing of ours.
type Front struct {
	Out io.Writer // the terminal
	Err io.Writer // gets messages of ours, while the terminal is not the program's
	// Key is the hot-key, as a control character: 0x1c is Ctrl-\. 0 for none.
	Key byte
	// Menu is asked when the hot-key was pressed; the terminal is as it is without us then,
	// and shows its other screen already if other.
	Menu func(ctx context.Context, s State, other bool) Choice
	// Clipboard lets the program set and read the clipboard of the person's terminal.
	Clipboard bool
	// Changed hears of each State; nil for nobody.
	Changed func(State)
}

// ErrDetached says that the person left, and the program runs on.
var ErrDetached = errors.New("detached")

// Run connects the person's terminal with the holder behind c until the program has ended,
// whose exit status it returns, or the person has left: ErrDetached. It owns c.
func (f Front) Run(ctx context.Context, c net.Conn) (status int, err error) {
	p := &person{f: f, conn: c}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	status, err = p.watch(ctx)
	err = errors.Join(err, p.release())
	if p.left.Load() {
		return 0, ErrDetached
	}
	return status, err
}

// watch does what the holder says.
func (p *person) watch(ctx context.Context) (status int, err error) {
	for {
		kind, b, err := readFrame(p.conn)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return 0, fmt.Errorf("looking at the session: %w", err)
		}
		switch {
		case kind == frameOutput:
			err = p.show(b)
		case kind == frameMessage:
			err = p.say(b)
		case kind == frameState:
			err = p.change(ctx, b)
		case kind == frameEnd && len(b) == 2:
			return int(binary.BigEndian.Uint16(b)), nil
		default:
			return 0, fmt.Errorf("looking at the session: %w: kind %q", errFrame, kind)
		}
		if err != nil {
			return 0, err
		}
	}
}

// A person is a Front at work.
type person struct {
	f    Front
	conn net.Conn
	left atomic.Bool
	work sync.WaitGroup

	send sync.Mutex // frames go whole

	mu     sync.Mutex // of the terminal
	state  State
	raw    *pty.Raw
	modes  modes // that the program switched in the terminal
	clips  clipper
	paste  bool   // what is typed is being pasted
	menu   bool   // the person looks at a page of ours
	behind []byte // what the program wrote meanwhile
	told   []byte // what we have to say when the program has ended
}

func (p *person) show(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.f.Clipboard {
		b = p.clips.feed(b)
	}
	if p.menu {
		p.behind = append(p.behind, b...)
		if over := len(p.behind) - maxScreen; over > 0 {
			p.behind = append(p.behind[:0], p.behind[over:]...)
		}
		return nil
	}
	p.modes.feed(b)
	_, err := p.f.Out.Write(b)
	return err
}

// say shows what is ours, but never on a terminal that is the program's.
func (p *person) say(b []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raw != nil {
		if len(p.told)+len(b) <= maxScreen {
			p.told = append(p.told, b...)
		}
		return nil
	}
	_, err := p.f.Err.Write(b)
	return err
}

func (p *person) change(ctx context.Context, b []byte) error {
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("looking at the session: %w: %w", errFrame, err)
	}
	p.mu.Lock()
	began := s.Started && p.raw == nil
	p.state = s
	p.mu.Unlock()
	if p.f.Changed != nil {
		p.f.Changed(s)
	}
	if began {
		return p.begin(ctx)
	}
	return nil
}

// begin gives the terminal to the program.
func (p *person) begin(ctx context.Context) error {
	raw, err := pty.OpenRaw()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.raw = raw
	p.mu.Unlock()
	if err := p.tellSize(); err != nil {
		return err
	}
	resizes, cancel := context.WithCancel(ctx)
	p.work.Go(func() { raw.Resized(resizes, func(pty.Size) { _ = p.tellSize() }) }) // a holder that has gone shows itself
	p.work.Go(func() {
		defer cancel()
		p.pass(ctx, raw)
	})
	return nil
}

func (p *person) tellSize() error {
	s, err := p.raw.Size()
	if err != nil {
		return err
	}
	return p.frame(frameSize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Rows), s.Columns))
}

func (p *person) frame(kind byte, b []byte) error {
	p.send.Lock()
	defer p.send.Unlock()
	return writeFrame(p.conn, kind, b)
}

// pass passes on what is typed until the terminal is given back.
func (p *person) pass(ctx context.Context, raw *pty.Raw) {
	buf := make([]byte, 16<<10)
	var waits []byte // the beginning of what may be a key of ours
	for {
		var n int
		var err error
		if len(waits) > 0 {
			n, err = raw.ReadWithin(buf, cutWait)
		} else {
			n, err = raw.Read(buf)
		}
		if err != nil {
			return
		}
		rest := append(waits, buf[:n]...) //nolint:gocritic // waits is copied next
		waits = nil
		if k := part(rest); n > 0 && k > 0 && p.f.Key != 0 {
			waits, rest = slices.Clone(rest[len(rest)-k:]), rest[:len(rest)-k]
		}
		for len(rest) > 0 {
			before, key, after := p.f.cut(rest, &p.paste)
			if len(before) > 0 && p.frame(frameInput, before) != nil {
				return
			}
			if len(key) == 0 {
				break
			}
			// What was typed after the key, in the same moment, was meant for the page, which
			// is deaf then: it is not for the program either, but for the key once more.
			between, again, more := p.f.cut(after, &p.paste)
			if twice := len(between) == 0 && len(again) > 0; twice {
				if p.frame(frameInput, again) != nil {
					return
				}
				rest = more
				continue
			}
			if p.ask(ctx, raw, key) != nil {
				return
			}
			rest = nil
		}
	}
}

// cutWait is how long the rest of a key may take that a read has cut: as long as nobody
// notices who pressed ESC alone.
const cutWait = 30 * time.Millisecond

// part is how many bytes at the end of b may be the beginning of a key of ours, or of what is
// around a paste.
func part(b []byte) int {
	i := bytes.LastIndexByte(b, 0x1b)
	if i < 0 || len(b)-i > maxArg {
		return 0
	}
	rest := b[i+1:]
	if len(rest) > 0 && rest[0] != '[' {
		return 0
	}
	for _, c := range rest[min(len(rest), 1):] {
		if (c < '0' || c > '9') && c != ';' && c != ':' {
			return 0
		}
	}
	return len(b) - i
}

// What is around a paste, where a program asks for that (xterm, mode 2004).
var pasteBegin, pasteEnd = []byte("\x1b[200~"), []byte("\x1b[201~")

// cut returns what comes before the hot-key, the key as it was sent, and what comes after.
// A terminal that tells keys apart more finely sends it as a sequence (the kitty protocol,
// and modifyOtherKeys of xterm).
// What is pasted is text, whatever is in it: paste says whether b begins within a paste, and
// is set to whether it ends in one.
func (f Front) cut(b []byte, paste *bool) (before, key, after []byte) {
	if f.Key == 0 || f.Menu == nil {
		return b, nil, nil
	}
	if *paste {
		i := bytes.Index(b, pasteEnd)
		if i < 0 {
			return b, nil, nil
		}
		*paste = false
		i += len(pasteEnd)
		before, key, after = f.cut(b[i:], paste)
		return b[:i+len(before)], key, after
	}
	if i := bytes.Index(b, pasteBegin); i >= 0 {
		if before, key, _ = f.cut(b[:i], paste); len(key) > 0 {
			return before, key, b[len(before)+len(key):]
		}
		*paste = true
		i += len(pasteBegin)
		before, key, after = f.cut(b[i:], paste)
		return b[:i+len(before)], key, after
	}
	at, end := bytes.IndexByte(b, f.Key), 0
	if at >= 0 {
		end = at + 1
	}
	for _, m := range keySequence().FindAllSubmatchIndex(b, -1) {
		if (at < 0 || m[0] < at) && f.isKey(func(i int) int { return number(b, m, i) }) {
			at, end = m[0], m[1]
			break
		}
	}
	if at < 0 {
		return b, nil, nil
	}
	return b[:at], b[at:end], b[end:]
}

// keySequence is a key with what was held down: of the kitty protocol, with what a program
// can have it tell besides (other codes of the key, that it repeats, its text), or of xterm.
var keySequence = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\x1b\[(?:(\d{1,4})(?::\d*)*;(\d{1,4})(?::(\d))?(?:;[\d:]*)?u|27;(\d{1,4});(\d{1,4})~)`)
})

// number is what a group of a match says, -1 if it is not there.
func number(b []byte, m []int, group int) int {
	if m[2*group] < 0 {
		return -1
	}
	n, err := strconv.Atoi(string(b[m[2*group]:m[2*group+1]]))
	if err != nil {
		return -1
	}
	return n
}

// isKey reports whether a sequence, by its groups, is that of the hot-key being pressed,
// whatever locks are on.
func (f Front) isKey(group func(int) int) bool {
	code := int(f.Key) | 0x40
	if f.Key >= 1 && f.Key <= 26 {
		code |= 0x20
	}
	const control, locks, released = 4, 64 | 128, 3
	key, held := group(1), group(2)
	if key < 0 {
		key, held = group(5), group(4)
	}
	return key == code && (held-1)&^locks == control && group(3) != released
}

// ask shows a page of ours and does what the person chooses there.
func (p *person) ask(ctx context.Context, raw *pty.Raw, key []byte) error {
	p.mu.Lock()
	p.menu = true
	s, was := p.state, p.modes
	was.set = maps.Clone(was.set)
	for _, screen := range []int{47, 1047, 1049} {
		delete(was.set, screen) // which a page of ours is shown on
	}
	_, werr := p.f.Out.Write(was.off())
	err := errors.Join(raw.Cooked(), werr)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	choice := p.f.Menu(ctx, s, p.modes.other())
	if err := raw.Raw(); err != nil {
		return err
	}
	p.mu.Lock()
	p.menu = false
	behind := p.behind
	p.behind = nil
	p.modes.feed(behind)
	_, err = p.f.Out.Write(slices.Concat(was.on(), behind))
	p.mu.Unlock()
	switch {
	case err != nil:
		return err
	case choice == Detach:
		p.left.Store(true)
		return p.conn.Close()
	case choice == Stop:
		err = p.frame(frameStop, nil)
	case choice == Send:
		err = p.frame(frameInput, key)
	}
	return errors.Join(err, p.tellSize()) // it draws its page anew
}

// release gives the terminal back, and says what waited to be said.
func (p *person) release() error {
	p.mu.Lock()
	raw, told, off := p.raw, p.told, p.modes.off()
	p.mu.Unlock()
	if raw == nil {
		return nil
	}
	_, werr := p.f.Out.Write(off)
	err := errors.Join(raw.Restore(), werr)
	_ = p.conn.SetDeadline(time.Now()) // whatever is still being sent
	p.work.Wait()
	_, werr = p.f.Err.Write(told)
	return errors.Join(err, werr)
}

// Await waits until the program behind c has started, or ended before: then started is
// false. What the holder has to say until then goes to told.
func Await(ctx context.Context, c net.Conn, told io.Writer) (s State, status int, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	for {
		kind, b, err := readFrame(c)
		if err != nil {
			return s, 0, fmt.Errorf("waiting for the session: %w", err)
		}
		switch {
		case kind == frameMessage:
			_, err = told.Write(b)
		case kind == frameState:
			err = json.Unmarshal(b, &s)
		case kind == frameEnd && len(b) == 2:
			return s, int(binary.BigEndian.Uint16(b)), nil
		}
		if err != nil || s.Started {
			return s, 0, err
		}
	}
}

// End asks the holder behind c to end its program, and waits until it has.
func End(ctx context.Context, c net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := writeFrame(c, frameStop, nil); err != nil {
		return fmt.Errorf("ending the session: %w", err)
	}
	for {
		kind, _, err := readFrame(c)
		if err != nil {
			return fmt.Errorf("ending the session: %w", err)
		}
		if kind == frameEnd {
			return nil
		}
	}
}
