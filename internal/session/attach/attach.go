// Package attach is how people look at a terminal that a process of ours holds: the holder
// has the program's end of it, fronts come and go, and each passes bytes between a person's
// terminal and the holder.
//
// It draws nothing, reads nothing into what passes, and starts nothing. It decides nothing:
// who can connect to the socket of a holder is the same user, which the kernel says.
//
// Invariants:
//
//	A1  What the program writes reaches every front in the order in which it was written, and
//	    no front holds up the program or another: one that does not read is let go.
//	A2  Keys reach the program only from fronts, and only bytes that a front sent as such.
//	A3  What of the screen is kept is bounded.
//	A4  A frame that is malformed ends the connection that it came on, and nothing else.
package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The kinds of frames: of a holder, then of a front.
const (
	frameOutput  = 'o' // bytes of the program
	frameMessage = 'm' // text of ours for the person, lines
	frameState   = 's' // JSON, a State
	frameEnd     = 'x' // exit status, 2 bytes: the last frame
	frameInput   = 'i' // bytes that were typed
	frameSize    = 'w' // rows and columns, 2 bytes each
	frameStop    = 'k' // end the program
)

// maxFrame bounds a frame, in bytes.
const maxFrame = 256 << 10

var errFrame = errors.New("malformed frame")

// writeFrame writes a kind, four bytes of length, and the payload. Payloads that are longer
// than a frame go in several; only bytes of a stream may be.
func writeFrame(w io.Writer, kind byte, payload []byte) error {
	for first := true; first || len(payload) > 0; first = false {
		part := payload[:min(len(payload), maxFrame)]
		payload = payload[len(part):]
		head := [5]byte{kind}
		binary.BigEndian.PutUint32(head[1:], uint32(len(part)))
		if _, err := w.Write(append(head[:], part...)); err != nil {
			return err
		}
	}
	return nil
}

// readFrame reads one frame.
func readFrame(r io.Reader) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errFrame, err)
	}
	return head[0], payload, nil
}

// A State is what a holder says of what it holds.
type State struct {
	Session string `json:"session,omitempty"` // of the engine, once there is one
	Title   string `json:"title"`             // what it is, for people
	Started bool   `json:"started"`           // the program runs: the terminal is its own
}
