package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestSecretsNowhereInTheRecord: a credential is in no part of any entry, also
// not where effects, tool names and reasons repeat what the agent wrote.
func TestSecretsNowhereInTheRecord(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	deny := func(q policy.Query) policy.Decision {
		return policy.Decision{Reason: "denied: " + q.Effects[0].Resource.Text}
	}
	many := act.Request{Verb: act.VerbEffect}
	for i := range 5000 {
		many.Direct = append(many.Direct, direct(act.Read, fmt.Sprintf("/ghp_16C7e42F292c6912E7710c838347Ae%06d", i)).Direct...)
	}
	for _, r := range []act.Request{
		read(token), many,
		{Verb: act.VerbCall, Tool: "files." + token, Args: []byte(`{}`)},
		{Verb: act.VerbCall, Tool: "files.read", Args: []byte(`{"path":{"` + token + `":1}}`)},
		direct(act.Read, "/"+token),
	} {
		b := newBench(t, deny).list()
		b.decide(r)
		if len(b.record.entries) != 2 {
			t.Errorf("recorded %v", b.record.types())
		}
		for _, e := range b.record.entries {
			if strings.Contains(string(e.Body), "ghp_") || !json.Valid(e.Body) {
				t.Errorf("%s: %.300s", e.Type, e.Body)
			}
		}
	}
}

// TestCancelledIsOnRecord: a client that gives up, before, while or after a person
// is asked, leaves no question without its answer and decision, and is allowed
// nothing.
func TestCancelledIsOnRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		judge  judge
		answer Answer
		want   []string
	}{
		{"not asked", allow, Answer{}, []string{"request", "decision"}},
		{"while asked", asks("c1"), Answer{ID: "q"}, []string{"request!", "question!", "answer!", "decision!"}},
		{"approved meanwhile", asks("c1"), Answer{ID: "q", Approved: true}, []string{"request!", "question!", "answer!", "decision!"}},
	} {
		b := newBench(t, c.judge).list()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		b.people.answer, b.people.before = c.answer, cancel
		if c.name == "not asked" {
			cancel()
		} else if !c.answer.Approved {
			b.people.err = context.Canceled
		}
		r := read("a")
		r.Session = "s"
		got, err := New(b.o).Decide(ctx, r)
		if err != nil || got.Verdict != act.Deny {
			t.Errorf("%s: %v %+v", c.name, err, got)
		}
		if types := b.record.types(); !slices.Equal(types, c.want) {
			t.Errorf("%s: recorded %v, want %v", c.name, types, c.want)
		}
	}
}

// TestResultOfALostClient: a result that comes in while the client goes away is on
// record.
func TestResultOfALostClient(t *testing.T) {
	b := newBench(t, allow).list()
	ticket := b.decide(read("a"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := New(b.o).Finish(ctx, ticket, act.Outcome{Body: []byte(`{}`)}); err != nil {
		t.Error(err)
	}
	if types := b.record.types(); types[len(types)-1] != EntryResult {
		t.Errorf("recorded %v", types)
	}
}

// TestOutcomesSurviveAFullDisk: what could not be recorded is recorded later, as
// orphaned.
func TestOutcomesSurviveAFullDisk(t *testing.T) {
	b := newBench(t, allow).list()
	g := New(b.o)
	b.run.Session.Drain()
	first := b.decide(read("a"))
	b.decide(read("b"))
	b.record.failAt = 1
	if _, err := g.Finish(context.Background(), first, act.Outcome{}); err == nil {
		t.Error("an outcome without a record was given out")
	}
	if err := g.Orphan(context.Background(), b.run); err == nil {
		t.Error("orphans that could not be recorded are no error")
	}
	b.record.failAt = 0
	if err := g.Orphan(context.Background(), b.run); err != nil {
		t.Fatal(err)
	}
	if types := b.record.types(); !slices.Equal(types[4:], []string{"result!", "result!"}) {
		t.Errorf("recorded %v", types)
	}
}

// TestTicketsAreBounded: a client that never finishes its tickets gets no more.
func TestTicketsAreBounded(t *testing.T) {
	b := newBench(t, allow).list()
	for i := range 10_000 {
		got := b.decide(read("a"))
		if got.Verdict != act.Allow {
			if i < 1000 || got.Code != act.CodeInternal {
				t.Errorf("request %d: %s %s", i, got.Code, got.Reason)
			}
			return
		}
	}
	t.Error("10,000 tickets are open")
}

// TestLabelsOfADecision: labels that a decision gives are in its entry, so that
// they outlive the engine.
func TestLabelsOfADecision(t *testing.T) {
	b := newBench(t, allow).list()
	b.decide(write("a"))
	b.decide(write("b"))
	for i, want := range []bool{false, true, false, false} {
		if got := strings.Contains(string(b.record.entries[i].Body), `"labels":["private-data"]`) && b.record.entries[i].Type == EntryDecision; got != want {
			t.Errorf("entry %d: %s", i, b.record.entries[i].Body)
		}
	}
}

// TestLargeRequestsAreOnRecord: no request is so large that it is denied without an
// entry.
func TestLargeRequestsAreOnRecord(t *testing.T) {
	many := act.Request{Verb: act.VerbEffect}
	for i := range 20_000 {
		many.Direct = append(many.Direct, direct(act.Read, fmt.Sprintf("/%d", i)).Direct...)
	}
	for _, r := range []act.Request{
		many,
		{Verb: act.VerbCall, Tool: strings.Repeat("é", 2<<20), Args: []byte(`{}`)},
		{Verb: act.VerbCall, Tool: "files." + strings.Repeat("x", 2<<20), Args: []byte(`{}`)},
		{Verb: act.VerbList, Tool: strings.Repeat("x", 2<<20), Args: []byte(`{}`)},
		read(strings.Repeat("x", 2<<20)),
		read(`a","` + strings.Repeat("x", 2<<20) + `":"b`),
	} {
		b := newBench(t, allow).list()
		if got := b.decide(r); got.Verdict != act.Deny || len(got.Reason) > 16<<10 {
			t.Errorf("%.40s: %s with %d bytes of reason", r.Tool, got.Verdict, len(got.Reason))
		}
		if types := b.record.types(); !slices.Equal(types, []string{"request", "decision"}) {
			t.Errorf("recorded %v", types)
		}
		for _, e := range b.record.entries {
			if len(e.Body) > 1<<20 {
				t.Errorf("%.40s: %s has %d bytes", r.Tool, e.Type, len(e.Body))
			}
		}
	}
}
