package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
)

// TestAP03Flood is AP-03 against an engine: a client asks a thousand things within seconds, half of
// them the same. What waits is bounded, each once and in order, with a digest of its own and a
// time at which it ends; the rest is denied at once; the desk answers all the while, and another
// session's question has its place.
func TestAP03Flood(t *testing.T) {
	f := newFixture(t)
	dir := f.consenting()
	f.start(Options{})
	client, person := f.client(), f.client()
	ask := func(c *api.Client) *api.Session {
		r := f.request()
		r.PolicyDir, r.Ask = dir, api.AskDesk
		s, err := c.OpenSession(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	flood := ask(client)
	ctx, give := context.WithCancel(t.Context())
	defer give()
	var mu sync.Mutex
	codes := map[act.Code]int{}
	var work sync.WaitGroup
	began := time.Now()
	room := make(chan struct{}, 200) // a connection takes 256 at once
	for i := range 1000 {
		name := "same"
		if i%2 == 0 {
			name = fmt.Sprintf("file-%04d", i)
		}
		work.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			ticket, err := flood.Decide(ctx, act.Request{Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Delete, Resource: act.Resource{Text: name}}}})
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if ticket.Verdict == act.Allow {
				t.Errorf("%s was allowed", name)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[ticket.Code]++
		})
	}
	denied := func() int {
		mu.Lock()
		defer mu.Unlock()
		return codes[act.CodeNoAnswer] + codes[act.CodeRefused]
	}
	var open []api.Question
	slowest := time.Duration(0)
	for end := time.Now().Add(time.Minute); denied() < 1000-16-64; {
		at := time.Now()
		var err error
		if open, err = person.Questions(t.Context()); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(at))
		if len(open) > 16 {
			t.Fatalf("%d wait", len(open))
		}
		if time.Now().After(end) {
			t.Fatalf("%d were denied, %v", denied(), codes)
		}
	}
	t.Logf("flooded in %s, the desk answered within %s (measured under load)", time.Since(began), slowest)
	digests := map[string]bool{}
	for _, q := range open {
		if digests[q.Digest] = true; q.Deadline.Before(time.Now()) || !strings.Contains(q.Text, "no answer by then is a no") || q.Calls > 64 || q.Calls > 1 && !strings.Contains(q.Text, fmt.Sprintf("%d identical calls wait", q.Calls)) {
			t.Errorf("%s", q.Text)
		}
	}
	if len(digests) != len(open) || !slices.IsSortedFunc(open, func(a, b api.Question) int { return a.Asked.Compare(b.Asked) }) {
		t.Errorf("%d digests of %d questions, or out of order", len(digests), len(open))
	}
	other := ask(f.client())
	go func() {
		_, _ = other.Decide(ctx, act.Request{Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Delete, Resource: act.Resource{Text: "of another"}}}})
	}()
	f.waits(person, "of another")
	if err := person.Answer(t.Context(), open[0].ID, api.Choice{Yes: true, Mark: open[0].Mark}); !errors.Is(err, api.ErrRefused) {
		t.Errorf("whoever asks approved: %v", err)
	}
	for _, q := range open {
		if err := person.Answer(t.Context(), q.ID, api.Choice{}); err != nil && !errors.Is(err, api.ErrNotFound) {
			t.Error(err)
		}
	}
	give()
	work.Wait()
}

// waits returns when a question with text is at the desk.
func (f *fixture) waits(c *api.Client, text string) {
	f.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		qs, err := c.Questions(f.t.Context())
		if err != nil {
			f.t.Fatal(err)
		}
		if slices.ContainsFunc(qs, func(q api.Question) bool { return strings.Contains(q.Text, text) }) {
			return
		}
	}
	f.t.Fatalf("nobody asks about %s", text)
}
