package gate

import (
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestEvaluate: what would be decided, with nothing recorded or counted.
func TestEvaluate(t *testing.T) {
	b := newBench(t, func(q policy.Query) policy.Decision {
		switch {
		case q.Counts("c1") > 0:
			return policy.Decision{Rules: []string{"default"}, Reason: "used up."}
		case len(q.Labels) > 0:
			return asks("c2")(q)
		}
		return allow(q)
	})
	b.run.Servers["bare"] = &Server{Name: "bare"}
	for _, c := range []struct {
		name    string
		req     act.Request
		given   Given
		verdict act.Verdict
		code    act.Code
		about   string
	}{
		{"allowed", read("a"), Given{}, act.Allow, "", ""},
		{"a named effect", direct("read", "a"), Given{}, act.Allow, "", ""},
		{"asked", read("a"), Given{Labels: []act.Label{act.LabelSecret}}, act.Escalate, "", "needs approval"},
		{"approved", read("a"), Given{Labels: []act.Label{act.LabelSecret}, Approved: []string{"c2"}}, act.Allow, "", ""},
		{"counted", read("a"), Given{Counts: map[string]int64{"c1": 1}}, act.Deny, act.CodePolicy, "used up"},
		{"no server", act.Request{Verb: act.VerbCall, Tool: "other.read"}, Given{}, act.Deny, act.CodeUnknown, "bare, files"},
		{"no annotation", act.Request{Verb: act.VerbCall, Tool: "bare.read"}, Given{}, act.Deny, act.CodeUnannotated, "bare"},
		{"no tool", act.Request{Verb: act.VerbCall, Tool: "files.erase"}, Given{}, act.Deny, act.CodeUnknown, "erase"},
		{"unresolvable", read("~root/x"), Given{}, act.Deny, act.CodeUnresolved, "~root"},
	} {
		got := Evaluate(b.run, c.req, c.given)
		if got.Verdict != c.verdict || got.Code != c.code || !strings.Contains(got.Reason, c.about) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	named := read("a")
	named.Principal = "other/agent"
	who := ""
	b.run.Policy = judge(func(q policy.Query) policy.Decision { who = q.Principal; return allow(q) })
	Evaluate(b.run, named, Given{})
	if who != "other/agent" {
		t.Errorf("judged for %q", who)
	}
	if len(b.record.entries) != 0 {
		t.Errorf("an evaluation recorded %v", b.record.types())
	}
}
