package container

import (
	"strings"
	"sync"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/hold"
)

// refusals are what the supervisor of a box has said no to. Lock order: mu is a leaf.
type refusals struct {
	mu   sync.Mutex
	list []sandbox.Denial
}

// note keeps a refusal, or how often there was one that is known.
func (r *refusals) note(n notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := string(n.Path)
	for i, known := range r.list {
		if known.Op == n.Op && known.Object == path && known.Rule == n.Rule {
			r.list[i].Count = n.Count
			return
		}
	}
	if len(r.list) >= sandbox.MaxDenials {
		r.list[len(r.list)-1].Count += n.Count
		return
	}
	fix := ""
	if strings.HasPrefix(n.Rule, hold.RuleLater) && n.Op != sandbox.OpNotHeld {
		fix = "--review, which keeps it until you apply it"
	}
	r.list = append(r.list, sandbox.Denial{Op: n.Op, Object: path, Rule: n.Rule, Fix: fix, Observed: true, Count: n.Count})
}

func (r *refusals) all() []sandbox.Denial {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]sandbox.Denial(nil), r.list...)
}

// A notice is one refusal of the supervisor: see [hold.Denial].
type notice struct {
	Op    string
	Path  []byte
	Rule  string
	Count int
}
