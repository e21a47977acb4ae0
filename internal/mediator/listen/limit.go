package listen

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// A limited is a listener whose connections begin as strangers. One becomes known with
// its first good request. Of strangers there are only so many: beyond that, the one that
// came first gives way, so that they take no place of who is known, and nobody waits in
// the queue of the kernel behind them.
type limited struct {
	net.Listener
	most      int           // known ones
	strange   int           // strangers
	patience  time.Duration // until a stranger gives way in any case
	mu        sync.Mutex
	known     int
	strangers list.List // of *counted, in the order in which they came
}

func limit(l net.Listener, most, strange int, patience time.Duration) *limited {
	return &limited{Listener: l, most: most, strange: strange, patience: patience}
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &counted{Conn: conn, l: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.place = l.strangers.PushBack(c)
	c.timer = time.AfterFunc(l.patience, c.giveWay)
	if l.strangers.Len() > l.strange {
		l.strangers.Front().Value.(*counted).drop()
	}
	return c, nil
}

// A counted is a connection that is counted, as a stranger or as known.
type counted struct {
	net.Conn
	l     *limited
	timer *time.Timer // of a stranger

	// Guarded by l.mu.
	place *list.Element // among the strangers, nil if it is none
	known bool
}

// admit makes a stranger known, and reports whether the connection is.
func (c *counted) admit() bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.place != nil && c.l.known < c.l.most {
		c.leave()
		c.l.known++
		c.known = true
	}
	return c.known
}

// giveWay closes the connection of a stranger.
func (c *counted) giveWay() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.place != nil {
		c.drop()
	}
}

// drop is giveWay for who holds l.mu.
func (c *counted) drop() {
	c.leave()
	conn := c.Conn
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secured.NetConn() // TLS would wait for the other end to take in a goodbye
	}
	_ = conn.Close() // whoever serves it sees that
}

// leave takes a stranger out of the count. l.mu is held.
func (c *counted) leave() {
	c.timer.Stop()
	c.l.strangers.Remove(c.place)
	c.place = nil
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.l.mu.Lock()
	if c.place != nil {
		c.leave()
	}
	if c.known {
		c.known = false
		c.l.known--
	}
	c.l.mu.Unlock()
	return c.Conn.Close()
}
