package gate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"ringfence/internal/act"
)

// purse counts what is taken and given.
type purse struct {
	left  act.Budget
	why   string
	taken int
	used  act.Spent
}

func (p *purse) Take() (act.Budget, string) {
	if p.why == "" {
		p.taken++
	}
	return p.left, p.why
}

func (p *purse) Give(used act.Spent) {
	p.taken--
	p.used.Tokens += used.Tokens
}

// TestPurse: a request to a model takes a place before it is allowed, and gives it back
// however it ends.
func TestPurse(t *testing.T) {
	infer := act.Request{Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Infer, Resource: act.Resource{Text: "p/m"}}}}
	start := func() (*bench, *purse) {
		b, p := newBench(t, allow), &purse{left: act.Budget{Tokens: 7, MicroUSD: -1}}
		b.run.Purse = p
		return b, p
	}
	b, p := start()
	got := b.decide(infer)
	if got.Verdict != act.Allow || got.Filter.Budget == nil || *got.Filter.Budget != p.left || p.taken != 1 {
		t.Fatalf("%+v, %d taken", got, p.taken)
	}
	if _, err := New(b.o).Finish(context.Background(), got, act.Outcome{Body: []byte("{}"), Spent: act.Spent{Tokens: 5, MicroUSD: 9}}); err != nil || p.taken != 0 || p.used.Tokens != 5 {
		t.Errorf("%v, %d taken, %+v used", err, p.taken, p.used)
	}
	var result struct{ Spent act.Spent }
	if err := json.Unmarshal(b.record.entries[len(b.record.entries)-1].Body, &result); err != nil || result.Spent != (act.Spent{Tokens: 5, MicroUSD: 9}) {
		t.Errorf("%v, recorded %+v", err, result)
	}
	if b.decide(direct("read", "a")); p.taken != 0 {
		t.Error("reading a file takes a place")
	}

	b, p = start()
	p.why = "the budget is used up"
	if got := b.decide(infer); got.Verdict != act.Deny || got.Code != act.CodePolicy || !strings.Contains(got.Reason, p.why) || got.Rules[0] != overBudget {
		t.Errorf("%+v", got)
	}

	b, p = start()
	b.record.failAt = 1
	if _, err := New(b.o).Decide(context.Background(), act.Request{Session: "s", Verb: infer.Verb, Direct: infer.Direct}); err == nil || p.taken != 0 {
		t.Errorf("%v, %d taken", err, p.taken)
	}

	b, p = start()
	b.record.hook = func() { b.run.Session.End() }
	if got, err := New(b.o).Decide(context.Background(), act.Request{Session: "s", Verb: infer.Verb, Direct: infer.Direct}); err == nil || got.Verdict != act.Deny || p.taken != 0 {
		t.Errorf("%v, %+v, %d taken", err, got, p.taken)
	}

	b, p = start()
	b.decide(infer)
	if err := New(b.o).Orphan(context.Background(), b.run); err != nil || p.taken != 0 {
		t.Errorf("%v, %d taken", err, p.taken)
	}
}
