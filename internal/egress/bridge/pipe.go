package bridge

import (
	"context"
	"io"
	"net"
)

// ask brings one message of the resolver to who accepts, as a connection in memory.
func (l *Listener) ask(ctx context.Context, p Preamble) (Conn, error) {
	line, err := p.Line()
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- accepted{conn: &piped{Conn: theirs, line: line}}:
		return &piped{Conn: ours}, nil
	case <-l.done:
		err = errClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = ours.Close()
	_ = theirs.Close()
	return nil, err
}

// A piped is one end of a connection in memory, both directions of which end together.
type piped struct {
	net.Conn
	line []byte
}

func (p *piped) Read(b []byte) (int, error) {
	if len(p.line) > 0 {
		n := copy(b, p.line)
		p.line = p.line[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// CloseWrite implements Conn.
func (p *piped) CloseWrite() error { return p.Close() }

var _ io.Reader = (*piped)(nil)

// contextOf returns a context that ends with done.
func contextOf(done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
