package api

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// seats are the connections that there may be, shared among processes. No process has
// more than a quarter of them, and who has not said hello yet gives up his seat when there
// is no other: a process that only connects keeps nobody out.
type seats struct {
	most int

	mu     sync.Mutex
	taken  int
	byPID  map[int]int
	silent map[*seat]struct{} // without a hello
}

// A seat is the place of one connection.
type seat struct {
	of    *seats // nil for a connection that was not accepted here
	conn  net.Conn
	pid   int
	since time.Time
}

// take gives the process pid a seat for nc. The kernel does not know the numbers of
// processes in name spaces of others: those that have none share what all have.
func (s *seats) take(nc net.Conn, pid int) (*seat, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if share := max(s.most/4, 1); pid > 0 && s.byPID[pid] >= share {
		return nil, fmt.Errorf("too many connections of process %d: %d", pid, share)
	}
	if s.taken >= s.most && !s.evict() {
		return nil, fmt.Errorf("too many connections: %d", s.most)
	}
	t := &seat{of: s, conn: nc, pid: pid, since: time.Now()}
	s.taken++
	s.byPID[pid]++
	s.silent[t] = struct{}{}
	return t, nil
}

// evict ends the oldest connection without a hello. Its seat is free at once. The caller
// holds mu.
func (s *seats) evict() bool {
	var oldest *seat
	for t := range s.silent {
		if oldest == nil || t.since.Before(oldest.since) {
			oldest = t
		}
	}
	if oldest == nil {
		return false
	}
	_ = oldest.conn.Close() // which ends its reader
	s.free(oldest)
	return true
}

// free gives a seat back, once. The caller holds mu.
func (s *seats) free(t *seat) {
	if t.conn == nil {
		return
	}
	t.conn = nil
	delete(s.silent, t)
	s.taken--
	if s.byPID[t.pid]--; s.byPID[t.pid] == 0 {
		delete(s.byPID, t.pid)
	}
}

// greeted says that the connection has said hello: the seat is its own. It is false if
// the seat was given to another.
func (t *seat) greeted() bool {
	if t.of == nil {
		return true
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.of.silent, t)
	return t.conn != nil
}

// leave gives the seat back.
func (t *seat) leave() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.free(t)
}

// count returns how many are taken.
func (s *seats) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}
