package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
)

// TestBoxes: the box of a ticket is on record before its program starts, and a
// record that fits nothing is refused.
func TestBoxes(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	s := f.open(c)
	ticket := glance(t, s).ID
	report := json.RawMessage(`{"tier":"native"}`)
	if err := s.RecordBox(context.Background(), "", ticket, "box: native", report); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]api.BoxRecord{
		"of nothing":           {Box: "box: native", Report: report},
		"of no decision":       {Ticket: s.Opened().Session + "/99", Box: "box: native", Report: report},
		"of both":              {Ticket: ticket, Server: "fs", Box: "box: native", Report: report},
		"of another session":   {Ticket: "other/1", Box: "box: native", Report: report},
		"of an unknown server": {Server: "nosuch", Box: "box: native", Report: report},
		"without a line":       {Ticket: ticket, Report: report},
		"without a report":     {Ticket: ticket, Box: "box: native"},
		"of any length":        {Ticket: ticket, Box: strings.Repeat("x", maxBoxLine+1), Report: report},
	} {
		if err := s.RecordBox(context.Background(), bad.Server, bad.Ticket, bad.Box, bad.Report); err == nil {
			t.Errorf("a box %s was recorded", what)
		}
	}
	if got := f.entries(c, s.Opened().Session); !slices.Equal(got, []string{"session-start", "request", "decision", "box"}) {
		t.Errorf("on record: %q", got)
	}
}

// TestBoxOfTicketGivenUp: when an engine dies between a decision and its box, the next
// one records that nothing is known of the ticket. No program starts on it after that,
// nor on one that is over.
func TestBoxOfTicketGivenUp(t *testing.T) {
	f := newFixture(t)
	e := f.bare(time.Now)
	o := f.under(e)
	ctx, caller := context.Background(), api.Caller{Conn: 1}
	box := api.BoxRecord{Ticket: o.Session + "/2", Box: "box: native", Report: json.RawMessage(`{"tier":"native"}`)}
	if err := e.RecordBox(ctx, caller, o.Session, box); err != nil {
		t.Fatal(err)
	}
	e.dies(t)

	e = f.bare(time.Now)
	if _, err := e.ResumeSession(ctx, caller, o.Session, o.Token); err != nil {
		t.Fatal(err)
	}
	if err := e.RecordBox(ctx, caller, o.Session, box); err == nil || !strings.Contains(err.Error(), "not under way") {
		t.Errorf("of a ticket that was given up: %v", err)
	}
	again, err := e.Decide(ctx, caller, act.Request{
		Session: o.Session, Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.List, Resource: act.Resource{Text: "."}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	box.Ticket = again.ID
	if err := e.RecordBox(ctx, caller, o.Session, box); err != nil {
		t.Errorf("of a new ticket: %v", err)
	}
	if _, err := e.Finish(ctx, caller, o.Session, again.ID, act.Outcome{}); err != nil {
		t.Fatal(err)
	}
	if err := e.RecordBox(ctx, caller, o.Session, box); err == nil {
		t.Error("of a ticket that is over: it is on record")
	}
}
