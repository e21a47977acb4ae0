package mediator

import (
	"fmt"
	"sync"
	"time"
)

// A meter counts what one server was used for within the last minute, by seconds.
type meter struct {
	quota Quota

	mu    sync.Mutex
	last  int64 // the second that was counted last
	calls [60]int
	bytes [60]int64
}

// pass forgets what is older than a minute. m.mu is held.
func (m *meter) pass(now time.Time) int {
	second := now.Unix()
	for i := int64(0); i < 60 && m.last < second; i++ {
		m.last = max(m.last+1, second-59)
		m.calls[m.last%60], m.bytes[m.last%60] = 0, 0
	}
	return int(m.last % 60)
}

// call counts a call, or says why there may be none now.
func (m *meter) call(now time.Time) error {
	if m.quota.Calls == 0 && m.quota.Bytes == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.pass(now)
	calls, bytes := 0, int64(0)
	for i := range 60 {
		calls += m.calls[i]
		bytes += m.bytes[i]
	}
	switch {
	case m.quota.Calls > 0 && calls >= m.quota.Calls:
		return fmt.Errorf(`its quota of %d calls in a minute is used up; call again later, or raise "quota" in its entry`, m.quota.Calls)
	case m.quota.Bytes > 0 && bytes >= m.quota.Bytes:
		return fmt.Errorf(`its quota of %d bytes in a minute is used up; call again later, or raise "quota" in its entry`, m.quota.Bytes)
	}
	m.calls[at]++
	return nil
}

// came counts bytes of the server.
func (m *meter) came(now time.Time, n int) {
	if m == nil || m.quota.Bytes == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes[m.pass(now)] += int64(n)
}
