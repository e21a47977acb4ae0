package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// maxField bounds the value of a field of an event that is not data, in bytes.
const maxField = 4 << 10

// maxRetry bounds how long a server may have us wait before we take a stream up again.
const maxRetry = 30 * time.Second

// An event is one of an event stream, HTML living standard, section 9.2.6.
type event struct {
	name string // "" and "message" say the same
	data []byte // nil in an event that only has an id
}

// events reads an event stream. Its id and retry are those last read.
type events struct {
	r     *bufio.Reader
	max   int
	cr    bool // the line before ended with a carriage return, which a newline may follow
	begun bool

	hold func(n int) bool // whether n more bytes may be kept; nil is any
	kept int              // bytes that were, since [events.forget]

	id    string
	retry time.Duration // 0 if the server said nothing
}

func newEvents(r io.Reader, limit int) *events {
	return &events{r: bufio.NewReaderSize(r, 32<<10), max: limit}
}

// keep counts n more bytes of an unfinished event.
func (e *events) keep(n int) error {
	if e.hold != nil && !e.hold(n) {
		return errFlood
	}
	e.kept += n
	return nil
}

// forget returns how many bytes were kept, and counts anew.
func (e *events) forget() int {
	n := e.kept
	e.kept = 0
	return n
}

var (
	errLongEvent = errors.New("it sent an event that is too long")
	errLongField = fmt.Errorf("it sent an event with a field of more than %d bytes", maxField)
)

// next returns the next event that has data or an id. What is left unfinished when
// the stream ends is dropped.
func (e *events) next() (event, error) {
	var ev event
	some, hasID := false, false
	for {
		line, err := e.line()
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if some || hasID {
				return ev, nil
			}
			ev = event{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		if string(name) != "data" && len(value) > maxField {
			if len(name) == 0 { // a comment
				continue
			}
			return event{}, errLongField
		}
		switch string(name) {
		case "data":
			if len(ev.data)+len(value) >= e.max {
				return event{}, errLongEvent
			}
			if err := e.keep(len(value)); err != nil {
				return event{}, err
			}
			if some {
				ev.data = append(ev.data, '\n')
			}
			ev.data, some = append(ev.data, value...), true
		case "event":
			ev.name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.id, hasID = string(value), true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
				e.retry = min(time.Duration(ms)*time.Millisecond, maxRetry)
			}
		}
	}
}

// line returns the next line without its end, which is a newline, a carriage return
// or both. It is valid until the next call.
func (e *events) line() ([]byte, error) {
	var long []byte
	for {
		if _, err := e.r.Peek(1); err != nil {
			return nil, err
		}
		buf, err := e.r.Peek(e.r.Buffered())
		if err != nil {
			return nil, err
		}
		if !e.begun {
			e.begun = true
			if buf, err = e.skipMark(buf); err != nil || len(buf) == 0 {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		if e.cr {
			e.cr = false
			if buf[0] == '\n' {
				_, _ = e.r.Discard(1)
				continue
			}
		}
		i := bytes.IndexByte(buf, '\n')
		if j := bytes.IndexByte(buf[:max(i, 0)], '\r'); i >= 0 && j >= 0 {
			i = j
		} else if i < 0 {
			i = bytes.IndexByte(buf, '\r')
		}
		n := i
		if i < 0 {
			n = len(buf)
		}
		if len(long)+n > e.max {
			return nil, errLongEvent
		}
		if i < 0 {
			if err := e.keep(n); err != nil {
				return nil, err
			}
			long = append(long, buf...)
			_, _ = e.r.Discard(n)
			continue
		}
		e.cr = buf[i] == '\r'
		line := buf[:i]
		if long != nil {
			line = append(long, line...)
		}
		_, _ = e.r.Discard(i + 1) // leaves the bytes where they are until the next read
		return line, nil
	}
}

// skipMark drops a byte order mark at the start of the stream.
func (e *events) skipMark(buf []byte) ([]byte, error) {
	mark := []byte("\xef\xbb\xbf")
	if buf[0] != mark[0] {
		return buf, nil
	}
	start, err := e.r.Peek(len(mark))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.Equal(start, mark) {
		_, _ = e.r.Discard(len(mark))
	}
	return e.r.Peek(e.r.Buffered())
}
