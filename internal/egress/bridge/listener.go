package bridge

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Listener accepts the connections of one box wherever they come in: at the egress socket,
// to which a bridge in the box brings them, and at sockets of the box that were handed out.
// Each connection begins with its [Preamble], whichever it is, so that who accepts need not
// know. It does not bound their number: that is for who accepts.
type Listener struct {
	way   net.Listener
	conns chan accepted
	done  chan struct{}
	once  sync.Once
	all   sync.WaitGroup

	mu   sync.Mutex
	open []io.Closer
}

type accepted struct {
	conn net.Conn
	err  error
}

var errClosed = net.ErrClosed

// NewListener takes what comes to way, the egress socket, which it closes.
func NewListener(way net.Listener) *Listener {
	l := &Listener{way: way, conns: make(chan accepted), done: make(chan struct{})}
	l.add(way, "")
	return l
}

// Take also takes what comes to sockets of the box, which it closes. After Close it is
// net.ErrClosed.
func (l *Listener) Take(s Sockets) error {
	select {
	case <-l.done:
		return errors.Join(errClosed, s.Close())
	default:
	}
	for kind, listeners := range map[Kind][]net.Listener{KindProxy: s.Proxy, KindResolver: s.Resolver, KindDirect: s.Direct} {
		for _, in := range listeners {
			l.add(in, kind)
		}
	}
	for _, p := range s.Packets {
		if !l.keep(p) {
			continue
		}
		l.all.Go(func() { l.datagrams(p) })
	}
	return nil
}

// keep has c closed with l; false, and closed, if that is already.
func (l *Listener) keep(c io.Closer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		_ = c.Close()
		return false
	default:
	}
	l.open = append(l.open, c)
	return true
}

// add accepts from one socket. Without a kind, connections say it themselves.
func (l *Listener) add(in net.Listener, kind Kind) {
	if !l.keep(in) {
		return
	}
	l.all.Go(func() {
		for {
			c, err := in.Accept()
			if err != nil && !errors.Is(err, net.ErrClosed) && kind != "" {
				// Descriptors or memory are short: what is there may end.
				select {
				case <-l.done:
					return
				case <-time.After(acceptPause):
				}
				continue
			}
			if err == nil && kind != "" {
				c, err = said(c, kind)
				if err != nil {
					continue
				}
			}
			if !l.give(accepted{c, err}) || err != nil {
				return
			}
		}
	})
}

// give hands a connection to who accepts; false, and it is closed, if nobody does any more.
func (l *Listener) give(a accepted) bool {
	select {
	case l.conns <- a:
		return true
	case <-l.done:
		if a.conn != nil {
			_ = a.conn.Close()
		}
		return false
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.conns:
		return a.conn, a.err
	case <-l.done:
		return nil, errClosed
	}
}

// Close implements net.Listener. It returns when nothing accepts any more; connections stay.
func (l *Listener) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		close(l.done)
		for _, c := range l.open {
			_ = c.Close()
		}
		l.mu.Unlock()
	})
	l.all.Wait()
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.way.Addr() }

// datagrams answers messages of the resolver that come to p, each as a connection.
func (l *Listener) datagrams(p net.PacketConn) {
	s := &server{
		slots: make(chan struct{}, maxQuestions), open: map[io.Closer]bool{},
		o: Options{Dial: l.ask},
	}
	ctx, cancel := contextOf(l.done)
	defer cancel()
	s.ctx = ctx
	_ = s.datagrams(p) // it ends with l
	s.shut()
	s.all.Wait()
}

// maxQuestions is how many messages of the resolver that came in datagrams are answered at
// once.
const maxQuestions = 256

// A told is a connection of the box that begins with its preamble.
type told struct {
	*net.TCPConn
	line   []byte
	direct bool
	silent atomic.Bool // nothing was said to the box
}

func said(c net.Conn, kind Kind) (net.Conn, error) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil, closing(c, errors.New("this is no connection of TCP"))
	}
	line, err := Preamble{Kind: kind, Dst: destination(t)}.Line()
	if err != nil {
		return nil, closing(c, err)
	}
	s := &told{TCPConn: t, line: line, direct: kind == KindDirect}
	s.silent.Store(true)
	return s, nil
}

// Read gives the preamble first.
func (t *told) Read(p []byte) (int, error) {
	if len(t.line) > 0 {
		n := copy(p, t.line)
		t.line = t.line[n:]
		return n, nil
	}
	return t.TCPConn.Read(p)
}

// WriteTo implements io.WriterTo, for who copies.
func (t *told) WriteTo(w io.Writer) (n int64, err error) {
	if len(t.line) > 0 {
		first, err := w.Write(t.line)
		if t.line = t.line[first:]; err != nil {
			return int64(first), err
		}
		n = int64(first)
	}
	more, err := t.TCPConn.WriteTo(w)
	return n + more, err
}

func (t *told) Write(p []byte) (int, error) {
	t.silent.Store(false)
	return t.TCPConn.Write(p)
}

// ReadFrom implements io.ReaderFrom, for who copies.
func (t *told) ReadFrom(r io.Reader) (int64, error) {
	n, err := t.TCPConn.ReadFrom(r)
	if n > 0 {
		t.silent.Store(false)
	}
	return n, err
}

// CloseWrite ends what is said to the box: if nothing was, to a straight connection, that is
// a refusal (B2).
func (t *told) CloseWrite() error {
	if t.direct && t.silent.Load() {
		return t.SetLinger(0)
	}
	return t.TCPConn.CloseWrite()
}

// Close cuts off a straight connection that was refused.
func (t *told) Close() error {
	if t.direct && t.silent.Load() {
		_ = t.SetLinger(0) // what fails is closed all the same
	}
	return t.TCPConn.Close()
}
