package daemon

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/statistics"
	"ringfence/internal/egress/provider"
)

// maxInferring bounds the requests of one session that are remembered: those beyond are
// not counted.
const maxInferring = 4096

// inferring remembers which model each open ticket of a session asks.
type inferring struct {
	mu     sync.Mutex
	models map[string]string // by ticket
}

func (i *inferring) put(ticket, model string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.models == nil {
		i.models = map[string]string{}
	}
	if len(i.models) < maxInferring {
		i.models[ticket] = model
	}
}

// take forgets the ticket; "" if it asks no model.
func (i *inferring) take(ticket string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	model := i.models[ticket]
	delete(i.models, ticket)
	return model
}

// noteAsked counts a request to a model that was denied, and remembers one that was allowed.
func (e *Engine) noteAsked(r act.Request, t act.Ticket) {
	if e.counts == nil || r.Verb != act.VerbEffect {
		return
	}
	model := ""
	for _, f := range r.Direct {
		if f.Kind == act.Infer {
			model = f.Resource.Text
		}
	}
	run := e.running(r.Session)
	switch {
	case model == "" || run == nil:
	case t.Verdict == act.Allow:
		run.inferring.put(t.ID, model)
	default:
		e.count(run, statistics.Entry{Model: model, End: statistics.Denied})
	}
}

// noteAnswered counts a request to a model that is over. Of one that only counted tokens or
// listed models there is nothing to count.
func (e *Engine) noteAnswered(session, ticket string, o act.Outcome) {
	run := e.running(session)
	if e.counts == nil || run == nil {
		return
	}
	model := run.inferring.take(ticket)
	if model == "" {
		return
	}
	var passed struct { // as package egress hands it in
		Status int             `json:"status"`
		Millis int64           `json:"ms"`
		Usage  *provider.Usage `json:"usage"`
	}
	if err := json.Unmarshal(o.Body, &passed); err != nil {
		passed.Usage = nil // nothing is known of it but that it is over
	}
	n := statistics.Entry{Model: model, Took: time.Duration(passed.Millis) * time.Millisecond}
	switch u := passed.Usage; {
	case u != nil:
		n.End = statistics.Answered
		if o.Error != "" {
			n.End = statistics.Cut
		}
		n.Usage = statistics.Usage{
			Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning, Estimated: u.Estimated,
		}
	case o.Error == "" && passed.Status/100 == 2:
		return
	default:
		n.End = statistics.Failed
	}
	e.count(run, n)
}

// count hands n on, with whose it is and what it cost.
func (e *Engine) count(r *run, n statistics.Entry) {
	s := r.gate.Session
	n.Time, n.Session = e.o.Now(), s.ID
	n.Persona, n.Agent, _ = strings.Cut(s.Principal, "/")
	u := n.Usage
	cost, known := e.conf.Prices.Cost(n.Model, provider.Usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite})
	if n.MicroUSD = cost; !known {
		n.MicroUSD = -1
	}
	e.counts.Note(n)
}

// running is the open session with that id, nil if there is none.
func (e *Engine) running(session string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[session]
}
