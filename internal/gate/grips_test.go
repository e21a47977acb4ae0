package gate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/policy"
)

// TestWithout: what a box does not have and what it holds is not decided about, and is
// hidden and held in what is dispatched; the rest is as strict as ever. What waits for a
// review is not asked about, and what is forbidden is not for a review to allow.
func TestWithout(t *testing.T) {
	const (
		anything = `permit(principal, action, resource);`
		secrets  = `@id("s") forbid(principal, action in [Action::"read", Action::"list"], resource in Path::"${workspace}/secrets");`
		docs     = `@id("d") forbid(principal, action == Action::"create", resource in Path::"${workspace}/docs");`
		deleting = `@id("del") forbid(principal, action == Action::"delete", resource) unless {context.approved.contains("del")};`
		running  = `@id("run") forbid(principal, action == Action::"execute", resource) unless {context.approved.contains("run")};`
	)
	for name, c := range map[string]struct {
		policy, more string
		want         act.Verdict
		rule         string // asked about, or that denies
		hide, hold   []string
		say          string
	}{
		"nothing left out":                   {policy: secrets, want: act.Deny, rule: "s"},
		"a tree that is not there":           {policy: secrets, more: `"absent":["$/secrets"]`, want: act.Allow, hide: []string{"secrets"}, hold: []string{"secrets"}},
		"held is not hidden":                 {policy: secrets, more: `"fixed":["$/secrets"]`, want: act.Deny, rule: "s"},
		"a tree that cannot be changed":      {policy: docs, more: `"fixed":["$/docs"]`, want: act.Allow, hold: []string{"docs"}},
		"another one":                        {policy: docs, more: `"fixed":["$/other"],"absent":["$/x"]`, want: act.Deny, rule: "d"},
		"what it is in":                      {policy: docs, more: `"fixed":["$","/"],"absent":["/"]`, want: act.Deny, rule: "d"},
		"what is asked about waits":          {policy: deleting, more: `"review":true`, want: act.Allow, say: "what del asks about waits for a person"},
		"without a review it does not":       {policy: deleting, want: act.Escalate, rule: "del"},
		"no review of programs":              {policy: deleting + running, more: `"review":true`, want: act.Escalate, rule: "run", say: "what del asks"},
		"no review of other trees":           {policy: deleting, more: `"review":true,"write":["$","$/../other"]`, want: act.Escalate, rule: "del"},
		"a review of nothing":                {more: `"review":true`, want: act.Allow},
		"what is forbidden does not wait":    {policy: docs + deleting, more: `"review":true`, want: act.Deny, rule: "d"},
		"a path that is none cannot be left": {more: `"fixed":["a\u0000b"]`, want: act.Deny},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			for _, dir := range []string{"secrets", "docs", "../other"} {
				if err := os.MkdirAll(filepath.Join(b.work, dir), 0o750); err != nil {
					t.Fatal(err)
				}
			}
			p, err := policy.Load([]policy.Layer{{Text: []byte(anything + c.policy)}}, policy.Binding{Workspace: b.work, Home: "/home/u"})
			if err != nil {
				t.Fatal(err)
			}
			b.run.Policy = p
			args := `{"argv":["/bin/ls"],` + strings.TrimPrefix(","+c.more, ",") + `}`
			if !strings.Contains(c.more, `"write"`) {
				args = strings.TrimSuffix(strings.TrimSuffix(args, "}"), ",") + `,"write":["$"]}`
			}
			r := act.Request{Verb: act.VerbExec, Args: []byte(strings.ReplaceAll(args, "$", b.work))}
			now, judged := Grips(b.run, r, Given{}, policy.Circumstances{Boxed: true})
			rules := slices.Concat(now.Asked, now.Refused)
			if judged.Verdict != c.want || strings.Join(rules, " ") != c.rule || !now.Boxed || now.Principal != b.run.Session.Principal {
				t.Fatalf("%v %q: %s\n%s", judged.Verdict, rules, judged.Reason, args)
			}
			asked := false
			b.people.before = func() { asked = true }
			got := b.decide(r)
			if asked != (c.want == act.Escalate) || (got.Verdict == act.Deny) != (c.want == act.Deny) || !strings.Contains(got.Reason, c.say) {
				t.Fatalf("asked %v, %v %s", asked, got.Verdict, got.Reason)
			}
			if got.Verdict == act.Deny {
				return
			}
			var box resolve.Exec
			if err := json.Unmarshal(got.Bytes, &box); err != nil {
				t.Fatal(err)
			}
			for what, list := range map[string][2][]string{"hidden": {box.Hide, c.hide}, "held": {box.Hold, c.hold}} {
				var want []string
				for _, p := range list[1] {
					want = append(want, filepath.Join(b.work, p))
				}
				if !slices.Equal(list[0], want) {
					t.Errorf("%s %q, want %q", what, list[0], want)
				}
			}
			if strings.Contains(c.say, "del") && strings.Contains(fmt.Sprint(got.Effects), "delete") {
				t.Errorf("recorded as done: %v", got.Effects)
			}
		})
	}
}
