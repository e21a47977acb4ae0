package mitm

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf8"
)

// The kinds of frame (RFC 6455 §5.2).
const (
	opContinue = 0x0
	opText     = 0x1
	opBinary   = 0x2
	opClose    = 0x8
	opPing     = 0x9
	opPong     = 0xa
)

const (
	finBit     = 0x80
	maskBit    = 0x80
	reserved   = 0x70
	maxControl = 125 // bytes of the payload of a control frame
	len16      = 126 // says that two bytes of length follow
	len64      = 127 // and eight
	maxHead    = 14
)

// A frameHead is the head of one frame.
type frameHead struct {
	fin    bool
	op     byte
	masked bool
	key    [4]byte
	length int64
}

// readFrameHead reads a head. The error is a *RefusedError if no frame begins so, and io.EOF
// if nothing follows.
func readFrameHead(r *bufio.Reader) (frameHead, error) {
	first, err := r.ReadByte()
	if err != nil {
		return frameHead{}, err
	}
	second, err := r.ReadByte()
	if err != nil {
		return frameHead{}, whole(err)
	}
	h := frameHead{fin: first&finBit != 0, op: first & 0xf, masked: second&maskBit != 0}
	if first&reserved != 0 {
		return h, refusal("frame", "a frame uses an extension that was not agreed")
	}
	var long [8]byte
	switch n := second &^ maskBit; n {
	case len16:
		if _, err := io.ReadFull(r, long[6:]); err != nil {
			return h, whole(err)
		}
		h.length = int64(binary.BigEndian.Uint64(long[:]))
		if h.length < len16 {
			return h, refusal("frame", "the length of a frame is not in its shortest form")
		}
	case len64:
		if _, err := io.ReadFull(r, long[:]); err != nil {
			return h, whole(err)
		}
		h.length = int64(binary.BigEndian.Uint64(long[:]))
		if h.length < 1<<16 {
			return h, refusal("frame", "the length of a frame is not in its shortest form, or more than a length can be")
		}
	default:
		h.length = int64(n)
	}
	if h.masked {
		if _, err := io.ReadFull(r, h.key[:]); err != nil {
			return h, whole(err)
		}
	}
	return h, nil
}

// whole is the error of a frame that ends in its middle.
func whole(err error) error {
	if err == io.EOF { //nolint:errorlint // as io.ReadFull
		return io.ErrUnexpectedEOF
	}
	return err
}

// append adds the head as it is on the wire.
func (h frameHead) append(b []byte) []byte {
	first, second := h.op, byte(0)
	if h.fin {
		first |= finBit
	}
	if h.masked {
		second = maskBit
	}
	switch {
	case h.length < len16:
		b = append(b, first, second|byte(h.length))
	case h.length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, first, second|len16), uint16(h.length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, first, second|len64), uint64(h.length))
	}
	if h.masked {
		b = append(b, h.key[:]...)
	}
	return b
}

// mask applies the key to b, whose first byte is at offset at of the payload. Doing it
// twice undoes it.
func mask(b []byte, key [4]byte, at int64) {
	for i := range b {
		b[i] ^= key[(at+int64(i))&3]
	}
}

// frames passes the frames of one direction on.
type frames struct {
	from       *bufio.Reader
	to         io.Writer
	fromClient bool // whose frames are masked
	limits     Limits
	filter     func() Filter       // for each message; nil, or what returns nil: none
	begins     func(Message) error // is asked about each message; nil: none is

	buf     []byte
	message byte  // kind of the message that is under way; 0: none
	number  int64 // of messages that began
	size    int64 // of it
	passed  int64 // bytes of payloads
	looking Filter
	begun   bool // a frame of the message has been written
}

// relay passes frames on until one has closed the connection, which gives nil.
func (f *frames) relay() error {
	f.buf = make([]byte, maxHead+copyPiece)
	for {
		h, err := readFrameHead(f.from)
		if err != nil {
			return whole(err)
		}
		if err := f.check(h); err != nil {
			return err
		}
		switch {
		case h.op >= opClose:
			err = f.control(h)
		case f.looking != nil:
			err = f.look(h)
		default:
			err = f.pass(h)
		}
		if err != nil || h.op == opClose {
			return err
		}
		if h.fin && h.op < opClose {
			f.message, f.looking = 0, nil
		}
	}
}

// check holds a head against the rules of a connection (M5).
func (f *frames) check(h frameHead) error {
	switch {
	case h.masked != f.fromClient:
		return refusal("frame", "a frame of a client is not masked, or one of a server is")
	case h.length > f.limits.Frame:
		return refusal(codeLarge, "a frame has %d bytes; at most %d may pass", h.length, f.limits.Frame)
	}
	switch h.op {
	case opClose, opPing, opPong:
		if !h.fin || h.length > maxControl {
			return refusal("frame", "a control frame is in parts, or longer than %d bytes", maxControl)
		}
		return nil
	case opText, opBinary:
		if f.message != 0 {
			return refusal("frame", "a message begins within another")
		}
		f.message, f.size, f.begun = h.op, 0, false
		f.number++
		if f.begins != nil {
			if err := f.begins(Message{Out: f.fromClient, Binary: h.op == opBinary, Number: f.number}); err != nil {
				return err
			}
		}
		if f.filter != nil {
			f.looking = f.filter()
		}
	case opContinue:
		if f.message == 0 {
			return refusal("frame", "a frame continues no message")
		}
	default:
		return refusal("frame", "frames of kind %d are not known", h.op)
	}
	if f.size += h.length; f.size > f.limits.Message {
		return refusal(codeLarge, "a message has more than %d bytes", f.limits.Message)
	}
	return nil
}

// pass writes a frame as it came, piece by piece.
func (f *frames) pass(h frameHead) error {
	out := h.append(f.buf[:0])
	for left := h.length; ; {
		n, err := f.from.Read(f.buf[len(out) : len(out)+int(min(left, copyPiece))])
		if err != nil && left > 0 {
			return whole(err)
		}
		left -= int64(n)
		if err := f.put(f.buf[:len(out)+n], left > 0); err != nil {
			return fmt.Errorf("passing a frame on: %w", err)
		}
		f.passed += int64(n)
		out = out[:0]
		if left == 0 {
			return nil
		}
	}
}

// put writes b, which is the last of a frame unless more follows.
func (f *frames) put(b []byte, more bool) error {
	if w, ok := f.to.(*wire); ok {
		return w.put(b, more)
	}
	_, err := f.to.Write(b)
	return err
}

// control passes a control frame on.
func (f *frames) control(h frameHead) error {
	out := h.append(f.buf[:0])
	body := f.buf[len(out) : len(out)+int(h.length)]
	if _, err := io.ReadFull(f.from, body); err != nil {
		return whole(err)
	}
	if h.op == opClose {
		plain := append([]byte(nil), body...)
		if h.masked {
			mask(plain, h.key, 0)
		}
		if !validClose(plain) {
			return refusal("frame", "a connection is closed with a status that does not exist")
		}
	}
	f.passed += h.length
	if err := f.put(f.buf[:len(out)+len(body)], false); err != nil {
		return fmt.Errorf("passing a frame on: %w", err)
	}
	if h.op == opClose {
		f.over()
	}
	return nil
}

// validClose checks the payload of a close frame (RFC 6455 §7.4).
func validClose(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if len(b) == 1 || !utf8.Valid(b[2:]) {
		return false
	}
	code := binary.BigEndian.Uint16(b)
	known := code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006
	return known || code >= 3000 && code <= 4999
}

// look passes a frame of a message on through its filter, in frames of its own.
func (f *frames) look(h frameHead) error {
	piece := f.buf[:copyPiece]
	for at := int64(0); at < h.length; {
		n, err := f.from.Read(piece[:min(h.length-at, copyPiece)])
		if err != nil {
			return whole(err)
		}
		if h.masked {
			mask(piece[:n], h.key, at)
		}
		at += int64(n)
		out, err := f.looking.Push(piece[:n])
		if err == nil && len(out) > 0 {
			err = f.write(out, false)
		}
		if err != nil {
			return err
		}
	}
	if !h.fin {
		return nil
	}
	rest, err := f.looking.End()
	if err != nil {
		return err
	}
	return f.write(rest, true)
}

// write sends one frame of the message that is looked at.
func (f *frames) write(payload []byte, fin bool) error {
	h := frameHead{fin: fin, op: opContinue, masked: f.fromClient, length: int64(len(payload))}
	if !f.begun {
		h.op, f.begun = f.message, true
	}
	if h.masked {
		if _, err := rand.Read(h.key[:]); err != nil {
			return fmt.Errorf("passing a frame on: %w", err)
		}
	}
	out := h.append(make([]byte, 0, maxHead+len(payload)))
	at := len(out)
	out = append(out, payload...)
	if h.masked {
		mask(out[at:], h.key, 0)
	}
	f.passed += h.length
	if _, err := f.to.Write(out); err != nil {
		return fmt.Errorf("passing a frame on: %w", err)
	}
	return nil
}
