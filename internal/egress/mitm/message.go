package mitm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// A Message is one of a WebSocket, at its beginning.
type Message struct {
	Out    bool  // from the client; else from the server
	Binary bool  // else text
	Number int64 // of those of its direction, from 1
}

// The codes of a close frame (RFC 6455 §7.4.1) that we send.
const (
	closeAway     = 1001 // to the side that is not at fault
	closeProtocol = 1002
	closePolicy   = 1008
	closeTooBig   = 1009
)

// maxReason is how long the reason of a close frame may be.
const maxReason = maxControl - 2

// codeLarge is the code of a [RefusedError] about what is too large.
const codeLarge = "large"

// A wire is what frames of one direction are written to. The other direction ends it with a
// close frame where it must, between two frames.
type wire struct {
	to     io.Writer
	masked bool

	mu   sync.Mutex
	mid  bool // in a frame
	over bool // a close frame has been written
}

// put writes b, the last of its frame unless more follows.
func (w *wire) put(b []byte, more bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return io.ErrClosedPipe
	}
	w.mid = more
	_, err := w.to.Write(b)
	return err
}

// Write implements io.Writer, for whole frames.
func (w *wire) Write(b []byte) (int, error) { return len(b), w.put(b, false) }

// over notes that a side has closed what it writes: we write no close frame of ours then.
func (f *frames) over() {
	if w, ok := f.to.(*wire); ok {
		w.mu.Lock()
		w.over = true
		w.mu.Unlock()
	}
}

// closing writes a close frame, if one can still be.
func (w *wire) closing(code uint16, reason string) {
	for len(reason) > maxReason || !utf8.ValidString(reason) {
		reason = strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	}
	body := append(binary.BigEndian.AppendUint16(nil, code), reason...)
	h := frameHead{fin: true, op: opClose, masked: w.masked, length: int64(len(body))} // a key of zeros masks nothing, and is one
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mid || w.over {
		return
	}
	w.over = true
	_, _ = w.to.Write(append(h.append(nil), body...)) // the connection ends in any case
}

// ends tells both sides why a direction was not let go on: who sent what was refused by the
// code for that, the other that it is over. What is no refusal is for nobody to be told, and
// gives false.
func ends(err error, fromClient bool, client, server *wire) bool {
	why, ok := errors.AsType[*RefusedError](err)
	if !ok {
		return false
	}
	code := uint16(closePolicy)
	switch why.Code {
	case "frame":
		code = closeProtocol
	case codeLarge:
		code = closeTooBig
	}
	blamed, other := server, client
	if fromClient {
		blamed, other = client, server
	}
	blamed.closing(code, "ringfence: "+why.Detail)
	other.closing(closeAway, "")
	return true
}

// An unchanged is a filter of what goes out as it was written or not at all.
type unchanged struct {
	filter Filter
	held   []byte
}

// Push implements Filter.
func (u *unchanged) Push(b []byte) ([]byte, error) {
	u.held = append(u.held, b...)
	return u.let(u.filter.Push(b))
}

// End implements Filter.
func (u *unchanged) End() ([]byte, error) {
	out, err := u.let(u.filter.End())
	if err == nil && len(u.held) > 0 {
		err = errHeld
	}
	return out, err
}

var errHeld = refusal("content", "a message holds what must not go out")

func (u *unchanged) let(out []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(u.held, out) {
		return nil, errHeld
	}
	u.held = append(u.held[:0], u.held[len(out):]...)
	return out, nil
}
