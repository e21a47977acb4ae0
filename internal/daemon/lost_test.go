package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
	"ringfence/internal/session"
	"ringfence/internal/sys/paths"
)

// A bare engine has no server: its methods are called, and it does nothing by
// itself.
func (f *fixture) bare(now func() time.Time) *Engine {
	f.t.Helper()
	ctx, stop := context.WithCancelCause(context.Background())
	f.t.Cleanup(func() { stop(nil) })
	e, err := open(ctx, Options{Home: f.home, UserHome: f.user, Program: "test", Now: now, Sessions: 1000})
	if err != nil {
		f.t.Fatal(err)
	}
	e.stop, e.done = stop, ctx.Done()
	return e
}

// dies ends e as a crash does: nothing of what is under way is recorded.
func (e *Engine) dies(t *testing.T) {
	t.Helper()
	if err := e.ledger.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// under opens a session of connection 1 and leaves one call of it under way.
func (f *fixture) under(e *Engine) api.Opened {
	f.t.Helper()
	caller := api.Caller{Conn: 1}
	o, err := e.OpenSession(context.Background(), caller, f.request())
	if err != nil {
		f.t.Fatal(err)
	}
	ticket, err := e.Decide(context.Background(), caller, act.Request{
		Session: o.Session, Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.List, Resource: act.Resource{Text: "."}}},
	})
	if err != nil || ticket.Verdict != act.Allow {
		f.t.Fatal(err, ticket.Reason)
	}
	return o
}

// ends counts the orphans and the ends on record, by session.
func (e *Engine) ends(t *testing.T) (orphans, ended map[string]int) {
	t.Helper()
	orphans, ended = map[string]int{}, map[string]int{}
	err := e.ledger.Entries(context.Background(), ledger.Query{}, func(r ledger.Record) error {
		switch {
		case r.Type == entryEnd:
			ended[r.Session]++
		case bytes.Contains(r.Body, []byte("orphaned")):
			orphans[r.Session]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return orphans, ended
}

// TestManyLostSessions: however many sessions an engine left, the next does
// nothing about them before it serves. Each is rebuilt when it is resumed and not
// before, or ends after the grace that began when it was lost.
func TestManyLostSessions(t *testing.T) {
	const many = 200
	f := newFixture(t)
	now := time.Now()
	clock := func() time.Time { return now }
	e := f.bare(clock)
	var all []api.Opened
	for range many {
		all = append(all, f.under(e))
	}
	if _, err := e.gate.Finish(context.Background(), act.Ticket{ID: all[0].Session + "/2", Session: all[0].Session}, act.Outcome{Body: []byte("ghp_16C7e42F292c6912E7710c838347Ae178B4a")}); err != nil {
		t.Fatal(err)
	}
	e.dies(t)

	e = f.bare(clock)
	orphans, ended := e.ends(t)
	if open, lost := e.openSessions(); open != many || lost != many || len(e.runs) != 0 || len(orphans) != 0 || len(ended) != 0 {
		t.Fatalf("at the start %d open, %d lost, %d rebuilt, %d orphans, %d ends", open, lost, len(e.runs), len(orphans), len(ended))
	}
	if _, ok := e.gateRun(all[0].Session); ok {
		t.Error("a session decides before it was resumed")
	}
	caller := api.Caller{Conn: 7}
	if _, err := e.ResumeSession(context.Background(), caller, all[0].Session, "guessed"); !errors.Is(err, api.ErrNoSession) || len(e.runs) != 0 {
		t.Errorf("a wrong token: %v, %d rebuilt", err, len(e.runs))
	}
	for _, o := range all[:2] {
		for range 2 {
			if _, err := e.ResumeSession(context.Background(), caller, o.Session, o.Token); err != nil {
				t.Fatal(err)
			}
		}
	}
	orphans, _ = e.ends(t)
	if len(e.runs) != 2 || len(orphans) != 1 || orphans[all[1].Session] != 1 {
		t.Errorf("after two were resumed %d are rebuilt, orphans %v", len(e.runs), orphans)
	}
	if got := e.runs[all[0].Session].gate.Session.Labels(); !slices.Equal(got, []act.Label{act.LabelSecret}) {
		t.Errorf("labels %q after the engine is another", got)
	}
	if a, b := e.runs[all[0].Session].gate.Policy, e.runs[all[1].Session].gate.Policy; a.(*policy.Policy) != b.(*policy.Policy) {
		t.Error("two sessions of one policy have compiled it twice")
	}
	if err := e.settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	if orphans, ended = e.ends(t); len(e.runs) != 2 || len(orphans) != many-1 || len(ended) != 0 {
		t.Errorf("once the engine got to it %d are rebuilt, %d have orphans, %d have ended", len(e.runs), len(orphans), len(ended))
	}
	e.dies(t)

	now = now.Add(e.o.Grace)
	e = f.bare(clock)
	if _, err := e.ResumeSession(context.Background(), caller, all[9].Session, all[9].Token); !errors.Is(err, api.ErrNoSession) {
		t.Errorf("resuming after the grace: %v", err)
	}
	due, next := e.due()
	if err := e.expire(context.Background(), due); err != nil {
		t.Fatal(err)
	}
	orphans, ended = e.ends(t)
	if open, _ := e.openSessions(); open != 2 || len(ended) != many-2 || len(orphans) != many-1 || !next.Equal(now.Add(e.o.Grace)) {
		t.Errorf("%d open, %d ended, %d with orphans, the next ends at %s", open, len(ended), len(orphans), next)
	}
	for id, n := range orphans {
		if n != 1 || ended[id] > 1 {
			t.Errorf("session %s has %d orphans of one call, and ended %d times", id, n, ended[id])
		}
	}
	now = next
	due, _ = e.due()
	if err := e.expire(context.Background(), due); err != nil {
		t.Fatal(err)
	}
	left, err := session.IDs(paths.Sessions(f.home))
	if open, _ := e.openSessions(); err != nil || open != 0 || len(left) != 0 {
		t.Errorf("%d open, files %v, %v", open, left, err)
	}
	e.dies(t)
}

// TestGraceOfWhomWeLeft: a client that is gone loses its session since then. One
// whose engine went has its whole grace under the next.
func TestGraceOfWhomWeLeft(t *testing.T) {
	f := newFixture(t)
	now := time.Now()
	e := f.bare(func() time.Time { return now })
	gone, left := f.under(e), f.under(e)
	e.Gone(api.Caller{Conn: 1}, []string{gone.Session})
	e.stop(nil)
	e.Gone(api.Caller{Conn: 1}, []string{left.Session})
	e.work.Wait()
	e.dies(t)
	now = now.Add(defaultGrace)
	e = f.bare(func() time.Time { return now })
	for _, c := range []struct {
		api.Opened
		want error
	}{{gone, api.ErrNoSession}, {left, nil}} {
		if _, err := e.ResumeSession(context.Background(), api.Caller{Conn: 1}, c.Session, c.Token); !errors.Is(err, c.want) {
			t.Errorf("resuming: %v, want %v", err, c.want)
		}
	}
	f2, err := session.LoadFile(paths.Sessions(f.home), left.Session)
	if err != nil || !f2.Lost.IsZero() {
		t.Errorf("a resumed session is lost since %s, %v", f2.Lost, err)
	}
	e.dies(t)
}

// TestBrokenSessionFile: a file that cannot be read ends its session, on record,
// and not the engine.
func TestBrokenSessionFile(t *testing.T) {
	f := newFixture(t)
	e := f.bare(nil)
	o := f.under(e)
	e.dies(t)
	for _, id := range []string{o.Session, session.NewID()} { // of the second the record says nothing
		if err := os.WriteFile(filepath.Join(paths.Sessions(f.home), id+".json"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e = f.bare(nil)
	e.reap(context.Background())
	orphans, ended := e.ends(t)
	if open, _ := e.openSessions(); open != 0 || len(ended) != 1 || ended[o.Session] != 1 || orphans[o.Session] != 1 {
		t.Errorf("%d open, ended %v, orphans %v", open, ended, orphans)
	}
	e.dies(t)
}

// TestE4Lost: sessions that wait for their clients keep the engine, and for no
// longer than their grace.
func TestE4Lost(t *testing.T) {
	f := newFixture(t)
	e := f.bare(nil)
	o := f.under(e)
	e.dies(t)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(context.Background(), Options{Home: f.home, UserHome: f.user, Idle: time.Millisecond, Grace: 100 * time.Millisecond})
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	e = f.bare(nil)
	if _, got := e.ends(t); got[o.Session] != 1 {
		t.Errorf("the engine ended before its session: %v", got)
	}
	e.dies(t)
}

// TestCompiledFromTheSame: a policy is compiled again when anything of what it was
// made of is another, and what is not signed is not accepted because it was once.
func TestCompiledFromTheSame(t *testing.T) {
	f := newFixture(t)
	dir := filepath.Join(f.user, "layer")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := policySource{home: f.home, user: f.user, unsigned: true}
	const all = "@id(\"c1.1\")\npermit (principal, action, resource);\n"
	write(filepath.Join(dir, policy.FilePolicy), all)
	var c compiled
	load := func(workspace string) *policy.Policy {
		t.Helper()
		in, err := c.load(p, dir, workspace)
		if err != nil {
			t.Fatal(err)
		}
		return in.policy
	}
	first := load(f.work)
	if load(f.work) != first || len(c.kept) != 1 {
		t.Errorf("the same is compiled twice; %d are kept", len(c.kept))
	}
	if load(f.user) == first {
		t.Error("the policy of one workspace is that of another")
	}
	annotations := Annotations(f.home)
	if err := os.MkdirAll(annotations, 0o700); err != nil {
		t.Fatal(err)
	}
	shipped, err := policy.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(shipped["filesystem"])
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(annotations, "filesystem.json"), string(raw))
	if load(f.work) == first {
		t.Error("an annotation of one's own is not seen")
	}
	write(filepath.Join(dir, policy.FilePolicy), all+"// changed\n")
	changed := load(f.work)
	if changed == first {
		t.Error("a changed policy is not seen")
	}
	p.unsigned = false
	if _, err := c.load(p, dir, f.work); err == nil {
		t.Error("a directory that nobody signed is accepted")
	}
	p.unsigned = true
	for i := range 3 * maxCompiled {
		work := filepath.Join(f.user, "w", string(rune('a'+i)))
		load(work)
	}
	if len(c.kept) != maxCompiled {
		t.Errorf("%d policies are kept", len(c.kept))
	}
}

// TestTooManySessions: there is a bound, also on those that are opened at once. A
// refused one is not on record, and one that ends makes room.
func TestTooManySessions(t *testing.T) {
	f := newFixture(t).start(Options{Sessions: 3})
	c := f.client()
	first := f.open(c)
	other, err := api.Connect(context.Background(), api.Options{Home: f.home})
	if err != nil {
		t.Fatal(err)
	}
	var opening sync.WaitGroup
	var refused atomic.Int64
	for range 6 {
		opening.Go(func() {
			_, err := other.OpenSession(context.Background(), f.request())
			e, ok := errors.AsType[*api.Error](err)
			if err != nil && (!ok || e.Code != api.CodeBusy || !strings.Contains(e.Message, "3 sessions are open")) {
				t.Error(err)
			}
			if err != nil {
				refused.Add(1)
			}
		})
	}
	opening.Wait()
	if all, err := c.LedgerSessions(context.Background()); err != nil || len(all) != 3 || refused.Load() != 4 {
		t.Errorf("%d sessions are on record, %d were refused; %v", len(all), refused.Load(), err)
	}
	other.Close()
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.open(c)
}

// TestNoEvidence: whatever cannot be recorded is refused for that reason.
func TestNoEvidence(t *testing.T) {
	f := newFixture(t)
	e := f.bare(nil)
	o := f.under(e)
	caller, ctx := api.Caller{Conn: 1}, context.Background()
	e.dies(t)
	look := act.Request{Session: o.Session, Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.List, Resource: act.Resource{Text: "."}}}}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"open", func() error { _, err := e.OpenSession(ctx, caller, f.request()); return err }},
		{"resume", func() error { _, err := e.ResumeSession(ctx, caller, o.Session, o.Token); return err }},
		{"decide", func() error { _, err := e.Decide(ctx, caller, look); return err }},
		{"finish", func() error { _, err := e.Finish(ctx, caller, o.Session, o.Session+"/2", act.Outcome{}); return err }},
		{"close", func() error { return e.CloseSession(ctx, caller, o.Session) }},
		{"status", func() error { _, err := e.Status(ctx, caller); return err }},
	} {
		if err := c.do(); !errors.Is(err, errNoEvidence) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
