package listen

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"ringfence/internal/mediator"
)

// Bounds of what a stream keeps.
const (
	maxWaiting   = 256      // lines that wait to be read
	maxKept      = 128      // events that are kept for a client that comes back
	maxKeptBytes = 1 << 20  // bytes of them; an answer that is longer is kept until it is sent once
	maxUnread    = 80 << 20 // bytes that wait for a client that reads; the longest answer fits
	maxLeft      = 4 << 20  // bytes that wait for a client that is to come back
)

// An event is one line of a stream.
type event struct {
	line    []byte
	status  int  // of HTTP, if an answer is all there is
	last    bool // it is the answer
	sent    bool
	written func()
}

func (e *event) release() {
	if e.written != nil {
		e.written()
		e.written = nil
	}
}

// A stream is what goes to the client in answer to one request, or unasked. It is
// written to one connection at a time, and outlives connections if its session does.
type stream struct {
	s  *session // nil if it ends with its connection
	id int

	mu     sync.Mutex
	news   chan struct{} // has room; a value says that something changed
	room   chan struct{} // the same, for those who wait for room
	events []*event
	first  int // number of events[0]; events count from 1
	bytes  int // of events
	over   bool
	taken  bool          // a connection is writing it
	stop   func()        // ends that connection
	freed  chan struct{} // has room; a value says that it did
}

var _ mediator.Stream = (*stream)(nil)

func newStream(s *session, id int) *stream {
	return &stream{s: s, id: id, first: 1, news: make(chan struct{}, 1), room: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

var errOver = errors.New("the stream has ended")

// Answer implements [mediator.Stream].
func (s *stream) Answer(ctx context.Context, a mediator.Answer) error {
	return s.add(ctx, &event{line: flat(a.Line), status: s.statusOf(a), last: true, written: a.Written})
}

// statusOf is the status of an answer that is all there is. Sessions have no other.
func (s *stream) statusOf(a mediator.Answer) int {
	switch {
	case s.s != nil:
		return http.StatusOK
	case a.Malformed:
		return http.StatusBadRequest
	}
	if status := statuses[a.Code]; status != 0 {
		return status
	}
	return http.StatusOK
}

// Ask implements [mediator.Stream].
func (s *stream) Ask(ctx context.Context, line []byte) error {
	return s.add(ctx, &event{line: flat(line)})
}

// Tell implements [mediator.Stream].
func (s *stream) Tell(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over && s.hasRoom(len(line)) {
		s.put(&event{line: flat(line)})
	}
}

// add waits for room.
func (s *stream) add(ctx context.Context, e *event) error {
	for {
		s.mu.Lock()
		switch {
		case s.over:
			s.mu.Unlock()
			return errOver
		case s.hasRoom(len(e.line)):
			s.put(e)
			s.mu.Unlock()
			poke(s.room) // perhaps there is room for another one who waits
			return nil
		case !s.taken && e.last:
			s.close() // more than is kept for a client that has gone
			s.mu.Unlock()
			return errOver
		}
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasRoom makes room by forgetting what was sent, and reports whether there is enough.
// s.mu is held.
func (s *stream) hasRoom(n int) bool {
	for len(s.events) > 0 && s.events[0].sent && (len(s.events) >= maxKept || s.bytes+n > maxKeptBytes || s.s == nil) {
		s.drop()
	}
	if !s.taken {
		return len(s.events) < maxWaiting && s.bytes+n <= maxLeft
	}
	return len(s.events) < maxWaiting && (len(s.events) == 0 || s.bytes+n <= maxUnread)
}

// drop forgets the oldest event. s.mu is held.
func (s *stream) drop() {
	s.events[0].release()
	s.bytes -= len(s.events[0].line)
	s.events = s.events[1:]
	s.first++
}

// put appends an event. s.mu is held.
func (s *stream) put(e *event) {
	s.events = append(s.events, e)
	s.bytes += len(e.line)
	s.over = s.over || e.last
	poke(s.news)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take reserves the stream for one connection, whose end is stop. If another has it,
// and over is set, that one ends first: its client has come back before we knew that it
// had gone.
func (s *stream) take(ctx context.Context, stop func(), over bool) bool {
	for {
		s.mu.Lock()
		if !s.taken {
			s.taken, s.stop = true, stop
			s.mu.Unlock()
			return true
		}
		other := s.stop
		s.mu.Unlock()
		if !over {
			return false
		}
		other()
		select {
		case <-s.freed:
		case <-ctx.Done():
			return false
		}
	}
}

// giveBack ends the writing of one connection. What is too much for a client that is to
// come back is forgotten, and so is everything if it has no event to come back with.
func (s *stream) giveBack(opened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken, s.stop = false, nil
	poke(s.freed)
	if !opened || s.id != 0 && s.bytes > maxLeft {
		s.close()
	}
}

// A cursor is the number of the last event that the client has; 0 is none.
type cursor struct{ seen int }

// next returns the first event behind c and moves c there, nil if there is none yet.
// over says that there will be none.
func (s *stream) next(c *cursor) (e *event, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.seen = max(c.seen, s.first-1)
	i := c.seen + 1 - s.first
	if i >= len(s.events) {
		return nil, s.over
	}
	c.seen++
	return s.events[i], false
}

// wrote notes that an event was written, and forgets it if it is not kept.
func (s *stream) wrote(e *event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.sent = true
	e.release()
	for len(s.events) > 0 && s.events[0].sent && (s.s == nil || s.bytes > maxKeptBytes || len(s.events) > maxKept) {
		s.drop()
	}
	poke(s.room)
}

// end lets nothing more in and forgets everything.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

// close is end for who holds s.mu.
func (s *stream) close() {
	s.over = true
	for len(s.events) > 0 {
		s.drop()
	}
	poke(s.news)
	poke(s.room)
}

// left reports whether no connection is writing the stream.
func (s *stream) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.taken
}

// empty reports whether there is nothing that a client could come back for.
func (s *stream) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over && len(s.events) == 0
}
