package mediator

import (
	"crypto/rand"
	"time"

	"ringfence/internal/act"
)

// Bounds of results that wait for their client.
const (
	maxPassed     = 1024 // of all clients
	maxPassedEach = 128  // of those that a transport knows by one name
)

// keepPassed keeps what was granted until the client comes back, and returns its handle. The
// oldest of the same client gives way where there is no room.
func (m *Mediator) keepPassed(p *passed) (string, error) {
	handle := rand.Text()
	m.mu.Lock()
	each, oldest := 0, ""
	for h, o := range m.passed {
		if o.who != p.who {
			continue
		}
		if each++; oldest == "" || o.since.Before(m.passed[oldest].since) {
			oldest = h
		}
	}
	full := len(m.passed) >= maxPassed
	if full && each == 0 {
		m.mu.Unlock()
		return "", errSuspended
	}
	var gone *passed
	if full || each >= maxPassedEach {
		gone = m.passed[oldest]
		delete(m.passed, oldest)
		gone.timer.Stop()
	}
	if m.passed == nil {
		m.passed = map[string]*passed{}
	}
	p.since = time.Now()
	m.passed[handle] = p
	p.timer = time.AfterFunc(suspendFor, func() { m.forgetPassed(handle) })
	m.mu.Unlock()
	if gone != nil {
		m.drop(gone, errGaveWay)
	}
	return handle, nil
}

// takePassed returns what was granted to who under a handle, once; nil if nothing was.
func (m *Mediator) takePassed(handle, who string) *passed {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.passed[handle]
	if p == nil || p.who != who {
		return nil
	}
	delete(m.passed, handle)
	p.timer.Stop()
	return p
}

// forgetPassed ends what a client did not come back for; with "" all of it.
func (m *Mediator) forgetPassed(handle string) {
	m.mu.Lock()
	var ended []*passed
	for h, p := range m.passed {
		if h == handle || handle == "" {
			delete(m.passed, h)
			p.timer.Stop()
			ended = append(ended, p)
		}
	}
	m.mu.Unlock()
	for _, p := range ended {
		m.drop(p, errExpired)
	}
}

// drop finishes what of p was not answered.
func (m *Mediator) drop(p *passed, why error) {
	for key, t := range p.tickets {
		delete(p.tickets, key)
		_, _ = m.finish(m.ctx, t, act.Outcome{Error: why.Error()}) // it is logged
	}
}
