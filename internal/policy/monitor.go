package policy

import (
	"slices"
	"sync"
	"time"
)

// Monitors count what the limited clauses of one policy have allowed: one for
// each [Policy.Hash], shared by all sessions under that policy. An effect counts
// from the moment it is allowed, so what is in flight is included. The state is
// what the record says was allowed, and is rebuilt by replaying it.
//
// A clock that is set back makes counts higher, never lower. Safe for concurrent
// use.
type Monitors struct {
	limits map[string]Limit

	mu    sync.Mutex
	rings map[monitorKey]*ring // guarded by mu
}

// A monitorKey says whose effects count together. The session is empty where all
// sessions of the principal do.
type monitorKey struct {
	clause, principal, session string
}

// A ring holds the times of the last events, oldest at head. It grows up to the
// limit of its clause, which is all that can matter.
type ring struct {
	times []int64 // Unix nanoseconds, not falling from head on
	head  int
	n     int
}

// NewMonitors returns monitors for the limits of a policy ([Policy.Limits]), with
// nothing counted.
func NewMonitors(limits map[string]Limit) *Monitors {
	return &Monitors{limits: limits, rings: map[monitorKey]*ring{}}
}

func (m *Monitors) key(clause, principal, session string) monitorKey {
	if l := m.limits[clause]; !l.PerSession && l.Window != 0 {
		session = ""
	}
	return monitorKey{clause, principal, session}
}

// Counts returns the function for [Query.Counts]: how many effects a clause has
// allowed in the window that ends now, at most its limit. A clause without a
// limit has allowed none.
func (m *Monitors) Counts(principal, session string, now time.Time) func(clause string) int64 {
	return func(clause string) int64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.count(m.key(clause, principal, session), now)
	}
}

func (m *Monitors) count(k monitorKey, now time.Time) int64 {
	r := m.rings[k]
	if r == nil {
		return 0
	}
	if w := m.limits[k.clause].Window; w != 0 {
		r.drop(now.Add(-w).UnixNano())
	}
	return int64(r.n)
}

// Take counts one effect for each of limited ([Decision.Limited], a clause as
// often as effects count for it) if every limit has room for its own, and reports
// whether it did. Otherwise another call was faster: nothing is counted, and the
// request must be decided again.
func (m *Monitors) Take(limited []string, principal, session string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := map[string]int64{}
	for _, c := range limited {
		wanted[c]++
	}
	for c, n := range wanted {
		if m.count(m.key(c, principal, session), now)+n > m.limits[c].Count {
			return false
		}
	}
	for _, c := range limited {
		m.add(m.key(c, principal, session), now)
	}
	return true
}

// Replay counts one effect that the record says was allowed, in the order of the
// record. Clauses without a limit are ignored.
func (m *Monitors) Replay(clause, principal, session string, at time.Time) {
	if m.limits[clause].Count == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(m.key(clause, principal, session), at)
}

// End forgets what counted in one session only.
func (m *Monitors) End(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.rings {
		if session != "" && k.session == session {
			delete(m.rings, k)
		}
	}
}

func (m *Monitors) add(k monitorKey, at time.Time) {
	r := m.rings[k]
	if r == nil {
		r = &ring{}
		m.rings[k] = r
	}
	r.push(at.UnixNano(), int(m.limits[k.clause].Count))
}

// drop forgets the events at or before t.
func (r *ring) drop(t int64) {
	for r.n > 0 && r.times[r.head] <= t {
		r.head = (r.head + 1) % len(r.times)
		r.n--
	}
}

// push adds an event at t, or at the time of the last one if that is later. Of
// more than most events the oldest is forgotten.
func (r *ring) push(t int64, most int) {
	if r.n == len(r.times) {
		if r.n < most {
			r.grow(most)
		} else {
			r.head = (r.head + 1) % len(r.times)
			r.n--
		}
	}
	if r.n > 0 {
		t = max(t, r.times[(r.head+r.n-1)%len(r.times)])
	}
	r.times[(r.head+r.n)%len(r.times)] = t
	r.n++
}

func (r *ring) grow(most int) {
	times := slices.Concat(r.times[r.head:], r.times[:r.head])
	r.times = append(times, make([]int64, min(most, max(8, 2*len(times)))-len(times))...)
	r.head = 0
}
