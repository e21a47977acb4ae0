package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestRefusals: every way to a denial, by its code. Each is on record.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*bench)
		req   act.Request
		code  act.Code
		about string
	}{
		{"no such verb", nil, act.Request{Verb: "tools/steal"}, act.CodeInvalid, "tools/steal"},
		{"no effects", nil, act.Request{Verb: act.VerbEffect}, act.CodeInvalid, "name its effects"},
		{"no program", nil, act.Request{Verb: act.VerbExec, Args: []byte(`{"argv":["/"]}`)}, act.CodeUnresolved, "no program"},
		{"no such program", nil, act.Request{Verb: act.VerbExec, Args: []byte(`{"argv":["/nosuch"]}`)}, act.CodeNotFound, "/nosuch"},
		{"no such effect", nil, direct("read", "~root/x"), act.CodeUnresolved, "~root"},
		{"no such server", nil, act.Request{Verb: act.VerbCall, Tool: "other.read"}, act.CodeUnknown, "files"},
		{"no server at all", func(b *bench) { b.run.Servers = nil }, read("a"), act.CodeUnknown, "none"},
		{"no server named", nil, act.Request{Verb: act.VerbCall, Tool: "read"}, act.CodeUnknown, "server.tool"},
		{"no such tool", nil, act.Request{Verb: act.VerbCall, Tool: "files.erase"}, act.CodeUnknown, "erase"},
		{"a tool misspelt", nil, act.Request{Verb: act.VerbCall, Tool: "files.raed"}, act.CodeUnknown, "did you mean read?"},
		{"un-annotated", nil, act.Request{Verb: act.VerbCall, Tool: "files.bare"}, act.CodeUnannotated, "ringfence annotate-tools --servers FILE files"},
		{"not reviewed", func(b *bench) { b.o.Pins = pinboard{status: PinDrifted}; b.list() }, read("a"), act.CodeUnpinned, "ringfence tools review files.read"},
		{"not an object", nil, act.Request{Verb: act.VerbCall, Tool: "files.read", Args: []byte(`[1]`)}, act.CodeInvalid, "object"},
		{"null", nil, act.Request{Verb: act.VerbCall, Tool: "files.read", Args: []byte(`null`)}, act.CodeInvalid, "object"},
		{"twice the same key", nil, act.Request{Verb: act.VerbCall, Tool: "files.read", Args: []byte(`{"path":"a","path":"b"}`)}, act.CodeInvalid, "path"},
		{"number beyond a double", nil, act.Request{Verb: act.VerbCall, Tool: "files.late", Args: []byte(`{"n":1e999999999}`)}, act.CodeInvalid, "double"},
		{"against the schema", nil, act.Request{Verb: act.VerbCall, Tool: "files.read", Args: []byte(`{"path":5}`)}, act.CodeInvalid, "path"},
		{"schema that cannot be used", nil, act.Request{Verb: act.VerbCall, Tool: "files.odd", Args: []byte(`{}`)}, act.CodeInvalid, "schema"},
		{"unresolvable", nil, read("~root/x"), act.CodeUnresolved, "~root"},
		{"policy", func(b *bench) { b.run.Policy = denies("c3.1") }, read("a"), act.CodePolicy, "no."},
		{"bedrock", func(b *bench) { b.run.Policy = denies("bedrock.own-state") }, read("a"), act.CodeTripwire, "no."},
		{"guard refuses", func(b *bench) { b.o.Guard = opinion{} }, read("a"), act.CodeGuard, "odd"},
		{"guard fails", func(b *bench) { b.o.Guard = opinion{act.Allow, errFull} }, read("a"), act.CodeGuard, "disk full"},
		{"nobody to ask", func(b *bench) { b.run.Policy = asks("c1"); b.o.Desk = nil }, read("a"), act.CodeNoAnswer, "Nobody can be asked"},
		{"never ask", func(b *bench) { b.run.Policy = asks("c1"); b.run.Ask.Never = true }, read("a"), act.CodeNoAnswer, "Nobody can be asked"},
		{"a no", func(b *bench) { b.run.Policy = asks("c1"); b.people.answer = Answer{Code: act.CodeRefused} }, read("a"), act.CodeRefused, "said no"},
		{"a no with a message", func(b *bench) {
			b.run.Policy = asks("c1")
			b.people.answer = Answer{Code: act.CodeRefused, Message: "use b"}
		}, read("a"), act.CodeRefused, "said no. That person tells you: use b"},
		{"no answer", func(b *bench) { b.run.Policy = asks("c1"); b.people.answer = Answer{Note: "busy"} }, read("a"), act.CodeNoAnswer, "(busy)"},
		{"desk fails", func(b *bench) { b.run.Policy = asks("c1"); b.people.err = errFull }, read("a"), act.CodeNoAnswer, "disk full"},
		{"not asked", func(b *bench) {
			b.run.Policy = asks("c1")
			b.people.err = fmt.Errorf("%w: two are needed", ErrNotAsked)
		}, read("a"), act.CodeNoAnswer, "needs approval. Nobody was asked: two are needed."},
		{"cancelled", func(b *bench) { b.run.Policy = asks("c1"); b.people.err = context.Canceled }, read("a"), act.CodeNoAnswer, "cancelled"},
		{"token used up", func(b *bench) { b.run.Policy = asks("c1"); b.people.spent = errFull }, read("a"), act.CodeNoAnswer, "could not be used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, allow).list()
			if c.setup != nil {
				c.setup(b)
			}
			b.record.entries, b.record.durable = nil, nil
			got := b.decide(c.req)
			if got.Verdict != act.Deny || got.Code != c.code || !strings.Contains(got.Reason, c.about) {
				t.Errorf("got %s %s: %s\nwant %s about %q", got.Verdict, got.Code, got.Reason, c.code, c.about)
			}
			if !strings.HasPrefix(got.Reason, "denied: ") || strings.Count(got.Reason, "denied") > 1 {
				t.Errorf("says otherwise than once that it is a denial: %s", got.Reason)
			}
			if types := b.record.types(); len(types) == 0 || !strings.HasPrefix(types[len(types)-1], EntryDecision) {
				t.Errorf("recorded %v, which does not end in a decision", types)
			}
			if left := b.run.Session.Drain(); len(left) > 1 { // the listing is still open
				t.Errorf("%d tickets are open", len(left))
			}
		})
	}
}

func direct(kind act.Kind, text string) act.Request {
	return act.Request{Verb: act.VerbEffect, Direct: []act.Effect{{Kind: kind, Resource: act.Resource{Text: text}, Tree: true}}}
}

func denies(rule string) judge {
	return func(policy.Query) policy.Decision {
		return policy.Decision{Rules: []string{rule}, Reason: "denied: no."}
	}
}

// TestNoSession: a session that is not known, or has ended, is denied.
func TestNoSession(t *testing.T) {
	b := newBench(t, allow).list()
	got, err := New(b.o).Decide(context.Background(), act.Request{Session: "other", Verb: act.VerbCall, Tool: "files.read"})
	if err != nil || got.Verdict != act.Deny || got.Code != act.CodeSession {
		t.Errorf("unknown session: %v %+v", err, got)
	}
	b.run.Session.End()
	if got := b.decide(read("a")); got.Code != act.CodeSession {
		t.Errorf("ended session: %+v", got)
	}
}

// TestAllowed: what an allowing ticket carries and what is on disk when (G2).
func TestAllowed(t *testing.T) {
	b := newBench(t, allow).list()
	b.file("a")
	got := b.decide(read("a"))
	if got.Verdict != act.Allow || string(got.Bytes) != `{"path":"`+b.work+`/a"}` || got.ID != "s/1" {
		t.Errorf("got %+v with %s", got, got.Bytes)
	}
	if want := []string{"request", "decision"}; !slices.Equal(b.record.types(), want) {
		t.Errorf("reading wrote %v, want %v", b.record.types(), want)
	}
	if !strings.Contains(string(b.record.entries[1].Body), b.work) {
		t.Errorf("the decision does not say what was dispatched instead: %s", b.record.entries[1].Body)
	}
	b.record.entries, b.record.durable = nil, nil
	b.run.Servers["files"].SetBox("box: native: seccomp")
	if got := b.decide(write("a")); got.Verdict != act.Allow {
		t.Fatal(got.Reason)
	}
	if body := string(b.record.entries[1].Body); !strings.Contains(body, `"box":"box: native: seccomp"`) {
		t.Errorf("the decision does not say what confines the server: %s", body)
	}
	if want := []string{"request!", "decision!"}; !slices.Equal(b.record.types(), want) {
		t.Errorf("writing wrote %v, want %v", b.record.types(), want)
	}
	if got := b.run.Session.Labels(); !slices.Equal(got, []act.Label{act.LabelPrivate}) {
		t.Errorf("labels are %v", got)
	}
	if got := b.decide(direct("read", "a")); got.Verdict != act.Allow || !got.Effects[0].Tree {
		t.Errorf("a named effect: %+v", got)
	}
	b.record.entries, b.record.durable = nil, nil
	got = b.decide(act.Request{Verb: act.VerbExec, Args: []byte(`{"argv":["/bin/sh"],"dir":"/"}`)})
	if want := []string{"request", "decision"}; !slices.Equal(b.record.types(), want) || !strings.Contains(string(b.record.entries[1].Body), `"durable":true`) {
		t.Errorf("a program, which starts when its box is on disk, wrote %v, want %v: %s", b.record.types(), want, b.record.entries[1].Body)
	}
	if want := `{"argv":["/bin/sh"],"dir":"/"}`; got.Verdict != act.Allow || got.Effects[0].Kind != act.Execute || string(got.Bytes) != want && !strings.Contains(string(got.Bytes), "sh") {
		t.Errorf("a program: %+v, %s", got, got.Bytes)
	}
}

// TestApproved: the question is on disk before anyone is asked, and the answer
// and the decision after.
func TestApproved(t *testing.T) {
	b := newBench(t, asks("c1", "c2")).list()
	b.people.before = func() {
		if want := []string{"request!", "question!"}; !slices.Equal(b.record.types(), want) {
			t.Errorf("when asked, %v is recorded, want %v", b.record.types(), want)
		}
	}
	got := b.decide(read("a"))
	if got.Verdict != act.Allow {
		t.Fatalf("%s %s", got.Code, got.Reason)
	}
	if want := []string{"request!", "question!", "answer!", "decision!"}; !slices.Equal(b.record.types(), want) {
		t.Errorf("recorded %v, want %v", b.record.types(), want)
	}
	if body := string(b.record.entries[3].Body); !strings.Contains(body, `"approved":["c1","c2"]`) {
		t.Errorf("the decision names no clauses: %s", body)
	}
}

// TestChangedMeanwhile: after the wait it must be the same call (G3).
func TestChangedMeanwhile(t *testing.T) {
	for _, c := range []struct {
		name   string
		before func(*bench)
	}{
		{"a link was put in place", func(b *bench) {
			if err := os.Symlink("/etc/hostname", filepath.Join(b.work, "a")); err != nil {
				b.t.Fatal(err)
			}
		}},
		{"the file exists now", func(b *bench) { b.file("a") }},
		{"it does not resolve any more", func(b *bench) {
			if err := os.Symlink("a", filepath.Join(b.work, "a")); err != nil {
				b.t.Fatal(err)
			}
		}},
		{"something else needs approval", func(b *bench) { b.run.Policy = asks("c1", "c9") }},
		{"it is forbidden now", func(b *bench) { b.run.Policy = denies("c9.1") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, asks("c1")).list()
			b.people.before = func() { c.before(b) }
			if got := b.decide(write("a")); got.Verdict != act.Deny {
				t.Errorf("allowed: %+v", got)
			}
		})
	}
}

// TestGuardTightens: a doubt becomes a question, and never a yes.
func TestGuardTightens(t *testing.T) {
	b := newBench(t, allow).list()
	b.o.Guard = opinion{verdict: act.Allow}
	if got := b.decide(read("a")); got.Verdict != act.Allow {
		t.Error(got.Reason)
	}
	b.o.Guard = opinion{verdict: act.Escalate}
	if got := b.decide(read("a")); got.Verdict != act.Allow || len(b.people.digests) != 1 {
		t.Errorf("%s, asked %d times", got.Reason, len(b.people.digests))
	}
	b.people.answer = Answer{Code: act.CodeRefused}
	if got := b.decide(read("a")); got.Code != act.CodeRefused {
		t.Errorf("%+v", got)
	}
	b.run.Policy = asks("c1")
	b.people.answer = Answer{Approved: true}
	if got := b.decide(read("a")); got.Verdict != act.Allow {
		t.Errorf("%+v", got)
	}
}

// TestR12FaultAtEveryWrite: whichever write fails, a call that may go on has
// its request and its decision on record.
func TestR12FaultAtEveryWrite(t *testing.T) {
	for _, j := range []judge{allow, asks("c1"), denies("c1.1")} {
		for failAt := 2; failAt < 6; failAt++ { // the first write is the listing
			b := newBench(t, j).list()
			b.record.failAt = failAt
			r := write("a")
			r.Session = "s"
			got, err := New(b.o).Decide(context.Background(), r)
			if err != nil && (got.Verdict != act.Deny || got.Code != act.CodeEvidence) {
				t.Errorf("fault at %d: %v, yet %+v", failAt, err, got)
			}
			if got.Verdict == act.Allow {
				types := b.record.types()
				if !slices.Contains(types, "request!") || types[len(types)-1] != "decision!" {
					t.Errorf("fault at %d: allowed with %v on record", failAt, types)
				}
				_, err := New(b.o).Finish(context.Background(), got, act.Outcome{Body: []byte(`{}`)})
				if failed := b.record.appends >= failAt; failed != errors.Is(err, errFull) {
					t.Errorf("fault at %d: finishing gives %v", failAt, err)
				}
			}
		}
	}
}

// TestEndedWhileDeciding: nothing runs in a session that ended meanwhile.
func TestEndedWhileDeciding(t *testing.T) {
	b := newBench(t, allow).list()
	b.record.hook = func() { b.run.Session.End() }
	r := read("a")
	r.Session = "s"
	got, err := New(b.o).Decide(context.Background(), r)
	if err == nil || got.Verdict != act.Deny {
		t.Errorf("%v %+v", err, got)
	}
}

// TestUnrecordable: facts that cannot be written down deny.
func TestUnrecordable(t *testing.T) {
	b := newBench(t, func(q policy.Query) policy.Decision {
		q.Effects[0].Resource.Facts = map[string]any{"bad": make(chan int)}
		return allow(q)
	}).list()
	r := read("a")
	r.Session = "s"
	got, err := New(b.o).Decide(context.Background(), r)
	if err == nil || got.Code != act.CodeEvidence {
		t.Errorf("%v %+v", err, got)
	}
}

// TestLimits: a limited clause counts what it allowed, and a place that is
// taken between judging and counting is not given twice.
func TestLimits(t *testing.T) {
	limits := map[string]policy.Limit{"c1": {Count: 1, Window: time.Hour}}
	limited := func(q policy.Query) policy.Decision {
		if q.Counts("c1") > 0 {
			return policy.Decision{Reason: "used up."}
		}
		return policy.Decision{Verdict: act.Allow, Limited: []string{"c1"}}
	}
	b := newBench(t, limited)
	b.run.Monitors = policy.NewMonitors(limits)
	b.list()
	for i, want := range []act.Verdict{act.Allow, act.Deny} {
		if got := b.decide(read("a")); got.Verdict != want {
			t.Errorf("call %d: %s %s", i, got.Verdict, got.Reason)
		}
	}
	blind := func(policy.Query) policy.Decision {
		return policy.Decision{Verdict: act.Allow, Limited: []string{"c1"}}
	}
	b.run.Policy = judge(blind)
	if got := b.decide(read("a")); got.Verdict != act.Deny || !strings.Contains(got.Reason, "used up") {
		t.Errorf("a place that was gone: %s %s", got.Verdict, got.Reason)
	}
}

// TestSecretsInArguments: a credential in a request is a label of the request,
// and the record does not hold it.
func TestSecretsInArguments(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	var seen []act.Label
	b := newBench(t, func(q policy.Query) policy.Decision { seen = q.Labels; return allow(q) }).list()
	b.decide(read(token))
	if !slices.Contains(seen, act.LabelSecret) {
		t.Errorf("policy saw the labels %v", seen)
	}
	if body := string(b.record.entries[0].Body); strings.Contains(body, `"arguments":"{\"path\":\"`+token) {
		t.Errorf("the record holds the token: %s", body)
	}
}

// TestLongArguments: of long or unreadable arguments the record keeps a digest.
func TestLongArguments(t *testing.T) {
	b := newBench(t, allow).list()
	b.decide(read(strings.Repeat("a/", maxRecorded)))
	b.decide(act.Request{Verb: act.VerbCall, Tool: "files.read", Args: []byte("{\"path\":\"\xff\"}")})
	for _, i := range []int{0, 2} {
		if body := string(b.record.entries[i].Body); strings.Contains(body, "arguments") || !strings.Contains(body, "digest") {
			t.Errorf("recorded %.200s", body)
		}
	}
}
