package mediator

import (
	"sync"
	"time"
)

// settled is how long after a request a server may still speak about it.
const settled = 5 * time.Second

// Turns notes whose requests a server had lately. The zero value is ready.
type turns struct {
	mu     sync.Mutex
	last   any       // who had the newest request, or the one that ended last
	at     time.Time // when that was
	others time.Time // when anybody else had one
}

// took notes that who has a request under way now.
func (t *turns) took(who any, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != who {
		t.last, t.others = who, t.at
	}
	t.at = now
}

// unsure reports whether what is said now could be about a request of anybody but who.
func (t *turns) unsure(who any, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	other := t.at
	if t.last == who {
		other = t.others
	}
	return !other.IsZero() && now.Sub(other) < settled
}

// client is whom a question of the server is for: the connection of a session, or, as
// requests that stand alone have each their own, all that the transport knows by one name.
func (c *call) client() any {
	if c.passes() {
		return c.f.who
	}
	return c.f
}

// serves notes that c is under way at the server.
func (s *server) serves(c *call) {
	now := time.Now()
	s.spoken.took(c.connection(), now)
	s.asked.took(c.client(), now)
}
