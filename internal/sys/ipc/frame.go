package ipc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
)

// A frame is two big-endian uint32 lengths, a header of the first length and a
// body of the second. This package gives the bytes no meaning.

const (
	frameHead = 8
	joinLimit = 64 << 10 // larger frames are not copied together
	trustStep = 1 << 20  // memory given to a length before its bytes have come
)

// ErrFrameSize marks a frame with a header or body longer than the reader
// allows. The stream cannot be read further; close it.
var ErrFrameSize = errors.New("frame too large")

// WriteFrame writes one frame with one call of Write, or one writev where w is
// a socket and the frame is large. Concurrent callers must take turns. After an
// error the stream is of no further use.
func WriteFrame(w io.Writer, header, body []byte) error {
	if len(header) > math.MaxUint32 || len(body) > math.MaxUint32 {
		return ErrFrameSize
	}
	size := frameHead + len(header) + len(body)
	if size > joinLimit {
		head := binary.BigEndian.AppendUint32(make([]byte, 0, frameHead), uint32(len(header)))
		head = binary.BigEndian.AppendUint32(head, uint32(len(body)))
		parts := net.Buffers{head, header, body}
		_, err := parts.WriteTo(w)
		return err
	}
	buf := binary.BigEndian.AppendUint32(make([]byte, 0, size), uint32(len(header)))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(body)))
	buf = append(append(buf, header...), body...)
	_, err := w.Write(buf)
	return err
}

// ReadFrame reads one frame. Pass a buffered reader: small frames take three
// reads. header and body are fresh memory. The error is io.EOF only if the
// stream ended between frames, and [ErrFrameSize] if a length is above its
// maximum (bytes).
func ReadFrame(r io.Reader, maxHeader, maxBody int) (header, body []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, err
	}
	h, b := int64(binary.BigEndian.Uint32(head[:4])), int64(binary.BigEndian.Uint32(head[4:]))
	if h > int64(maxHeader) || b > int64(maxBody) {
		return nil, nil, fmt.Errorf("%w: header %d of %d bytes, body %d of %d", ErrFrameSize, h, maxHeader, b, maxBody)
	}
	if header, err = readN(r, h); err == nil {
		body, err = readN(r, b)
	}
	if err != nil {
		return nil, nil, err
	}
	return header, body, nil
}

// readN reads exactly n bytes, and trusts n only up to trustStep (I3).
func readN(r io.Reader, n int64) ([]byte, error) {
	var buf []byte
	var err error
	if n <= trustStep {
		buf = make([]byte, n)
		_, err = io.ReadFull(r, buf)
	} else {
		var grow bytes.Buffer
		_, err = io.CopyN(&grow, r, n)
		buf = grow.Bytes()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return buf, err
}
