package hold

import (
	"math/bits"
	"sync"
)

// A Denial is one thing that was refused.
type Denial struct {
	Op    string // see [Op.String]
	Path  string
	Rule  string
	Count int // how often so far, at least 1
}

// maxDenials is how many different denials are told apart. Further ones are
// counted together, under no path.
const maxDenials = 256

// denials counts what is refused. It tells about a denial when it is new, and again
// each time it has become twice as many: a flood is told about a few times.
type denials struct {
	mu   sync.Mutex
	tell func(Denial)
	seen map[Denial]int // with a Count of 0
}

func (d *denials) add(op Op, path, rule string) {
	n := Denial{Op: op.String(), Path: path, Rule: rule}
	d.mu.Lock()
	if d.seen == nil {
		d.seen = map[Denial]int{}
	}
	if _, known := d.seen[n]; !known && len(d.seen) >= maxDenials {
		n = Denial{Op: "more", Rule: "further files are held"}
	}
	d.seen[n]++
	n.Count = d.seen[n]
	d.mu.Unlock()
	if d.tell != nil && bits.OnesCount(uint(n.Count)) == 1 {
		d.tell(n)
	}
}
