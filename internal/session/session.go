// Package session is one run of an agent: who it is, where it works, what it
// has touched, and which of its requests are still under way.
//
// It is not a decision and not a record: the gate decides, the ledger records,
// and both keep here what the next decision must know. It survives the engine
// as a [File] and as the entries of the ledger, from which labels are rebuilt.
//
// Invariants:
//
//	S1  A label is never taken away while the session lives.
//	S2  A ticket is opened once and taken once; what is taken is gone, so no
//	    outcome is recorded twice.
//	S3  After End nothing can be opened, so nothing more can run.
//	S4  What a person allowed for the session ends with it, and with the engine.
//
// Lock order: a Session has one lock and calls nothing while it holds it.
package session

import (
	"errors"
	"slices"
	"sync"

	"ringfence/internal/act"
)

// ErrEnded is returned for a session that has ended. The caller denies.
var ErrEnded = errors.New("session has ended")

// A Session is the state of one run. Its methods are safe for concurrent use.
type Session struct {
	ID        string // public; the name of the session in the ledger
	Principal string // "persona/agent"
	Workspace string // absolute real path
	Home      string // absolute real path of the person's home

	mu     sync.Mutex
	ended  bool
	labels []act.Label
	open   map[string]Open
	grants []string
	scopes []Scope
}

// An Open is a ticket that allowed and whose outcome has not come in.
type Open struct {
	Ticket act.Ticket
	Infers bool        // it asks a model, and what it used is still to come
	Reads  []act.Label // labels that releasing its result gives, from the annotation
	Box    *Box        // of a call that starts a command in a box which is decided on by itself
}

// A Box is what was decided, with a call, about the box that it will start.
type Box struct {
	Effects  []act.Effect // what a person was shown, or would have been
	Approved []string     // the clauses that were approved for them
}

// Add gives the session labels and returns those it did not have before, in
// the order given.
func (s *Session) Add(labels ...act.Label) []act.Label {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh []act.Label
	for _, l := range labels {
		if !slices.Contains(s.labels, l) {
			s.labels = append(s.labels, l)
			fresh = append(fresh, l)
		}
	}
	return fresh
}

// Labels returns what the session has touched so far.
func (s *Session) Labels() []act.Label {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.labels)
}

// Open notes that o was allowed and may now happen. It returns ErrEnded when
// the session has ended, and then it must not happen.
func (s *Session) Open(o Open) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrEnded
	}
	if s.open == nil {
		s.open = map[string]Open{}
	}
	s.open[o.Ticket.ID] = o
	return nil
}

// maxOpen bounds the open tickets of a session. Clients finish each they get, so
// only one that does not ever has so many.
const maxOpen = 4096

// Crowded reports whether so many tickets are open that no more may be.
func (s *Session) Crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open) >= maxOpen
}

// Return puts back what was taken, because its outcome could not be recorded.
func (s *Session) Return(o Open) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[o.Ticket.ID] = o
}

// Take removes and returns the open ticket with that id; false if there is
// none, because it never allowed or was taken before.
func (s *Session) Take(id string) (Open, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.open[id]
	delete(s.open, id)
	return o, ok
}

// TakeBox removes and returns what was decided about the box of the open ticket with that
// id; nil if there is none, because the call starts none or has done so.
func (s *Session) TakeBox(id string) *Box {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.open[id]
	if !ok || o.Box == nil {
		return nil
	}
	box := o.Box
	o.Box = nil
	s.open[id] = o
	return box
}

// UnderWay reports whether the ticket with that id allowed and has no outcome yet.
func (s *Session) UnderWay(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.open[id]
	return ok
}

// Drain takes every open ticket, oldest id first. It is for a client that is
// gone: what it left open is recorded as orphaned.
func (s *Session) Drain() []Open {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Open
	for _, o := range s.open {
		all = append(all, o)
	}
	clear(s.open)
	slices.SortFunc(all, func(a, b Open) int { return compareIDs(a.Ticket.ID, b.Ticket.ID) })
	return all
}

// End ends the session: nothing can be opened from now on. It reports whether
// this call ended it.
func (s *Session) End() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.ended
	s.ended = true
	return !was
}

// Ended reports whether the session has ended.
func (s *Session) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// compareIDs orders ticket ids ("session/seq") of one session by their number:
// of two decimal numbers without leading zeros the longer is the larger.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
