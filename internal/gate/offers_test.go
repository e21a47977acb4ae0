package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// offer is a request about versions; "npm:a@1 5" is one with its age.
func offer(kind act.Kind, packages ...string) act.Request {
	r := act.Request{Verb: act.VerbOffers, Args: []byte(`{"url":"https://registry.test/a"}`)}
	for _, p := range packages {
		text, hours, aged := strings.Cut(p, " ")
		e := act.Effect{Kind: kind, Resource: act.Resource{Type: act.Package, Text: text}}
		if aged {
			var n int64
			fmt.Sscan(hours, &n) //nolint:errcheck // the cases are ours
			e.Resource.Facts = map[string]any{act.FactAgeHours: n}
		}
		r.Direct = append(r.Direct, e)
	}
	return r
}

// olderThan allows packages of that age, and asks about those named "odd".
func olderThan(hours int64) judge {
	return func(q policy.Query) policy.Decision {
		r := q.Effects[0].Resource
		age, ok := r.Facts[act.FactAgeHours].(int64)
		switch {
		case strings.Contains(r.Text, ":odd"):
			return policy.Decision{Verdict: act.Escalate}
		case ok && age >= hours:
			return policy.Decision{Verdict: act.Allow}
		}
		return policy.Decision{Rules: []string{"c1.1"}, Reason: "denied: too young."}
	}
}

func TestOffers(t *testing.T) {
	many := make([]string, maxOffers+1)
	for i := range many {
		many[i] = fmt.Sprintf("npm:a@1.0.%d 50", i)
	}
	for _, c := range []struct {
		name     string
		req      act.Request
		code     act.Code
		withheld []string
	}{
		{"young ones are withheld", offer(act.Install, "npm:a@1.0.0 50", "npm:a@1.1.0 47", "npm:a@2.0.0"), "", []string{"1", "2"}},
		{"all are too young", offer(act.Install, "npm:a@1.0.0 1", "npm:a@1.1.0 47"), act.CodePolicy, nil},
		{"an age below zero is none", offer(act.Install, "npm:a@1.0.0 -50"), act.CodePolicy, nil},
		{"a name alone: one could be old enough", offer(act.Install, "npm:@a/b"), "", nil},
		{"what a person would be asked about is shown", offer(act.Install, "npm:odd@1.0.0 1"), "", nil},
		{"modules of Go", offer(act.Install, "go:example.test/M/v2@v2.0.0 50"), "", nil},
		{"a path that is none", offer(act.Install, "go:example.test//x@v2.0.0 50"), act.CodeUnresolved, nil},
		{"a Debian version", offer(act.Install, "debian:libstdc++6@1:12~rc1-2+b1 50"), "", nil},
		{"nothing", offer(act.Install), act.CodeInvalid, nil},
		{"too many", offer(act.Install, many...), act.CodeInvalid, nil},
		{"another effect", offer(act.Fetch, "https://a.test/"), act.CodeInvalid, nil},
		{"two packages", offer(act.Install, "npm:a@1.0.0 50", "npm:b@1.0.0 50"), act.CodeInvalid, nil},
		{"no package", offer(act.Install, "a"), act.CodeUnresolved, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, olderThan(48))
			got := b.decide(c.req)
			if (got.Verdict == act.Allow) != (c.code == "") || got.Code != c.code || !slices.Equal(got.Filter.LeaveOut, c.withheld) {
				t.Fatalf("got %s %s withholding %v: %s", got.Verdict, got.Code, got.Filter.LeaveOut, got.Reason)
			}
			if types := b.record.types(); !strings.HasPrefix(types[len(types)-1], EntryDecision) {
				t.Errorf("recorded %v, which does not end in a decision", types)
			}
			if c.code == "" && (len(got.Effects) != 1 || strings.Contains(got.Effects[0].Resource.Text[5:], "@1")) {
				t.Errorf("the record is of %v, not of the name", got.Effects)
			}
		})
	}
}

// TestAgeOfAnInstall: the age that a registry says is what the policy sees.
func TestAgeOfAnInstall(t *testing.T) {
	b := newBench(t, olderThan(48))
	for text, want := range map[string]act.Verdict{"npm:a@1.0.0 48": act.Allow, "npm:a@1.0.0 47": act.Deny, "npm:a@1.0.0": act.Deny} {
		r := offer(act.Install, text)
		r.Verb = act.VerbEffect
		if got := b.decide(r); got.Verdict != want {
			t.Errorf("%s: %s %s", text, got.Verdict, got.Reason)
		}
	}
}

// TestVouch: a request by which a package is installed, or a model asked, is implied by
// that; one that stands alone is not, and no other kind of effect ever is.
func TestVouch(t *testing.T) {
	implied := func(kinds ...act.Kind) string {
		var said []string
		b := newBench(t, func(q policy.Query) policy.Decision {
			for _, e := range q.Effects {
				said = append(said, fmt.Sprint(e.Kind, " ", e.Implied))
			}
			return policy.Decision{Verdict: act.Allow}
		})
		r := act.Request{Verb: act.VerbEffect, Args: []byte(`{"method":"POST"}`)}
		text := map[act.Kind]string{act.Send: "https://a.test/", act.Fetch: "https://a.test/", act.Infer: "p/m", act.Install: "npm:a@1.0.0", act.Connect: "a.test:443"}
		for _, k := range kinds {
			r.Direct = append(r.Direct, act.Effect{Kind: k, Resource: act.Resource{Text: text[k]}, Implied: true})
		}
		b.decide(r)
		return strings.Join(said, ", ")
	}
	for want, kinds := range map[string][]act.Kind{
		"send true, infer false":     {act.Send, act.Infer},
		"install false, fetch true":  {act.Install, act.Fetch},
		"send false":                 {act.Send},
		"connect false, infer false": {act.Connect, act.Infer},
	} {
		if got := implied(kinds...); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
