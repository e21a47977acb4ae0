package egress

import (
	"sync"

	"ringfence/internal/act"
)

// A tally is what the answers of models in one box used: of one budget, while several
// come in at once. The engine learns of each when it is over.
type tally struct {
	mu   sync.Mutex
	over act.Spent // by answers that are over
	live map[*metering]act.Spent
}

// begin returns what was used by answers that are over. A ticket that was decided after
// that has it taken off its budget already.
func (t *tally) begin() act.Spent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// note takes in what m used so far.
func (t *tally) note(m *metering, used act.Spent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = map[*metering]act.Spent{}
	}
	t.live[m] = used
}

// end takes in what m used in all.
func (t *tally) end(m *metering, used act.Spent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, m)
	t.over.Tokens += used.Tokens
	t.over.MicroUSD += used.MicroUSD
}

// others is what answers besides m used since begin returned since.
func (t *tally) others(m *metering, since act.Spent) (tokens, microUSD int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tokens, microUSD = t.over.Tokens-since.Tokens, t.over.MicroUSD-since.MicroUSD
	for other, used := range t.live {
		if other != m {
			tokens, microUSD = tokens+used.Tokens, microUSD+used.MicroUSD
		}
	}
	return tokens, microUSD
}
