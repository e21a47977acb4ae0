package daemon

import (
	"context"
	"crypto/ed25519"
	"slices"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
	"ringfence/internal/session"
)

// TestLabelsOutliveTheEngine: the next engine knows what results gave a session,
// and what decisions that allowed gave it.
func TestLabelsOutliveTheEngine(t *testing.T) {
	ctx := context.Background()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(ctx, t.TempDir(), ledger.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{ledger: l}
	for _, entry := range []ledger.Entry{
		{Session: "s", Type: gate.EntryDecision, Body: []byte(`{"labels":["private-data"],"verdict":"allow"}`)},
		{Session: "s", Type: gate.EntryResult, Body: []byte(`{"labels":["secret"],"ticket":"s/0"}`)},
		{Session: "s", Type: gate.EntryRequest, Body: []byte(`{"labels":["untrusted-content"]}`)},
		{Session: "s", Type: gate.EntryDecision, Body: []byte(`{"labels":["untrusted-content"],"verdict":"deny"}`)},
	} {
		if _, err := l.Append(ctx, false, entry); err != nil {
			t.Fatal(err)
		}
	}
	p, err := e.past(ctx, "s")
	if err != nil || !slices.Equal(p.labels, []act.Label{act.LabelPrivate, act.LabelSecret}) || len(p.open) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, entry := range []ledger.Entry{
		{Session: "first", Type: entryStart, Body: []byte(`{"labels":["private-data"]}`)},
		{Session: "first", Type: gate.EntryResult, Body: []byte(`{"labels":["secret"],"ticket":"s/0"}`)},
	} {
		if _, err := l.Append(ctx, false, entry); err != nil {
			t.Fatal(err)
		}
	}
	made := &run{gate: &gate.Run{Session: &session.Session{ID: "second"}}}
	var start startEntry
	if err := e.resumed(ctx, made, &start, "first"); err != nil || start.Resumes != "first" || !slices.Equal(start.Labels, []act.Label{act.LabelPrivate, act.LabelSecret}) {
		t.Errorf("a session that goes on starts with %+v, %v", start.resumed, err)
	}
	if !slices.Equal(made.gate.Session.Labels(), start.Labels) {
		t.Errorf("it has %q", made.gate.Session.Labels())
	}
	if err := e.resumed(ctx, made, &start, "s-none"); err == nil {
		t.Error("a session goes on with one that never was")
	}
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}
