package desk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/internal/act"
)

var (
	agent = Identity{UID: 1, PID: 100, SID: 10, TTY: "/dev/pts/1", Known: true}
	alice = Identity{UID: 1, PID: 200, SID: 20, TTY: "/dev/pts/2", Name: "alice", Known: true}
	bob   = Identity{UID: 2, PID: 300, SID: 30, TTY: "/dev/pts/3", Name: "bob", Known: true}
	carol = Identity{UID: 3, PID: 400, SID: 40, TTY: "/dev/pts/4", Name: "carol", Known: true}
)

var roles = map[string][]string{"alice": {"owner"}, "alias": {"owner"}, "2": {"owner", "security"}}

func ask(n int) Question {
	return Question{
		Session: "s-1", Principal: "p/a", Tool: "git.git_push", Asker: agent,
		Digest: Digest(Bound{Session: "s-1", Tool: fmt.Sprint(n)}), Clauses: []Clause{{ID: "c1", Text: "needs approval"}},
	}
}

type asked struct {
	Answer
	err error
}

// start asks in a goroutine and waits until the question stands.
func start(ctx context.Context, d *Desk, q Question) <-chan asked {
	ch := make(chan asked, 1)
	go func() {
		a, err := d.Ask(ctx, q)
		ch <- asked{a, err}
	}()
	synctest.Wait()
	return ch
}

func yes(q Question) Choice { return Choice{Yes: true, Mark: q.Mark} }

// pending reports whether nothing came of the call yet.
func pending(ch <-chan asked) bool {
	synctest.Wait()
	return len(ch) == 0
}

func TestLives(t *testing.T) {
	cancelled := errors.New("the client left")
	for name, c := range map[string]struct {
		do   func(d *Desk, cancel context.CancelCauseFunc)
		err  error
		ok   bool
		last EventKind
	}{
		"yes":     {func(d *Desk, _ context.CancelCauseFunc) { _ = d.Answer(d.List()[0].ID, alice, Choice{Yes: true}) }, nil, true, Approved},
		"no":      {func(d *Desk, _ context.CancelCauseFunc) { _ = d.Answer(d.List()[0].ID, alice, Choice{}) }, nil, false, Refused},
		"silence": {func(*Desk, context.CancelCauseFunc) { <-time.After(5 * time.Minute) }, ErrNoAnswer, false, Expired},
		"gone":    {func(_ *Desk, cancel context.CancelCauseFunc) { cancel(cancelled) }, cancelled, false, Withdrawn},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{})
			events, err := d.Watch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			ch := start(ctx, d, ask(1))
			if !pending(ch) || (<-events).Kind != Asked {
				t.Fatalf("%s: not asked", name)
			}
			c.do(d, cancel)
			got := <-ch
			if !errors.Is(got.err, c.err) || got.Approved != c.ok || (got.Token != "") != c.ok {
				t.Errorf("%s: %+v", name, got)
			}
			synctest.Wait()
			if ev := <-events; ev.Kind != c.last {
				t.Errorf("%s: ends with %s", name, ev.Kind)
			}
			if len(d.List()) != 0 || len(d.same) != 0 || len(d.count) != 0 {
				t.Errorf("%s: something is left", name)
			}
		})
	}
}

// TestSelf is D4.
func TestSelf(t *testing.T) {
	for name, c := range map[string]struct {
		who    func(*Identity)
		asker  func(*Identity)
		own    bool
		err    error
		unsure bool
	}{
		"another terminal":   {},
		"same process":       {who: func(i *Identity) { i.PID = agent.PID }, err: ErrSelf},
		"same session":       {who: func(i *Identity) { i.SID = agent.SID }, err: ErrSelf},
		"same terminal":      {who: func(i *Identity) { i.TTY = agent.TTY }, err: ErrSelf},
		"no terminal":        {who: func(i *Identity) { i.TTY = "" }, unsure: true},
		"neither has one":    {who: func(i *Identity) { i.TTY = "" }, asker: func(i *Identity) { i.TTY = "" }, unsure: true},
		"approver unknown":   {who: func(i *Identity) { *i = Identity{UID: NoUID} }, unsure: true},
		"asker unknown":      {asker: func(i *Identity) { i.Known = false }, unsure: true},
		"no session ids":     {who: func(i *Identity) { i.SID = 0 }, unsure: true},
		"owner of terminal":  {who: func(i *Identity) { *i = agent }, own: true, unsure: true},
		"not its neighbours": {who: func(i *Identity) { *i = agent; i.PID++ }, own: true, err: ErrSelf},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{})
			q, who := ask(1), alice
			q.OwnTerminal = c.own
			if c.asker != nil {
				c.asker(&q.Asker)
			}
			if c.who != nil {
				c.who(&who)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ch := start(ctx, d, q)
			err := d.Answer(d.List()[0].ID, who, Choice{Yes: true})
			if !errors.Is(err, c.err) || (err == nil) == pending(ch) {
				t.Fatalf("%s: %v", name, err)
			}
			if err == nil {
				if a := <-ch; a.SelfNotExcluded != c.unsure {
					t.Errorf("%s: SelfNotExcluded is %v", name, a.SelfNotExcluded)
				}
			} else if err := d.Answer(d.List()[0].ID, who, Choice{}); err != nil {
				t.Errorf("%s: may not even refuse: %v", name, err)
			}
		})
	}
}

// TestAP01Message: a no says why, to the call that waits, and the asker cannot put words
// into anybody's mouth.
func TestAP01Message(t *testing.T) {
	neighbour := agent
	neighbour.PID++
	for name, c := range map[string]struct {
		who  Identity
		say  Choice
		err  error
		want string
	}{
		"plain":         {alice, Choice{Message: "push to a branch"}, nil, "push to a branch"},
		"controls":      {alice, Choice{Message: "a\n\x1b[2J\u202eb"}, nil, `a␊␛[2J\u{202e}b`},
		"as long as is": {alice, Choice{Message: strings.Repeat("\x07", MaxMessage)}, nil, strings.Repeat("␇", MaxMessage)},
		"of the asker":  {neighbour, Choice{Message: "approved by admin"}, ErrSelf, ""},
		"no words":      {neighbour, Choice{}, nil, ""},
		"with a yes":    {alice, Choice{Yes: true, Message: "go on"}, ErrMessage, ""},
		"too long":      {alice, Choice{Message: strings.Repeat("x", MaxMessage+1)}, ErrMessage, ""},
		"not UTF-8":     {alice, Choice{Message: "\xff"}, ErrMessage, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ch := start(ctx, d, ask(1))
			if err := d.Answer(d.List()[0].ID, c.who, c.say); !errors.Is(err, c.err) || (err == nil) == pending(ch) {
				t.Fatalf("%s: %v", name, err)
			}
			if c.err != nil {
				return
			}
			if a := <-ch; a.Approved || a.Votes[0].Message != c.want {
				t.Errorf("%s: %+v", name, a)
			}
		})
	}
}

func TestQuorum(t *testing.T) {
	two := []Clause{{ID: "c1", Count: 2, Role: "owner"}}
	mixed := []Clause{{ID: "c1", Role: "owner"}, {ID: "c2", Role: "security"}, {ID: "c3"}}
	aliceAgain, renamed := alice, alice
	renamed.Name, renamed.PID, renamed.SID, renamed.TTY = "alias", 998, 98, "/dev/pts/8"
	aliceAgain.PID, aliceAgain.SID, aliceAgain.TTY = 999, 99, "/dev/pts/9"
	type vote struct {
		who Identity
		yes bool
		err error
	}
	for name, c := range map[string]struct {
		clauses []Clause
		votes   []vote
		done    bool
		ok      bool
	}{
		"one of two":         {two, []vote{{alice, true, nil}}, false, false},
		"two owners":         {two, []vote{{alice, true, nil}, {bob, true, nil}}, true, true},
		"one person twice":   {two, []vote{{alice, true, nil}, {aliceAgain, true, ErrTwice}}, false, false},
		"by another name":    {two, []vote{{alice, true, nil}, {renamed, true, ErrTwice}}, false, false},
		"no role":            {two, []vote{{carol, true, ErrRole}}, false, false},
		"no role, no":        {two, []vote{{carol, false, nil}}, true, false},
		"a no after a yes":   {two, []vote{{alice, true, nil}, {bob, false, nil}}, true, false},
		"one for all":        {mixed, []vote{{bob, true, nil}}, true, true},
		"several add up":     {mixed, []vote{{alice, true, nil}, {carol, true, nil}, {bob, true, nil}}, true, true},
		"a clause is left":   {mixed, []vote{{alice, true, nil}}, false, false},
		"unknown has none":   {[]Clause{{ID: "c1", Role: "owner"}}, []vote{{Identity{UID: 2}, true, ErrRole}}, false, false},
		"clause for anybody": {[]Clause{{ID: "c1"}}, []vote{{carol, true, nil}}, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{Roles: roles})
			q := ask(1)
			q.Clauses = c.clauses
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ch := start(ctx, d, q)
			id := d.List()[0].ID
			for i, v := range c.votes {
				if err := d.Answer(id, v.who, Choice{Yes: v.yes}); !errors.Is(err, v.err) {
					t.Errorf("%s: vote %d: %v, want %v", name, i, err, v.err)
				}
			}
			if pending(ch) == c.done {
				t.Fatalf("%s: done is %v", name, !c.done)
			}
			if c.done {
				if a := <-ch; a.Approved != c.ok || a.Approved && len(a.Clauses) != len(c.clauses) {
					t.Errorf("%s: %+v", name, a)
				}
			}
		})
	}
}

// TestGuests is D5: who is no user of the engine counts only where somebody else is
// meant, and sees nothing else; and nobody waits for people who cannot answer.
func TestGuests(t *testing.T) {
	roles := map[string][]string{"alice": {"owner"}, "bob": {"owner"}}
	both := []Person{{UID: alice.UID, Name: alice.Name}, {UID: bob.UID, Name: bob.Name, Guest: true}}
	for name, c := range map[string]struct {
		people  []Person
		clause  Clause
		asked   error
		visible bool // to bob
	}{
		"anyone, for the user alone":       {both, Clause{ID: "c1"}, nil, false},
		"two of any role":                  {both, Clause{ID: "c1", Count: 2}, nil, true},
		"an owner":                         {both, Clause{ID: "c1", Role: "owner"}, nil, true},
		"two owners":                       {both, Clause{ID: "c1", Role: "owner", Count: 2}, nil, true},
		"another role":                     {both, Clause{ID: "c1", Role: "security"}, ErrQuorum, false},
		"three":                            {both, Clause{ID: "c1", Count: 3}, ErrQuorum, false},
		"two, and the user alone is there": {both[:1], Clause{ID: "c1", Role: "owner", Count: 2}, ErrQuorum, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := New(Options{Roles: roles, People: c.people})
			q := ask(1)
			q.Clauses = []Clause{c.clause}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ch := start(ctx, d, q)
			synctest.Wait()
			if c.asked != nil {
				if got := <-ch; !errors.Is(got.err, c.asked) || got.Approved {
					t.Errorf("%s: %+v", name, got)
				}
				return
			}
			q = d.List()[0]
			if d.Concerns(q, bob) != c.visible || !d.Concerns(q, alice) {
				t.Errorf("%s: shown to a guest: %v", name, !c.visible)
			}
			if err := d.Answer(q.ID, bob, Choice{}); errors.Is(err, ErrGone) == c.visible {
				t.Errorf("%s: a no of a guest: %v", name, err)
			}
		})
	}
}

// TestOldestFirst asks with clocks that run apart: who enters later may have asked before.
func TestOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		now := time.Now()
		d := New(Options{Now: func() time.Time { now = now.Add(-time.Second); return now }})
		var all []<-chan asked
		for i := range 8 {
			all = append(all, start(ctx, d, ask(i)))
		}
		if open := d.List(); len(open) != len(all) || !slices.IsSortedFunc(open, func(a, b Question) int { return a.Asked.Compare(b.Asked) }) {
			t.Errorf("not oldest first: %+v", open)
		}
		cancel()
		for _, ch := range all {
			<-ch
		}
	})
}

// TestCoalesce is D3: a yes covers what was shown.
func TestCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		first := start(t.Context(), d, ask(1))
		second := start(t.Context(), d, ask(1))
		shown := d.List()[0]
		if len(d.List()) != 1 || shown.Calls != 2 {
			t.Fatalf("%d questions, %d calls", len(d.List()), shown.Calls)
		}
		third := start(t.Context(), d, ask(1))
		if err := d.Answer(shown.ID, alice, Choice{Yes: true, Mark: 99}); err == nil {
			t.Error("a mark that was never shown is taken")
		}
		if err := d.Answer(shown.ID, alice, yes(shown)); err != nil {
			t.Fatal(err)
		}
		a, b := <-first, <-second
		if !a.Approved || !b.Approved || a.Token == b.Token || !pending(third) {
			t.Errorf("%+v %+v, third done: %v", a, b, !pending(third))
		}
		fourth := start(t.Context(), d, ask(1))
		if err := d.Answer(shown.ID, alice, Choice{Yes: true}); err != nil {
			t.Fatal(err)
		}
		if c := <-third; !c.Approved || !pending(fourth) {
			t.Errorf("without a mark not the oldest alone: %+v", c)
		}
		if err := d.Answer(shown.ID, alice, Choice{}); err != nil {
			t.Fatal(err)
		}
		if c := <-fourth; c.Approved || c.err != nil {
			t.Errorf("refused: %+v", c)
		}
		if err := d.Answer(shown.ID, alice, Choice{}); !errors.Is(err, ErrGone) {
			t.Errorf("answered twice: %v", err)
		}
	})
}

// TestFlood is AP-03: a thousand prompts in ten seconds show sixteen, and all
// are denied.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		var denied, crowded int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 1000 {
			<-time.After(10 * time.Millisecond)
			all.Go(func() {
				a, err := d.Ask(t.Context(), ask(i%500))
				mu.Lock()
				defer mu.Unlock()
				if !a.Approved && err != nil {
					denied++
				}
				if errors.Is(err, ErrCrowded) {
					crowded++
				}
			})
		}
		synctest.Wait()
		if n := len(d.List()); n != 16 {
			t.Errorf("%d questions are open", n)
		}
		other := ask(1)
		other.Session, other.Digest = "s-2", Digest(Bound{Session: "s-2"})
		ch := start(t.Context(), d, other)
		if !pending(ch) {
			t.Error("another session is not heard")
		}
		all.Wait()
		if denied != 1000 || crowded != 1000-2*16 {
			t.Errorf("%d denied, %d at once", denied, crowded)
		}
		<-ch
		for range 64 {
			start(t.Context(), d, ask(7))
		}
		if got := <-start(t.Context(), d, ask(7)); !errors.Is(got.err, ErrCrowded) {
			t.Errorf("65 identical calls: %v", got.err)
		}
		<-time.After(time.Hour)
	})
}

func TestBounds(t *testing.T) {
	d := New(Options{MaxArgs: 10})
	big := ask(1)
	big.Effects = make([]act.Effect, maxEffects+1)
	huge := ask(1)
	huge.Effects = []act.Effect{{Resource: act.Resource{Text: strings.Repeat("x", maxQuestion)}}}
	bare := ask(1)
	bare.Clauses = nil
	for name, q := range map[string]Question{"effects": big, "text": huge, "no clause": bare, "no digest": {Session: "s", Clauses: bare.Clauses}} {
		if _, err := d.Ask(t.Context(), q); err == nil || len(d.List()) != 0 {
			t.Errorf("%s: asked", name)
		}
	}
	q := ask(1)
	q.Args = strings.Repeat("é", 100)
	q.Deadline = time.Now().Add(1000 * time.Hour)
	got, err := d.bounded(q)
	if err != nil || got.Args != "ééééé" || got.ArgsBytes != 200 || got.Deadline.Sub(got.Asked) != time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWatch: a watcher sees what is open and all that follows, and one that
// sleeps is dropped without holding up anybody.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		first := start(t.Context(), d, ask(1))
		ctx, cancel := context.WithCancel(t.Context())
		events, err := d.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 {
			start(ctx, d, ask(2))
			_ = d.Answer(d.List()[1].ID, alice, Choice{})
		}
		var kinds []EventKind
		for ev := range events { // closed, because we fell behind
			kinds = append(kinds, ev.Kind)
		}
		if len(kinds) != 1+watcherQueue || !slices.Equal(kinds[:3], []EventKind{Asked, Asked, Refused}) {
			t.Errorf("%d events: %v", len(kinds), kinds[:3])
		}
		for range maxWatchers {
			if _, err := d.Watch(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Watch(ctx); !errors.Is(err, ErrCrowded) {
			t.Errorf("65 watchers: %v", err)
		}
		cancel()
		synctest.Wait()
		if len(d.watchers) != 0 {
			t.Errorf("%d watchers are left", len(d.watchers))
		}
		_ = d.Answer(d.List()[0].ID, alice, Choice{})
		<-first
	})
}

// TestScope: a yes is for the session only in a scope that was shown, and a no never is.
func TestScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		q := ask(1)
		q.Scopes = []Scope{{Form: "exact", Text: "this"}, {Form: "subtree", Text: "create beneath /w\n", Such: "/w/a", Not: "/v"}}
		ch := start(t.Context(), d, q)
		shown := d.List()[0]
		if got := RenderScopes(shown); strings.Count(got, "\n") != 5 || !strings.Contains(got, "2  subtree    create beneath /w␊\n           such as    /w/a\n") {
			t.Errorf("%s", got)
		}
		for _, c := range []Choice{{Yes: true, Scope: 3}, {Yes: true, Scope: -1}, {Scope: 1}} {
			if err := d.Answer(shown.ID, alice, c); !errors.Is(err, ErrScope) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if err := d.Answer(shown.ID, alice, Choice{Yes: true, Scope: 2}); err != nil {
			t.Fatal(err)
		}
		if a := <-ch; !a.Approved || a.Scope != 2 {
			t.Errorf("%+v", a)
		}
		if RenderScopes(ask(1)) != "" {
			t.Error("scopes where there are none")
		}
	})
}
