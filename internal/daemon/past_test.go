package daemon

import (
	"context"
	"crypto/ed25519"
	"slices"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
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
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
}
