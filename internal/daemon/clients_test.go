package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
	"ringfence/internal/sys/ipc"
)

// A process that is a client until it is killed.
func process(t *testing.T) (c api.Caller, kill func()) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return api.Caller{Conn: 1, Peer: ipc.Peer{PID: cmd.Process.Pid, UID: uint32(os.Geteuid()), HasUID: true}}, kill
}

// bodies returns the bodies of the entries of a type, as text.
func (e *Engine) bodies(t *testing.T, kind string) (all []string) {
	t.Helper()
	err := e.ledger.Entries(context.Background(), ledger.Query{Types: []string{kind}}, func(r ledger.Record) error {
		all = append(all, string(r.Body))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestKilledClient: a session ends with the process that could have resumed it, under
// the engine that it had or the next, and the record says so.
func TestKilledClient(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t)
	e := f.bare(nil)
	first, killFirst := process(t)
	second, killSecond := process(t)
	open := func(c api.Caller) api.Opened {
		o, err := e.OpenSession(ctx, c, f.request())
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	one, two := open(first), open(second)
	killFirst()
	e.Gone(first, []string{one.Session})
	e.work.Wait() // for less than the grace
	if got := e.bodies(t, entryEnd); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("its client was lost: process %d ended", first.Peer.PID)) {
		t.Errorf("ends on record: %s", got)
	}
	e.dies(t)
	e = f.bare(nil)
	if due, _ := e.due(); len(due) != 0 {
		t.Error("a session ends whose client lives")
	}
	e.dies(t)
	killSecond()
	e = f.bare(nil)
	if _, err := e.ResumeSession(ctx, second, two.Session, two.Token); !errors.Is(err, api.ErrNoSession) {
		t.Errorf("resumed: %v", err)
	}
	due, _ := e.due()
	if err := e.expire(ctx, due); err != nil {
		t.Fatal(err)
	}
	if got := e.bodies(t, entryEnd); len(got) != 2 || !strings.Contains(got[1], fmt.Sprintf("process %d ended", second.Peer.PID)) {
		t.Errorf("ends on record: %s", got)
	}
	e.dies(t)
}

// TestStopNamesSessions: an engine is not stopped while sessions are open, and says
// which; one that is stopped all the same loses none of them.
func TestStopNamesSessions(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	r := f.request()
	r.Verb = "run"
	s, err := c.OpenSession(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Stop(context.Background(), false)
	want := fmt.Sprintf("%s (run by default/test, process %d, since ", s.Opened().Session, os.Getpid())
	if !errors.Is(err, api.ErrRefused) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want a refusal with %q", err, want)
	}
	if st, err := c.Status(context.Background()); err != nil || len(st.Open) != 1 || !strings.HasPrefix(st.Open[0].String(), want) {
		t.Errorf("%v, %+v", err, st.Open)
	}
	if err := api.StopAny(context.Background(), api.Options{Home: f.home}, true); err != nil {
		t.Fatal(err)
	}
	f.end()
	f.start(Options{})
	glance(t, s)
	r.Verb = "Run!"
	if _, err := c.OpenSession(context.Background(), r); err == nil {
		t.Error("a verb that is none is taken")
	}
}

// asking opens a session that asks at the desk, and returns once it waits there.
func (f *fixture) asking(e *Engine, decided chan<- error) {
	f.t.Helper()
	ctx, caller := context.Background(), api.Caller{Conn: 1}
	events, err := e.desk.Watch(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	r := f.request()
	r.Ask = api.AskDesk
	o, err := e.OpenSession(ctx, caller, r)
	if err != nil {
		f.t.Fatal(err)
	}
	go func() {
		ticket, err := e.Decide(ctx, caller, act.Request{
			Session: o.Session, Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Create, Resource: act.Resource{Text: "a"}}},
		})
		if err == nil && (ticket.Verdict != act.Deny || ticket.Code != act.CodeNoAnswer || !strings.Contains(ticket.Reason, "was stopped")) {
			err = fmt.Errorf("%+v", ticket)
		}
		decided <- err
	}()
	<-events
}

// TestAskedWhenTheEngineEnds: who waits for a person when the engine is stopped is
// denied and told why. What a killed one left is answered on record by the next, once.
func TestAskedWhenTheEngineEnds(t *testing.T) {
	f := newFixture(t)
	decided := make(chan error, 1)
	e := f.bare(nil)
	f.asking(e, decided)
	e.desk.Close()
	if err := <-decided; err != nil {
		t.Error(err)
	}
	if got := e.bodies(t, gate.EntryAnswer); len(got) != 1 || !strings.Contains(got[0], "was stopped") {
		t.Errorf("answers on record: %s", got)
	}
	e.dies(t)
	e = f.bare(nil)
	f.asking(e, decided)
	e.dies(t)
	e.desk.Close()
	if err := <-decided; err == nil {
		t.Error("decided without a record")
	}
	e = f.bare(nil)
	for range 2 {
		for _, w := range e.allWaiting() {
			w.settled = false
		}
		if err := e.settle(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.bodies(t, gate.EntryAnswer); len(got) != 2 || !strings.Contains(got[1], "ended before anybody had answered") {
		t.Errorf("answers on record: %s", got)
	}
	if got := e.bodies(t, gate.EntryDecision); len(got) != 2 || !strings.Contains(got[1], `"verdict":"deny"`) {
		t.Errorf("decisions on record: %s", got)
	}
	e.dies(t)
}

// TestStoppedWhileAsking: the denial reaches the client before its connection ends.
func TestStoppedWhileAsking(t *testing.T) {
	f := newFixture(t).start(Options{})
	r := f.request()
	r.Ask = api.AskDesk
	c := f.client()
	s, err := c.OpenSession(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	go func() {
		_ = c.WatchQuestions(watching, func(api.QuestionEvent) error { return api.StopAny(watching, api.Options{Home: f.home}, true) })
	}()
	ticket, err := s.Decide(watching, act.Request{Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Create, Resource: act.Resource{Text: "a"}}}})
	if err != nil || ticket.Verdict != act.Deny || ticket.Code != act.CodeNoAnswer {
		t.Errorf("%+v, %v", ticket, err)
	}
}
