package policy

import (
	"testing"

	"ringfence/internal/act"
)

// TestConnections: a clause about the connection itself lets it pass as it is; one about
// what flows inside lets it be opened, and asks only for that.
func TestConnections(t *testing.T) {
	const (
		approved = ` when { context.approved.contains("c1") };`
		clause   = `@clause("c1") @line("1") @text("x") `
		connect  = `permit (principal, action == Action::"connect", resource in Host::"a.org")`
		fetch    = `permit (principal, action == Action::"fetch", resource in Host::"a.org")`
		forbid   = `forbid (principal, action == Action::"connect", resource in Host::"a.org") unless { context.approved.contains("c1") };`
	)
	for name, c := range map[string]struct {
		text     string
		approved []string
		lower    []Layer
		verdict  act.Verdict
		tunnel   bool
		inside   bool
	}{
		"connect":                {text: connect + ";", verdict: act.Allow, tunnel: true},
		"fetch":                  {text: fetch + ";", verdict: act.Allow},
		"both":                   {text: connect + ";\n" + fetch + ";", verdict: act.Allow, tunnel: true},
		"connect, asked":         {text: clause + connect + approved, verdict: act.Escalate},
		"connect, approved":      {text: clause + connect + approved, approved: []string{"c1"}, verdict: act.Allow, tunnel: true},
		"fetch, asked":           {text: clause + fetch + approved, verdict: act.Escalate, inside: true},
		"fetch, approved":        {text: clause + fetch + approved, approved: []string{"c1"}, verdict: act.Allow},
		"fetch, connect asked":   {text: fetch + ";\n" + clause + connect + approved, verdict: act.Allow},
		"fetch, connect unless":  {text: fetch + ";\n" + clause + forbid, verdict: act.Escalate, inside: true},
		"a lower layer forbids":  {text: connect + ";", lower: []Layer{{Name: "user", Text: []byte(`@clause("c1") @line("1") @text("x") forbid (principal, action == Action::"connect", resource in Host::"a.org");`)}}, verdict: act.Deny},
		"sending is forbidden":   {text: connect + ";\nforbid (principal, action == Action::\"send\", resource in Host::\"a.org\");", verdict: act.Allow},
		"one URL is forbidden":   {text: connect + ";\nforbid (principal, action == Action::\"fetch\", resource == URL::\"https://a.org/x\");", verdict: act.Allow},
		"another is forbidden":   {text: connect + ";\nforbid (principal, action == Action::\"fetch\", resource in Host::\"b.org\");", verdict: act.Allow, tunnel: true},
		"below, sending is":      {text: connect + ";", lower: []Layer{{Name: "user", Text: []byte("permit (principal, action, resource);\n" + clause + `forbid (principal, action == Action::"send", resource in Host::"a.org");`)}}, verdict: act.Allow},
		"nothing about that one": {text: `permit (principal, action == Action::"connect", resource in Host::"b.org");`, verdict: act.Deny},
	} {
		t.Run(name, func(t *testing.T) {
			q := Query{Principal: "p/a", Approved: c.approved, Effects: []act.Effect{{Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: "a.org:443"}}}}
			d := loadText(t, c.text, c.lower...).Decide(q)
			if d.Verdict != c.verdict || d.Filter.Tunnel != c.tunnel || d.Inside != c.inside {
				t.Errorf("%s, tunnel %v, inside %v: %+v", d.Verdict, d.Filter.Tunnel, d.Inside, d)
			}
		})
	}
}
