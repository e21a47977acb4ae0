package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"

	"ringfence/internal/sys/ipc"
)

// A reply is one reply frame.
type reply struct {
	header header
	body   []byte
}

// A link is the client's side of one connection. When it fails it fails for
// good: every call in flight and every later one returns its error.
type link struct {
	out writer

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan reply // capacity 1; nil once the link has failed
	err     error                 // why it failed
	done    chan struct{}         // closed when it has failed and its reader has ended
}

// newLink greets the engine on nc in a version of the protocol and starts to read replies. It owns nc, also
// when it returns an error.
func newLink(ctx context.Context, nc net.Conn, version int) (*link, Hello, error) {
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	l := &link{out: writer{nc: nc, to: ipc.BriskWriter(nc)}, next: 1, pending: map[uint64]chan reply{}, done: make(chan struct{})}
	r := bufio.NewReaderSize(ipc.BriskReader(nc), 16<<10)
	hello, err := l.greet(r, version)
	if err != nil {
		err = errors.Join(err, context.Cause(ctx))
		return nil, Hello{}, errors.Join(fmt.Errorf("greeting the engine: %w", err), ignoreClosed(nc.Close()))
	}
	go l.read(r)
	return l, hello, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// greet exchanges hellos; nothing else is on the wire yet.
func (l *link) greet(r io.Reader, version int) (Hello, error) {
	head, err := encodeRequest(0, methodHello, helloParams{Version: version})
	if err != nil {
		return Hello{}, err
	}
	if err := l.out.frame(head, nil, writeStall); err != nil {
		return Hello{}, unreachable(err)
	}
	h, _, err := readHeader(r, maxReply)
	if err != nil {
		return Hello{}, unreachable(err)
	}
	if h.Error != nil {
		return Hello{}, h.Error
	}
	var hello Hello
	if err := json.Unmarshal(h.Result, &hello); err != nil {
		return Hello{}, fmt.Errorf("reading its hello: %w", err)
	}
	return hello, nil
}

func unreachable(err error) error {
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// read hands replies to whoever waits for them, until the link fails.
func (l *link) read(r *bufio.Reader) {
	defer close(l.done)
	for {
		h, body, err := readHeader(r, maxReply)
		if err != nil {
			l.fail(err)
			return
		}
		l.mu.Lock()
		ch := l.pending[h.ID]
		delete(l.pending, h.ID)
		l.mu.Unlock()
		if ch != nil { // else the caller has given up
			ch <- reply{h, body}
			if r.Buffered() == 0 {
				runtime.Gosched() // whoever waited goes first: nothing more is there to be read
			}
		}
	}
}

// fail ends the link and every call in flight.
func (l *link) fail(err error) {
	_ = l.out.nc.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = unreachable(err)
	}
	for _, ch := range l.pending {
		close(ch)
	}
	l.pending = nil
}

// failed returns why the link failed, nil while it has not.
func (l *link) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// close ends the link and waits for its reader.
func (l *link) close() {
	l.fail(os.ErrClosed)
	<-l.done
}

// call sends one request and waits for its one reply. If ctx ends first, late gets
// the reply of a request that was carried out all the same; nil drops it.
func (l *link) call(ctx context.Context, encode func(id uint64) ([]byte, error), body []byte, late func(reply)) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, context.Cause(ctx)
	}
	ch := make(chan reply, 1)
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return reply{}, l.err
	}
	id := l.next
	l.next++
	l.pending[id] = ch
	l.mu.Unlock()

	head, err := encode(id)
	if err != nil {
		l.forget(id)
		return reply{}, err
	}
	if len(head) > maxHeader || len(body) > maxBody {
		l.forget(id)
		return reply{}, Errorf(CodeTooLarge, "the request has %d and %d bytes; at most %d and %d fit", len(head), len(body), maxHeader, maxBody)
	}
	if err := l.out.frame(head, body, writeStall); err != nil {
		l.fail(err)
		return reply{}, l.failed()
	}
	select {
	case r, ok := <-ch:
		if !ok {
			return reply{}, l.failed()
		}
		if r.header.Error != nil {
			return reply{}, r.header.Error
		}
		return r, nil
	case <-ctx.Done():
		if late == nil {
			l.forget(id)
		} else {
			go func() { // ends with the reply, which the engine owes, or with the link
				if r, ok := <-ch; ok && r.header.Error == nil {
					late(r)
				}
			}()
		}
		l.cancel(id)
		return reply{}, context.Cause(ctx)
	}
}

func (l *link) forget(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, id)
}

// cancel tells the engine that nobody waits for id any more.
func (l *link) cancel(id uint64) {
	head, err := json.Marshal(header{ID: id, Method: methodCancel})
	if err == nil {
		err = l.out.frame(head, nil, writeStall)
	}
	if err != nil {
		l.fail(err)
	}
}

// encodeRequest encodes the header of a request.
func encodeRequest(id uint64, method string, params any) ([]byte, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", method, err)
	}
	return json.Marshal(header{ID: id, Method: method, Params: raw})
}
