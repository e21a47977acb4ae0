package mediator

import (
	"context"
	"slices"
	"sync"

	"ringfence/internal/act/strictjson"
)

// A meeting is what is known of the clients that have connected: what they may be
// asked by servers with sessions, to which it is declared once, when they are opened.
type meeting struct {
	once  sync.Once
	known chan struct{} // closed when the first client has said what it offers

	mu     sync.Mutex
	first  known             // the era of the first client
	offers map[string][]byte // by capability, what the first client that had it said of it
}

func newMeeting() *meeting { return &meeting{known: make(chan struct{}), offers: map[string][]byte{}} }

// meet takes in the era of a client, and what it offers, the object of its capabilities
// or nil. Servers to which less was declared are opened again, when they are idle.
func (m *Mediator) meet(era known, capabilities []byte) {
	if len(m.o.MayAsk) == 0 {
		return
	}
	news := false
	m.meeting.mu.Lock()
	if m.meeting.first == unknown {
		m.meeting.first = era
	}
	for _, method := range m.o.MayAsk {
		name := capabilityFor[method]
		if name == "" || capabilities == nil || m.meeting.offers[name] != nil {
			continue
		}
		if v, ok, err := strictjson.Find(capabilities, "/"+name); err == nil && ok && v.Kind == strictjson.Object {
			m.meeting.offers[name] = slices.Clone(v.Raw)
			news = true
		}
	}
	m.meeting.mu.Unlock()
	m.meeting.once.Do(func() { close(m.meeting.known) })
	if news {
		for _, s := range m.servers {
			s.undeclared()
		}
	}
}

// met waits until a client has said what it offers, if that matters to servers.
func (m *Mediator) met(ctx context.Context) error {
	if len(m.o.MayAsk) == 0 {
		return nil
	}
	select {
	case <-m.meeting.known:
		return nil
	case <-ctx.Done():
		return errStopped
	}
}

// prefers is the era in which servers that have both are spoken to: that of the first
// client, so that what they ask need not be translated.
func (m *Mediator) prefers() known {
	m.meeting.mu.Lock()
	defer m.meeting.mu.Unlock()
	return m.meeting.first
}

// declares is what may be declared to a server, as the object of capabilities.
func (m *Mediator) declares() []byte {
	m.meeting.mu.Lock()
	defer m.meeting.mu.Unlock()
	b := []byte{'{'}
	for _, method := range asks { // in an order that stays
		offer := m.meeting.offers[capabilityFor[method]]
		if offer == nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, quote(capabilityFor[method])...), ':'), offer...)
	}
	return append(b, '}')
}

// undeclared notes that more could be declared to the server than was.
func (s *server) undeclared() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = s.link != nil && s.era == sessioned
}

// outlived reports whether the link should be opened again, and can be: no request of
// a client is under way. s.mu is held.
func (s *server) outlived() bool {
	if !s.stale {
		return false
	}
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	for _, fl := range s.link.pending {
		if fl.asker != nil {
			return false
		}
	}
	return true
}
