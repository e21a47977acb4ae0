package mediator

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
)

var errLong = errors.New("line too long")

// lines splits a stream at newlines.
type lines struct {
	r    *bufio.Reader
	max  int
	skip bool // whether reading goes on behind a line that is too long
}

func newLines(r io.Reader, limit int, skip bool) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), max: limit, skip: skip}
}

// yield lets who was given the last line go first, if no other is there: what it does
// takes less time than to find out that there is nothing more to read.
func (l *lines) yield() {
	if l.r.Buffered() == 0 {
		runtime.Gosched()
	}
}

// next returns one line in memory of its own, without its end. At the end of
// the stream it returns io.EOF, together with what came after the last newline.
// Of a line of more than max bytes it keeps nothing and returns errLong.
func (l *lines) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > l.max+1 {
			for l.skip && errors.Is(err, bufio.ErrBufferFull) {
				_, err = l.r.ReadSlice('\n')
			}
			return nil, errLong
		}
		line = append(line, part...)
		if err == nil {
			line = line[:len(line)-1]
			return bytes.TrimSuffix(line, []byte{'\r'}), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// An outbox writes lines to a stream from one goroutine, so that a reader who
// does not read blocks nobody who can also give up.
type outbox struct {
	lines chan parcel
	quit  chan struct{} // closed by close
	done  chan struct{} // closed when nothing more will be written
	once  sync.Once
}

// A parcel is a line on its way out.
type parcel struct {
	line    []byte
	written func() // called when line is no longer kept; may be nil
}

func newOutbox(w io.Writer, size int) *outbox {
	o := &outbox{lines: make(chan parcel, size), quit: make(chan struct{}), done: make(chan struct{})}
	go o.run(w)
	return o
}

func (o *outbox) run(w io.Writer) {
	defer close(o.done)
	for {
		select {
		case p := <-o.lines:
			if !p.writeTo(w) {
				return
			}
		case <-o.quit:
			o.drain(w)
			return
		}
	}
}

func (o *outbox) drain(w io.Writer) {
	for {
		select {
		case p := <-o.lines:
			if !p.writeTo(w) {
				return
			}
		default:
			return
		}
	}
}

// writeTo reports whether p was written. It is not kept in any case.
func (p parcel) writeTo(w io.Writer) bool {
	_, err := w.Write(p.line)
	if p.written != nil {
		p.written()
	}
	return err == nil
}

var errClosed = errors.New("the stream is closed")

// send queues line, which must end with a newline and not change any more. On
// error it was not queued.
func (o *outbox) send(ctx context.Context, line []byte) error { return o.post(ctx, parcel{line: line}) }

// post is send for a line that somebody wants to know the end of.
func (o *outbox) post(ctx context.Context, p parcel) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-o.done:
		return errClosed
	default:
	}
	select {
	case o.lines <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-o.done:
		return errClosed
	}
}

// offer queues line if there is room.
func (o *outbox) offer(line []byte) {
	select {
	case o.lines <- parcel{line: line}:
	default:
	}
}

// close lets what is queued be written and no more. It does not wait.
func (o *outbox) close() { o.once.Do(func() { close(o.quit) }) }

// A ring keeps the last bytes that were written to it.
type ring struct {
	mu  sync.Mutex
	buf []byte
	max int
}

func (r *ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	if len(p) > r.max {
		p = p[len(p)-r.max:]
	}
	if over := len(r.buf) + len(p) - r.max; over > 0 {
		r.buf = append(r.buf[:0], r.buf[over:]...)
	}
	r.buf = append(r.buf, p...)
	return n, nil
}

func (r *ring) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.buf)
}
