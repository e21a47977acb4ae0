package daemon

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/act"
	"ringfence/internal/config"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
)

// TestPurse: however requests come and go, no more is under way than may be, none begins
// when a budget is used up, and what is left is what was not used.
func TestPurse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.Custom(func(t *rapid.T) config.Budget {
			n := rapid.Int64Range(0, 50)
			return config.Budget{Tokens: n.Draw(t, "tokens"), MicroUSD: n.Draw(t, "money"), Requests: n.Draw(t, "requests"), AtOnce: rapid.Int64Range(0, 3).Draw(t, "at once")}
		})
		now := time.Date(2026, 1, 1, 23, 0, 0, 0, time.UTC)
		day := &account{limits: bound.Draw(t, "day"), now: func() time.Time { return now }}
		p := &purse{limits: bound.Draw(t, "session"), day: day}
		var session, today spending
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				got, why := p.Take()
				_, no := left(p.limits, session)
				_, noToday := left(day.limits, today)
				if (why == "") != (no == "" && noToday == "") {
					t.Fatalf("%q; session %q, day %q", why, no, noToday)
				}
				if why != "" {
					return
				}
				if most := day.limits.Tokens; most > 0 && (got.Tokens < 0 || got.Tokens > most-today.Tokens) {
					t.Fatalf("%d tokens left of %d, %d used", got.Tokens, most, today.Tokens)
				}
				if most := p.limits.MicroUSD; most > 0 && (got.MicroUSD < 0 || got.MicroUSD > most-session.MicroUSD) {
					t.Fatalf("%d left of %d, %d used", got.MicroUSD, most, session.MicroUSD)
				}
				session.take()
				today.take()
			},
			"give": func(t *rapid.T) {
				if session.open == 0 {
					return
				}
				n := rapid.Int64Range(-5, 20)
				used := act.Spent{Tokens: n.Draw(t, "tokens"), MicroUSD: n.Draw(t, "money")}
				p.Give(used)
				session.give(used)
				today.give(used)
			},
			"midnight": func(*rapid.T) {
				now = now.Add(24 * time.Hour)
				today = spending{open: today.open}
			},
		})
	})
}

// TestBudgetOutlivesTheEngine: what a persona used today is used for the next engine too.
func TestBudgetOutlivesTheEngine(t *testing.T) {
	ctx := context.Background()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(ctx, t.TempDir(), ledger.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	put := func(session, kind, body string) {
		t.Helper()
		if _, err := l.Append(ctx, false, ledger.Entry{Session: session, Type: kind, Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []string{"dev/a", "dev/b", "other/a"} {
		id := strings.ReplaceAll(s, "/", "-")
		put(id, entryStart, fmt.Sprintf(`{"principal":%q}`, s))
		put(id, gate.EntryResult, `{"spent":{"micro_usd":100,"tokens":30},"ticket":"x/1"}`)
		put(id, gate.EntryResult, `{"ticket":"x/2"}`)
	}
	e := &Engine{ledger: l, accounts: map[string]*account{}}
	e.o.Now = time.Now
	e.conf.Budgets.Day = config.Budget{Tokens: 100, Requests: 2}
	got, err := e.purseOf(ctx, "dev/c", &act.Budget{MicroUSD: 500, Tokens: -1}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, why := got.Take(); !strings.Contains(why, "for today its 2 requests") {
		t.Errorf("the third request of the day: %q", why)
	}
	fresh, err := e.purseOf(ctx, "fresh/c", &act.Budget{MicroUSD: 500}, "")
	if err != nil {
		t.Fatal(err)
	}
	if left, why := fresh.Take(); why != "" || left != (act.Budget{Tokens: 100, MicroUSD: 500}) {
		t.Errorf("%+v %q", left, why)
	}
	e.conf.Budgets = config.Budgets{}
	if none, err := e.purseOf(ctx, "dev/c", nil, ""); none != nil || err != nil {
		t.Errorf("without budgets there is a purse: %v %v", none, err)
	}
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestBudgetIsResumed: a session that goes on with others has what they left.
func TestBudgetIsResumed(t *testing.T) {
	ctx := context.Background()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(ctx, t.TempDir(), ledger.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	for _, e := range [][3]string{
		{"s-first", entryStart, `{"principal":"p/a"}`},
		{"s-first", gate.EntryResult, `{"spent":{"tokens":60}}`},
		{"s-other", entryStart, `{"principal":"p/a"}`},
		{"s-other", gate.EntryResult, `{"spent":{"tokens":1000}}`},
		{"s-second", entryStart, `{"principal":"p/a","resumes":"s-first"}`},
		{"s-second", gate.EntryResult, `{"spent":{"tokens":30}}`},
		{"s-circle", entryStart, `{"principal":"p/a","resumes":"s-circle"}`},
	} {
		if _, err := l.Append(ctx, false, ledger.Entry{Session: e[0], Type: e[1], Body: []byte(e[2])}); err != nil {
			t.Fatal(err)
		}
	}
	e := &Engine{ledger: l, accounts: map[string]*account{}}
	p, err := e.purseOf(ctx, "p/a", &act.Budget{Tokens: 100}, "s-second")
	if err != nil {
		t.Fatal(err)
	}
	if b, why := p.Take(); b.Tokens != 10 || why != "" {
		t.Errorf("%d tokens are left, %q", b.Tokens, why)
	}
	if _, err := e.purseOf(ctx, "p/a", &act.Budget{Tokens: 100}, "s-circle"); err == nil || !strings.Contains(err.Error(), "more than 64") {
		t.Errorf("a circle: %v", err)
	}
}
