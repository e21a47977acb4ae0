package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/daemon/statistics"
	"ringfence/internal/sys/paths"
)

// asked are requests to models, one after the other, and how they end.
var asked = []struct{ model, body, err string }{
	{"openai/gpt-5", `{"ms":40,"sent":1,"received":2,"status":200,"usage":{"input":1000,"output":2000,"cache_read":5,"reasoning":7},"micro_usd":999}`, ""},
	{"openai/gpt-5", `{"ms":60,"status":200,"usage":{"input":1,"output":0,"estimated":true}}`, "the budget is used up"},
	{"openai/gpt-5", `{"status":429}`, ""},
	{"openai/gpt-5", `{"status":200}`, ""}, // counted tokens: no model was asked
	{"openai/gpt-5", `not JSON`, ""},
	{"openai/gpt-5", ``, "nobody is there"},
	{"private/mine", `{"ms":5,"status":200,"usage":{"input":-4,"output":3}}`, ""},
	{"barred/one", "", ""},
	{"", `{"status":200,"usage":{"input":5,"output":5}}`, ""}, // a request to another host
}

// TestCounts: what is asked of models is counted by how it ends, and what asks none is not.
func TestCounts(t *testing.T) {
	f := newFixture(t)
	dir := f.network("The agent may contact any host.\nThe agent may use the models openai/*.\nThe agent may use the models private/*.\n")
	f.start(Options{})
	c := f.client()
	r := f.request()
	r.PolicyDir = dir
	s, err := c.OpenSession(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range asked {
		q := act.Request{Verb: act.VerbEffect, Args: []byte("{}"), Direct: []act.Effect{{Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: "a.example:443"}}}}
		if a.model != "" {
			q.Direct = append(q.Direct, act.Effect{Kind: act.Infer, Resource: act.Resource{Type: act.Model, Text: a.model}})
		}
		ticket, err := s.Decide(t.Context(), q)
		if err != nil || (ticket.Verdict == act.Allow) != (a.model != "barred/one") {
			t.Fatalf("%+v: %+v, %v", a, ticket, err)
		}
		if ticket.Verdict != act.Allow {
			continue
		}
		if _, err := s.Finish(t.Context(), ticket, act.Outcome{Body: []byte(a.body), Error: a.err}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Finish(t.Context(), ticket, act.Outcome{Body: []byte(a.body)}); err == nil {
			t.Errorf("%+v is over twice", a)
		}
	}
	f.end()
	for by, want := range map[string][]statistics.Row{
		"model": {
			{Name: "openai/gpt-5", Requests: 5, Cut: 1, Failed: 3, Input: 1001, Output: 2000, CacheRead: 5, Reasoning: 7, Estimated: 1, MicroUSD: 21253, MedianMS: 40, P95MS: 40},
			{Name: "private/mine", Requests: 1, Output: 3, Unpriced: 1, MedianMS: 5, P95MS: 5},
			{Name: "barred/other", Requests: 1, Denied: 1},
		},
		"persona": {{Name: "default", Requests: 7, Cut: 1, Failed: 3, Denied: 1, Input: 1001, Output: 2003, CacheRead: 5, Reasoning: 7, Estimated: 1, MicroUSD: 21253, Unpriced: 1, MedianMS: 5, P95MS: 40}},
	} {
		rows, err := statistics.Show(t.Context(), paths.StatisticsFile(f.home), statistics.Query{By: by})
		if err != nil || !slices.Equal(rows, want) {
			t.Errorf("by %s: %v\n got %+v\nwant %+v", by, err, rows, want)
		}
	}
}

// TestCountsOff: a person who wants no statistics has none.
func TestCountsOff(t *testing.T) {
	f := newFixture(t)
	if err := os.WriteFile(filepath.Join(f.home, "config.json"), []byte(`{"statistics": {"off": true}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.start(Options{})
	s := f.open(f.client())
	infer := act.Request{Verb: act.VerbEffect, Args: []byte("{}"), Direct: []act.Effect{{Kind: act.Infer, Resource: act.Resource{Type: act.Model, Text: "openai/gpt-5"}}}}
	if _, err := s.Decide(t.Context(), infer); err != nil {
		t.Fatal(err)
	}
	f.end()
	if _, err := os.Lstat(paths.StatisticsFile(f.home)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
}
