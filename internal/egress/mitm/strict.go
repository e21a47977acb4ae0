package mitm

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Strict returns conn as an HTTP/1.1 server is to read it: only whole heads and well
// framed bodies, of which no two servers have different readings (M2). Where something
// else comes, Read returns a *RefusedError for good, which net/http answers with 400, and
// tells it to refused, which may be nil.
//
// It is stricter than RFC 9112 where servers differ: no bare LF, no folded lines, no
// white space before a colon, no chunk extensions, no repeated Content-Length, no
// Transfer-Encoding but chunked.
func Strict(conn net.Conn, l Limits, refused func(RefusedError)) *Strictly {
	return &Strictly{Conn: conn, limits: l.withDefaults(), refused: refused, state: inHead}
}

// Strictly is the connection that [Strict] returns.
type Strictly struct {
	net.Conn
	limits  Limits
	refused func(RefusedError)

	state   readState
	buf     []byte // read and not delivered
	ready   int    // of buf, checked
	left    int64  // of the body or chunk
	trailer int    // bytes of trailers so far
	begun   time.Time
	failed  error
	why     atomic.Pointer[RefusedError] // the same, for those who do not read
}

type readState uint8

const (
	inHead    readState = iota
	inBody              // left bytes follow
	inSize              // the line that begins a chunk
	inChunk             // left bytes follow
	inEnd               // the line end behind a chunk
	inTrailer           // lines up to an empty one
	held                // an upgrade was asked for and not granted
	raw
)

const (
	firstRead  = 4 << 10
	maxSizeLen = 18      // 16 hexadecimal digits and the line end
	maxTrailer = 3 << 10 // less than net/http looks at
)

// Raw has the rest of the connection read as it is: what was asked for was granted.
// It must not be called while another goroutine reads.
func (s *Strictly) Raw() { s.state, s.ready, s.failed = raw, len(s.buf), nil }

// Refused returns why nothing more is read, nil while that is not so.
func (s *Strictly) Refused() error {
	if why := s.why.Load(); why != nil {
		return why
	}
	return nil
}

// CloseWrite ends what is written, where the connection can.
func (s *Strictly) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return s.Close()
}

// Read delivers what has been checked.
func (s *Strictly) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for s.ready == 0 {
		if s.failed != nil {
			return 0, s.failed
		}
		if len(s.buf) == 0 && (s.state == inBody || s.state == inChunk || s.state == raw) {
			return s.direct(p)
		}
		more, err := s.advance()
		if why, ok := errors.AsType[*RefusedError](err); ok {
			s.fail(why)
			continue
		}
		if err == nil && more {
			err = s.fill()
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, s.buf[:s.ready])
	s.ready -= n
	if s.buf = s.buf[n:]; len(s.buf) == 0 {
		s.buf = nil
	}
	return n, nil
}

func (s *Strictly) fail(why *RefusedError) {
	s.failed, s.buf = why, nil
	s.why.Store(why)
	if s.refused != nil {
		s.refused(*why)
	}
}

// direct reads the bytes of a body past the buffer.
func (s *Strictly) direct(p []byte) (int, error) {
	if s.state == raw {
		return s.Conn.Read(p)
	}
	n, err := s.Conn.Read(p[:min(int64(len(p)), s.left)])
	s.took(int64(n))
	return n, err
}

// took notes that n bytes of a body or chunk go on.
func (s *Strictly) took(n int64) {
	if s.left -= n; s.left > 0 {
		return
	}
	if s.state == inBody {
		s.state = inHead
	} else {
		s.state = inEnd
	}
}

// fill reads more into the buffer. A deadline that has passed loses nothing.
func (s *Strictly) fill() error {
	if len(s.buf) == 0 {
		s.begun = time.Time{}
	}
	s.buf = append(s.buf, make([]byte, max(firstRead, len(s.buf)))...)
	free := s.buf[len(s.buf)-max(firstRead, len(s.buf)/2):]
	n, err := s.Conn.Read(free)
	s.buf = s.buf[:len(s.buf)-len(free)+n]
	if n > 0 {
		return nil
	}
	return err
}

// advance checks what is in the buffer. It returns true if more is needed, and the
// *RefusedError of what cannot be let through.
func (s *Strictly) advance() (more bool, err error) {
	switch s.state {
	case inHead:
		return s.head()
	case inBody, inChunk:
		s.ready = int(min(s.left, int64(len(s.buf))))
		s.took(int64(s.ready))
	case inSize:
		return s.size()
	case inEnd:
		if len(s.buf) < 2 {
			return true, nil
		}
		if s.buf[0] != '\r' || s.buf[1] != '\n' {
			return false, refusal("head", "a chunk is longer than its size")
		}
		s.ready, s.state = 2, inSize
	case inTrailer:
		return s.trailers()
	case held:
		if len(s.buf) == 0 {
			return true, nil
		}
		return false, refusal("upgrade", "bytes follow a request to upgrade before it is granted")
	case raw:
		s.ready = len(s.buf)
		return s.ready == 0, nil
	}
	return false, nil
}

// head checks the head of a request.
func (s *Strictly) head() (more bool, err error) {
	now := time.Now()
	if len(s.buf) > 0 && s.begun.IsZero() {
		s.begun = now
	}
	end := bytes.Index(s.buf, []byte("\r\n\r\n"))
	size := end + 4
	if end < 0 {
		size = len(s.buf)
	}
	switch {
	case size > s.limits.HeadBytes:
		return false, refusal("head", "a head is longer than %d bytes", s.limits.HeadBytes)
	case end < 0 && hasBareLF(s.buf):
		return false, refusal("head", "a line does not end in CR LF")
	case end < 0 && len(s.buf) > 0 && now.Sub(s.begun) > s.limits.Head:
		return false, refusal("head", "a head was not whole after %v", s.limits.Head)
	case end < 0:
		return true, nil
	}
	h, err := readHead(s.buf[:size])
	if err != nil {
		return false, err
	}
	s.begun = time.Time{}
	s.ready = size
	switch {
	case h.upgrade || h.method == http.MethodConnect:
		s.state = held
	case h.chunked:
		s.state, s.trailer = inSize, 0
	case h.length > 0:
		s.state, s.left = inBody, h.length
	}
	return false, nil
}

// hasBareLF finds a line of b that does not end in CR LF.
func hasBareLF(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return false
		}
		if i == 0 || b[i-1] != '\r' {
			return true
		}
		b = b[i+1:]
	}
}

// size checks the line that begins a chunk.
func (s *Strictly) size() (more bool, err error) {
	end := bytes.IndexByte(s.buf, '\n')
	if end < 0 && len(s.buf) < maxSizeLen {
		return true, nil
	}
	if end < 2 || end >= maxSizeLen || s.buf[end-1] != '\r' {
		return false, refusal("head", "a chunk begins with more than its size")
	}
	digits := s.buf[:end-1]
	for _, c := range digits {
		if !isHex(c) {
			return false, refusal("head", "the size of a chunk is not a number")
		}
	}
	n, err := strconv.ParseInt(string(digits), 16, 64)
	if err != nil {
		return false, refusal("head", "the size of a chunk is too large")
	}
	s.ready, s.left, s.state = end+1, n, inChunk
	if n == 0 {
		s.state = inTrailer
	}
	return false, nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// trailers checks one line behind the last chunk.
func (s *Strictly) trailers() (more bool, err error) {
	end := bytes.IndexByte(s.buf, '\n')
	size := end + 1
	if end < 0 {
		size = len(s.buf)
	}
	switch {
	case s.trailer+size > maxTrailer:
		return false, refusal("head", "the trailers are longer than %d bytes", maxTrailer)
	case end < 0:
		return true, nil
	case end == 0 || s.buf[end-1] != '\r':
		return false, refusal("head", "a line does not end in CR LF")
	}
	s.trailer += size
	if end == 1 {
		s.ready, s.state = size, inHead
		return false, nil
	}
	name, _, err := readField(s.buf[:end-1])
	if err == nil && noTrailer(name) {
		err = refusal("head", "%s is no trailer", name)
	}
	if err == nil {
		s.ready = size
	}
	return false, err
}
