package corpus

import (
	"fmt"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestFS31ManyRules: the 257th and the 10,001st rule are honoured like the first.
func TestFS31ManyRules(t *testing.T) {
	const rules = 10001
	var text strings.Builder
	text.WriteString(`@id("c0") permit (principal, action == Action::"read", resource in Path::"/d");` + "\n")
	for i := 1; i <= rules; i++ {
		fmt.Fprintf(&text, `@id("c%d") forbid (principal, action == Action::"read", resource in Path::"/d/%d");`+"\n", i, i)
	}
	p, err := policy.Load([]policy.Layer{{Text: []byte(text.String())}}, policy.Binding{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]act.Verdict{1: act.Deny, 256: act.Deny, 257: act.Deny, rules - 1: act.Deny, rules: act.Deny, rules + 1: act.Allow} {
		got := p.Decide(policy.Query{Principal: "default/test", Effects: []act.Effect{{
			Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: fmt.Sprintf("/d/%d/x", i)},
		}}})
		if got.Verdict != want {
			t.Errorf("rule %d: %s, want %s", i, got.Verdict, want)
		}
	}
}
