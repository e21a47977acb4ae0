package egress

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"time"

	"ringfence/internal/egress/bridge"
)

// A stream is one connection of the box: what came before its bytes, and when the last
// of them passed.
type stream struct {
	net.Conn
	from    bridge.Preamble
	peeked  []byte       // read, and to be read again
	touched atomic.Int64 // when a byte passed, in nanoseconds of the clock of the way
	waiting atomic.Int32 // decisions that somebody may be asked for
	now     func() time.Time
	got     atomic.Int64 // bytes from the box, and to it
	put     atomic.Int64
}

func (s *stream) touch() { s.touched.Store(s.now().UnixNano()) }

// Peek implements peeker.
func (s *stream) Peek(n int) ([]byte, error) {
	for len(s.peeked) < n {
		at := len(s.peeked)
		more := max(n-at, 512)
		s.peeked = append(s.peeked, make([]byte, more)...)
		got, err := s.Conn.Read(s.peeked[at:])
		s.peeked = s.peeked[:at+got]
		s.touch()
		if err != nil && len(s.peeked) < n {
			return s.peeked, err
		}
	}
	return s.peeked[:n], nil
}

// Read gives what was peeked first.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.peeked) > 0 {
		n := copy(p, s.peeked)
		if s.peeked = s.peeked[n:]; len(s.peeked) == 0 {
			s.peeked = nil
		}
		s.got.Add(int64(n))
		return n, nil
	}
	n, err := s.Conn.Read(p)
	s.touch()
	s.got.Add(int64(n))
	return n, err
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.touch()
	s.put.Add(int64(n))
	return n, err
}

// CloseWrite ends what is written, where the connection can.
func (s *stream) CloseWrite() error { return closeWrite(s.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// await bounds how long the box may take for what it must say next; 0 is no bound.
func (s *stream) await(d time.Duration) error {
	if d == 0 {
		return s.SetReadDeadline(time.Time{})
	}
	return s.SetReadDeadline(time.Now().Add(d))
}

// behind is a connection whose first bytes were read by somebody else.
type behind struct {
	net.Conn
	first *bytes.Reader
}

func (b *behind) Read(p []byte) (int, error) {
	if b.first.Len() > 0 {
		return b.first.Read(p)
	}
	return b.Conn.Read(p)
}

// CloseWrite ends what is written, where the connection can.
func (b *behind) CloseWrite() error { return closeWrite(b.Conn) }

var _ io.Reader = (*behind)(nil)
