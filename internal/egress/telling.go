package egress

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act/weburl"
)

// A name that is looked up tells something to whoever answers for its domain. Where a
// policy allows every name beneath one, that would be a way out for any text. So the
// names of a box beneath one domain are few, and what they could hold is little: a name
// counts when it is looked up for the first time, and it counts for what stands before
// the last two labels.
const (
	tellFor   = 10 * time.Minute
	tellNames = 128 // names of one domain
	tellBytes = 512 // of labels that look like data
	tellMost  = 4096
	longLabel = 40 // bytes; longer than any that a person chose
	oddLabel  = 16 // bytes from which the mixture counts
	oddBits   = 3.5
)

// A telling counts the names of one box.
type telling struct {
	mu   sync.Mutex
	seen map[weburl.Host]time.Time // when it was first looked up
	of   map[string]*told
}

type told struct {
	since        time.Time
	names, bytes int
}

func newTelling() *telling {
	return &telling{seen: map[weburl.Host]time.Time{}, of: map[string]*told{}}
}

// A tellingError says that a name is not looked up, because it is one of too many.
type tellingError struct{ host, domain, why string }

func (e *tellingError) Error() string {
	return fmt.Sprintf("%s is not looked up: %s beneath %s within %v; name the hosts that are needed in the policy, or wait", e.host, e.why, e.domain, tellFor)
}

// look counts host, which is about to be looked up.
func (t *telling) look(host weburl.Host, now time.Time) error {
	if _, isAddr := host.Addr(); isAddr {
		return nil
	}
	labels := strings.Split(host.String(), ".")
	if len(labels) <= 2 {
		return nil
	}
	domain := strings.Join(labels[len(labels)-2:], ".")
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.seen[host]; ok && now.Sub(at) < tellFor {
		return nil
	}
	one := t.of[domain]
	if one == nil || now.Sub(one.since) > tellFor {
		t.forget(now)
		if len(t.of) >= tellMost {
			return &tellingError{host.String(), domain, "too many domains were asked about,"}
		}
		one = &told{since: now}
		t.of[domain] = one
	}
	if one.names >= tellNames {
		return &tellingError{host.String(), domain, fmt.Sprintf("%d names were looked up", one.names)}
	}
	data := 0
	for _, l := range labels[:len(labels)-2] {
		if looksLikeData(l) {
			data += len(l)
		}
	}
	if one.bytes+data > tellBytes {
		return &tellingError{host.String(), domain, "names that look like data were looked up"}
	}
	one.names++
	one.bytes += data
	t.seen[host] = now
	return nil
}

// forget drops what counts no more.
func (t *telling) forget(now time.Time) {
	for d, one := range t.of {
		if now.Sub(one.since) > tellFor {
			delete(t.of, d)
		}
	}
	for h, at := range t.seen {
		if now.Sub(at) > tellFor {
			delete(t.seen, h)
		}
	}
}

// looksLikeData reports whether nobody would call a host so: it is very long, or long and
// of a mixture (bits of Shannon for each byte) that words and numbers do not have.
func looksLikeData(label string) bool {
	if len(label) > longLabel {
		return true
	}
	if len(label) < oddLabel {
		return false
	}
	var counts [256]float64
	digits := false
	for i := range len(label) {
		counts[label[i]]++
		digits = digits || '0' <= label[i] && label[i] <= '9'
	}
	bits := 0.0
	for _, n := range counts {
		if n > 0 {
			p := n / float64(len(label))
			bits -= p * math.Log2(p)
		}
	}
	return bits >= oddBits && (digits || len(label) > 24)
}
