package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/config"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
)

// A purse is what one session may use of models, and what its persona may in a day. It is
// a gate.Purse.
type purse struct {
	limits config.Budget
	day    *account // of the persona; nil: no bound

	mu   sync.Mutex
	used spending
}

// spending is what was used, and how many requests are under way.
type spending struct {
	act.Spent
	requests int64
	open     int64
}

// An account is the purse of one persona for a day of UTC.
type account struct {
	limits config.Budget
	now    func() time.Time

	mu   sync.Mutex
	date string
	used spending
}

// left is what of limits is not used. Below zero is no bound; a bound that is not there is 0.
func left(limits config.Budget, u spending) (act.Budget, string) {
	b := act.Budget{Tokens: -1, MicroUSD: -1}
	if limits.Tokens > 0 {
		b.Tokens = max(limits.Tokens-u.Tokens, 0)
	}
	if limits.MicroUSD > 0 {
		b.MicroUSD = max(limits.MicroUSD-u.MicroUSD, 0)
	}
	switch {
	case b.Tokens == 0:
		return b, fmt.Sprintf("its budget of %d tokens is used up", limits.Tokens)
	case b.MicroUSD == 0:
		return b, fmt.Sprintf("its budget of %.2f dollars is used up", float64(limits.MicroUSD)/1e6)
	case limits.Requests > 0 && u.requests >= limits.Requests:
		return b, fmt.Sprintf("its %d requests to models are used up", limits.Requests)
	case limits.AtOnce > 0 && u.open >= limits.AtOnce:
		return b, fmt.Sprintf("%d requests to models are under way, and no more may be at once: wait for one to end", u.open)
	}
	return b, ""
}

func (s *spending) take() { s.open++; s.requests++ }

func (s *spending) give(used act.Spent) {
	s.open = max(s.open-1, 0)
	s.Tokens, s.MicroUSD = plus(s.Tokens, used.Tokens), plus(s.MicroUSD, used.MicroUSD)
}

// plus adds what is not below zero, and stays at the most there can be.
func plus(a, b int64) int64 {
	if b = max(b, 0); b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// Take implements gate.Purse.
func (p *purse) Take() (act.Budget, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, why := left(p.limits, p.used)
	if why != "" {
		return b, "of this session " + why
	}
	if p.day != nil {
		d, why := p.day.take()
		if why != "" {
			return d, "for today " + why
		}
		b.Tokens, b.MicroUSD = tighter(b.Tokens, d.Tokens), tighter(b.MicroUSD, d.MicroUSD)
	}
	p.used.take()
	return b, ""
}

// tighter is the smaller of two bounds, of which one below zero is none.
func tighter(a, b int64) int64 {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// Give implements gate.Purse.
func (p *purse) Give(used act.Spent) {
	p.mu.Lock()
	p.used.give(used)
	p.mu.Unlock()
	if p.day != nil {
		p.day.give(used)
	}
}

// turn begins a new day when it is one. mu is held.
func (a *account) turn() {
	if date := a.now().UTC().Format(time.DateOnly); date != a.date {
		a.date, a.used = date, spending{open: a.used.open}
	}
}

func (a *account) take() (act.Budget, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	b, why := left(a.limits, a.used)
	if why == "" {
		a.used.take()
	}
	return b, why
}

func (a *account) give(used act.Spent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn()
	a.used.give(used)
}

// purseOf is the purse of a session of principal, which asked is to narrow; nil if nothing
// bounds it. What was used by the session that it resumes, and by those before it, is used.
func (e *Engine) purseOf(ctx context.Context, principal string, asked *act.Budget, resumes string) (gate.Purse, error) {
	p := &purse{limits: e.conf.Budgets.Session}
	if asked != nil {
		p.limits.Tokens = narrower(p.limits.Tokens, asked.Tokens)
		p.limits.MicroUSD = narrower(p.limits.MicroUSD, asked.MicroUSD)
	}
	if e.conf.Budgets.Day != (config.Budget{}) {
		persona, _, _ := strings.Cut(principal, "/")
		var err error
		if p.day, err = e.account(ctx, persona); err != nil {
			return nil, err
		}
	}
	if p.limits == (config.Budget{}) && p.day == nil {
		return nil, nil
	}
	for n := 0; resumes != "" && p.limits != (config.Budget{}); n++ {
		if n == maxResumed {
			return nil, fmt.Errorf("%s goes on with more than %d sessions, one after the other", principal, maxResumed)
		}
		var err error
		if resumes, err = e.spentBefore(ctx, resumes, &p.used); err != nil {
			return nil, fmt.Errorf("counting what was used of models before: %w", err)
		}
	}
	return p, nil
}

// maxResumed bounds how many sessions go on with each other.
const maxResumed = 64

// spentBefore counts in used what the record says of a session, and returns which one that
// went on with.
func (e *Engine) spentBefore(ctx context.Context, session string, used *spending) (before string, err error) {
	err = e.ledger.Entries(ctx, ledger.Query{Session: session, Types: []string{entryStart, gate.EntryResult}}, func(r ledger.Record) error {
		var said struct {
			Resumes string     `json:"resumes"` // of a start
			Spent   *act.Spent `json:"spent"`   // of a result
		}
		if err := json.Unmarshal(r.Body, &said); err != nil {
			return fmt.Errorf("reading entry %d: %w", r.Index, err)
		}
		switch {
		case r.Type == entryStart:
			before = said.Resumes
		case said.Spent != nil:
			used.take()
			used.give(*said.Spent)
		}
		return nil
	})
	return before, err
}

// narrower is the smaller of two bounds, of which 0 is none.
func narrower(a, b int64) int64 {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}

// account returns that of a persona. What the record says it used today is used.
func (e *Engine) account(ctx context.Context, persona string) (*account, error) {
	e.mu.Lock()
	a := e.accounts[persona]
	e.mu.Unlock()
	if a != nil {
		return a, nil
	}
	a = &account{limits: e.conf.Budgets.Day, now: e.o.Now}
	a.turn()
	if err := e.spentToday(ctx, persona, a); err != nil {
		return nil, fmt.Errorf("counting what %s used of models today: %w", persona, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if first := e.accounts[persona]; first != nil {
		return first, nil
	}
	e.accounts[persona] = a
	return a, nil
}

// spentToday counts in a what the record says.
func (e *Engine) spentToday(ctx context.Context, persona string, a *account) error {
	of := map[string]bool{}
	return e.ledger.Entries(ctx, ledger.Query{Types: []string{entryStart, gate.EntryResult}}, func(r ledger.Record) error {
		if r.Type == entryStart {
			var s startEntry
			if err := json.Unmarshal(r.Body, &s); err != nil {
				return fmt.Errorf("reading entry %d: %w", r.Index, err)
			}
			of[r.Session] = strings.HasPrefix(s.Principal, persona+"/")
			return nil
		}
		if !of[r.Session] || r.Time.UTC().Format(time.DateOnly) != a.date {
			return nil
		}
		var result struct {
			Spent *act.Spent `json:"spent"`
		}
		if err := json.Unmarshal(r.Body, &result); err != nil {
			return fmt.Errorf("reading entry %d: %w", r.Index, err)
		}
		if result.Spent != nil {
			a.used.take()
			a.used.give(*result.Spent)
		}
		return nil
	})
}

// maxReads is how many hosts a session may say that it reads all connections to.
const maxReads = 256
