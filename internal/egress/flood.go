package egress

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act"
)

// What is denied again and again is not decided each time: after floodAfter equal denials
// within floodFor, further ones are counted, and the number is decided on, and so on
// record, when floodFor is over. What a person is asked about counts too. Of hosts that are
// quiet all but the first are counted, and for longer.
const (
	floodAfter = 8
	floodFor   = 5 * time.Second
	quietFor   = 10 * time.Minute
	maxFloods  = 1024 // kinds of denials that are counted at once
)

// floods counts equal denials of one box.
type floods struct {
	mu  sync.Mutex
	all map[string]*flood
}

// A flood is one kind of denial.
type flood struct {
	denial  *DeniedError
	q       question
	began   time.Time
	seen    int // decided
	counted int // not decided
}

// lasts is how long equal denials are counted before their number is on record.
func (f *flood) lasts() time.Duration {
	if f.q.facts.Quiet {
		return quietFor
	}
	return floodFor
}

// key is what makes two questions equal.
func (q question) key() string {
	var b strings.Builder
	for _, e := range q.effects {
		b.WriteString(string(e.Kind) + " " + e.Resource.Text + "\n")
	}
	b.WriteString(q.facts.Method + " " + string(q.facts.Via) + " " + q.facts.Misplaced + " " + q.facts.Message + " " + q.facts.Direction)
	return b.String()
}

// denied returns the denial of a question that is asked too often, and counts it.
func (f *floods) denied(key string, now time.Time) *DeniedError {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.all[key]
	if one == nil || one.seen < floodAfter && !one.q.facts.Quiet || now.Sub(one.began) > one.lasts() {
		return nil
	}
	one.counted++
	return one.denial
}

// note takes in a denial that was decided. Where nothing was decided there
// is no flood.
func (f *floods) note(key string, d *DeniedError, q question, now time.Time) {
	if d.unsettled() || f.all == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.all[key]
	if one == nil {
		if len(f.all) >= maxFloods {
			return // each of so many different ones is decided
		}
		one = &flood{denial: d, q: q, began: now}
		f.all[key] = one
	}
	one.seen++
}

// over returns the floods that are over by now, or all of them, and forgets them.
func (f *floods) over(now time.Time, all bool) []*flood {
	f.mu.Lock()
	defer f.mu.Unlock()
	var done []*flood
	for key, one := range f.all {
		if !all && now.Sub(one.began) < one.lasts() {
			continue
		}
		delete(f.all, key)
		if one.counted > 0 {
			done = append(done, one)
		}
	}
	return done
}

// settle puts on record how many requests were denied without being decided.
// With all, also of those that go on.
func (w *way) settle(all bool) {
	for _, one := range w.floods.over(w.now(), all) {
		one.q.facts.Repeated = one.counted
		args, err := json.Marshal(one.q.facts)
		if err != nil {
			w.unrecorded(err)
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), finishWait)
		t, err := w.o.Decider.Decide(ctx, act.Request{Verb: act.VerbEffect, Args: args, Direct: one.q.effects})
		if err == nil && t.Verdict == act.Allow { // the policy is another one by now
			_, err = w.o.Decider.Finish(ctx, t, act.Outcome{Error: "not carried out: this counts requests that were denied before"})
		}
		cancel()
		if err != nil {
			w.unrecorded(err)
		}
	}
}
