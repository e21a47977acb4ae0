package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The kinds of frames. Each direction has its own; what is not expected is an error.
const (
	// From the caller to the stage.
	frameFiles byte = iota + 1 // descriptors that go with the plan, in order
	framePlan                  // a plan
	frameGo                    // the program may start

	// From the stage to the caller.
	frameChild   // a handle of the program's process, which is confined and waits
	frameReady   // a setup: pid 1 is confined too, nothing has started
	frameStarted // the program runs
	frameFailed  // a failure: nothing runs
	frameDenied  // a denial
	frameWays    // handed: sockets that listen in the box
	frameEnded   // an ending: how the program ended; with namespaces, pid 1 is alone
)

const (
	frameHead   = 6   // length of the payload (4), kind, number of descriptors
	maxInFrame  = 128 // descriptors; the kernel passes 253 at once (SCM_MAX_FD)
	maxFiles    = 4096
	maxSmall    = 64 << 10 // bytes of any frame but a plan
	rightsSpace = 4 * maxInFrame
)

// A wire is one end of a stream socket between a caller and its stage. A frame is
// its length (big endian), its kind, the number of descriptors that come with its
// first byte, and a payload. Sending may be concurrent, receiving may not.
type wire struct {
	f     *os.File
	raw   syscall.RawConn
	plain bool  // no descriptors come any more: read(2) will do
	held  []int // descriptors that came with bytes read so far
	in    []byte

	sending sync.Mutex // held while a frame is written
}

// A frame is one message. Its descriptors belong to who receives it.
type frame struct {
	kind    byte
	payload []byte
	fds     []int
}

func newWire(f *os.File) (*wire, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &wire{f: f, raw: raw}, nil
}

// sendPlan sends p, with its descriptors before it.
func (w *wire) sendPlan(p *plan, fds []int) error {
	payload, err := encode(p)
	if err != nil {
		return err
	}
	for len(fds) > 0 {
		n := min(len(fds), maxInFrame)
		if err := w.send(frameFiles, nil, fds[:n]...); err != nil {
			return err
		}
		fds = fds[n:]
	}
	return w.send(framePlan, payload)
}

// recvPlan is the other end of sendPlan.
func (w *wire) recvPlan() (*plan, []int, error) {
	var fds []int
	for {
		fr, err := w.recv(maxMessage)
		if err != nil {
			return nil, fds, err
		}
		fds = append(fds, fr.fds...)
		switch {
		case len(fds) > maxFiles:
			return nil, fds, fmt.Errorf("more than %d descriptors", maxFiles)
		case fr.kind == frameFiles && len(fr.payload) == 0:
		case fr.kind == framePlan && len(fr.fds) == 0:
			p := new(plan)
			return p, fds, decode(fr.payload, p)
		default:
			return nil, fds, fmt.Errorf("a frame of kind %d before the plan", fr.kind)
		}
	}
}

// send writes one frame. It never blocks for long: the other end reads, or is gone.
func (w *wire) send(kind byte, payload []byte, fds ...int) error {
	b := make([]byte, frameHead, frameHead+len(payload))
	binary.BigEndian.PutUint32(b, uint32(len(payload)))
	b[4], b[5] = kind, byte(len(fds))
	b = append(b, payload...)
	w.sending.Lock()
	defer w.sending.Unlock()
	if len(fds) == 0 {
		_, err := w.f.Write(b)
		return err
	}
	var n int
	var sent error
	var err error
	for pause := time.Millisecond; ; pause *= 2 {
		err = w.raw.Write(func(fd uintptr) bool {
			n, sent = unix.SendmsgN(int(fd), b, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
			return !errors.Is(sent, unix.EAGAIN)
		})
		if !errors.Is(sent, unix.ETOOMANYREFS) {
			break
		}
		// All that processes of this user have sent and nobody has received yet is counted
		// together, and soon received as a rule.
		if pause > longestPause {
			sent = fmt.Errorf("more descriptors of this user are on their way between processes than one may open (ulimit -n): %w", sent)
			break
		}
		time.Sleep(pause)
	}
	if err = errors.Join(err, sent); err != nil || n == len(b) {
		return err
	}
	_, err = w.f.Write(b[n:])
	return err
}

// longestPause is the last of the pauses, each of which is twice the one before: some four
// seconds in all.
const longestPause = 2 * time.Second

// recv reads one frame with at most limit bytes of payload. At the end of the stream
// the error is io.EOF, within a frame io.ErrUnexpectedEOF.
func (w *wire) recv(limit int) (frame, error) {
	if err := w.fill(frameHead); err != nil {
		return frame{}, err
	}
	size, kind, fds := binary.BigEndian.Uint32(w.in), w.in[4], int(w.in[5])
	if size > uint32(limit) || fds > maxInFrame {
		return frame{}, fmt.Errorf("a frame of %d bytes and %d descriptors", size, fds)
	}
	w.in = w.in[frameHead:]
	if err := w.fill(int(size)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	if len(w.held) < fds {
		return frame{}, fmt.Errorf("%d descriptors of %d", len(w.held), fds)
	}
	fr := frame{kind: kind, payload: w.in[:size:size], fds: w.held[:fds:fds]}
	w.in, w.held = w.in[size:], w.held[fds:]
	return fr, nil
}

// fill reads until at least n bytes are there.
func (w *wire) fill(n int) error {
	for len(w.in) < n {
		buf := make([]byte, max(4096, n-len(w.in)))
		got, err := w.read(buf)
		if err != nil {
			return err
		}
		if got == 0 {
			if len(w.in) > 0 {
				return io.ErrUnexpectedEOF
			}
			return io.EOF
		}
		w.in = append(w.in, buf[:got]...)
	}
	return nil
}

func (w *wire) read(buf []byte) (int, error) {
	if w.plain {
		n, err := w.f.Read(buf)
		if err == io.EOF {
			err = nil
		}
		return n, err
	}
	oob := make([]byte, unix.CmsgSpace(rightsSpace))
	var n, oobn, flags int
	var got error
	err := w.raw.Read(func(fd uintptr) bool {
		n, oobn, flags, _, got = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
		for got == unix.EINTR {
			n, oobn, flags, _, got = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
		}
		return got != unix.EAGAIN
	})
	if err = errors.Join(err, got); err != nil {
		return 0, err
	}
	if oobn > 0 {
		if err := w.take(oob[:oobn]); err != nil {
			return 0, err
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, errors.New("descriptors were lost: too many are open")
	}
	return n, nil
}

func (w *wire) take(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		w.held = append(w.held, fds...)
	}
	return nil
}

// close closes the wire and what came over it that nobody took.
func (w *wire) close() {
	w.f.Close()
	closeFDs(w.held)
	w.held = nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
