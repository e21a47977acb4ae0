package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
)

// scale returns a policy of n rules: permits on as many directories, sites and
// tools, a few forbids with names, and approvals.
func scale(tb testing.TB, n int) *Policy {
	tb.Helper()
	clauses := []Clause{
		{ID: "c1", Modality: May, Kinds: []act.Kind{act.Read, act.List}, On: []Pattern{{Type: act.Path, Beneath: "/w"}}},
		{ID: "c2", Modality: MustNever, Kinds: []act.Kind{act.Read}, On: []Pattern{{Type: act.Path, Name: "*.pem"}, {Type: act.Path, Name: ".env"}}},
		{ID: "c3", Modality: May, Kinds: []act.Kind{act.Fetch}, On: []Pattern{{Type: act.URL, Site: "*.example.org"}}},
		{ID: "c4", Modality: MustAsk, Kinds: []act.Kind{act.Delete}},
	}
	for i := len(clauses); i < n; i++ {
		c := Clause{ID: fmt.Sprintf("c%d", i+1), Modality: May}
		switch i % 4 {
		case 0:
			c.Kinds, c.On = []act.Kind{act.Read, act.Overwrite}, []Pattern{{Type: act.Path, Beneath: fmt.Sprintf("/data/%d/x", i)}}
		case 1:
			c.Kinds, c.On = []act.Kind{act.Fetch, act.Send}, []Pattern{{Type: act.URL, Site: fmt.Sprintf("h%d.example.com", i)}}
		case 2:
			c.Tools = []string{fmt.Sprintf("server%d.tool", i)}
		case 3:
			c.Modality, c.Kinds = MustNever, []act.Kind{act.Overwrite}
			c.On = []Pattern{{Type: act.Path, Beneath: fmt.Sprintf("/w/secret/%d", i)}}
		}
		clauses = append(clauses, c)
	}
	text, err := Cedar(clauses, true)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := Load([]Layer{{Text: text}}, Binding{})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func BenchmarkDecide(b *testing.B) {
	effects := map[string]act.Effect{
		"path":    {Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: "/w/internal/policy/decide.go"}},
		"url":     {Kind: act.Fetch, Resource: act.Resource{Type: act.URL, Text: "https://docs.example.org/a/b/c.html"}},
		"connect": {Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: "docs.example.org:443"}},
		"tree":    {Kind: act.List, Tree: true, Resource: act.Resource{Type: act.Path, Text: "/w/internal"}},
		"ask":     {Kind: act.Delete, Resource: act.Resource{Type: act.Path, Text: "/w/internal/policy/decide.go"}},
		"deny":    {Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: "/etc/passwd"}},
	}
	for _, n := range []int{10, 1000, 10000} {
		p := scale(b, n)
		for name := range strings.FieldsSeq("path url connect tree ask deny") {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				q := Query{Principal: "p/a", Tool: "filesystem.read", Effects: []act.Effect{effects[name]}, Now: time.Unix(1, 0)}
				for b.Loop() {
					p.Decide(q)
				}
			})
		}
	}
}
