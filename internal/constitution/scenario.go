package constitution

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// A Scenario is a case that a policy must decide in one way: one line of
// scenarios.jsonl. It holds under [ScenarioBinding].
type Scenario struct {
	ID        string           `json:"id"`               // "c3.2"; "invariant.1"
	Clause    string           `json:"clause,omitempty"` // the clause it was made for
	Case      string           `json:"case"`             // what it is an example of: "inside", "lookalike", "approved"
	Principal string           `json:"principal"`        // "persona/agent"
	Tool      string           `json:"tool,omitempty"`
	Effects   []act.Effect     `json:"effects"`
	Args      map[string]any   `json:"args,omitempty"`
	Labels    []act.Label      `json:"labels,omitempty"`
	Approved  []string         `json:"approved,omitempty"` // clause ids, without the layer
	Counts    map[string]int64 `json:"counts,omitempty"`
	Now       time.Time        `json:"now"`
	Verdict   string           `json:"verdict"` // "allow", "escalate", "deny"; "not-allow" is one of the last two
}

// maxScenarios bounds the cases of one bundle, so that a long constitution still
// compiles quickly; each clause has at least one.
const maxScenarios = 2000

// scenarioTime is when scenarios happen unless they are about time.
var scenarioTime = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// scenarios returns the cases of c, with the verdicts that the oracle gives.
func scenarios(c *Compiled) []Scenario {
	o := &oracle{clauses: c.Clauses, lists: c.Lists, granting: c.Granting, members: map[policy.Pattern][]policy.Pattern{}}
	each := max(1, min(40, maxScenarios/max(1, len(c.Clauses))))
	all := invariants()
	seen := map[string]bool{}
	for i := range c.Clauses {
		cl := &c.Clauses[i]
		if cl.Modality == policy.Advice {
			continue
		}
		x := &examples{clause: cl, lists: c.Lists, limit: each, seen: seen}
		x.make()
		for n, s := range x.out {
			if host, _ := cutPort(hostOf(s.Effects[0].Resource)); c.Source.Layer != "" && private(host) && host != "localhost" && !isAddress(host) {
				continue // no layer above could grant it without naming it
			}
			s.ID = fmt.Sprintf("%s.%d", cl.ID, x.from+n+1)
			s.Verdict = o.verdict(s.question()).String()
			all = append(all, s)
			if s.Verdict == act.Escalate.String() {
				yes := s
				yes.ID, yes.Case, yes.Approved = s.ID+".approved", s.Case+", approved", []string{cl.ID}
				yes.Verdict = o.verdict(yes.question()).String()
				all = append(all, yes)
			}
		}
	}
	return all
}

func (s *Scenario) question() *question {
	return &question{
		effect: s.Effects[0], principal: s.Principal, tool: s.Tool, args: s.Args, labels: s.Labels,
		approved: s.Approved, counts: s.Counts, now: s.Now,
	}
}

// invariants are cases that hold whatever a constitution says.
func invariants() []Scenario {
	var all []Scenario
	add := func(what, verdict string, k act.Kind, text, class string) {
		s := Scenario{ID: fmt.Sprintf("invariant.%d", len(all)+1), Case: what, Principal: "nobody/nothing", Now: scenarioTime, Verdict: verdict}
		if k != "" {
			r := act.Resource{Type: k.On(), Text: text}
			if class != "" {
				r.Facts = map[string]any{act.FactClass: class}
			}
			s.Effects = []act.Effect{{Kind: k, Resource: r}}
		}
		all = append(all, s)
	}
	add("a request without effects", "deny", "", "", "")
	add("own state is out of reach", "deny", act.Read, "/home/user/.ringfence/ledger/ledger.db", "own-state")
	add("own state is out of reach", "deny", act.Overwrite, "/work/project/policy.cedar", "own-state")
	add("the metadata service is never reached", "deny", act.Fetch, "http://169.254.169.254/", "metadata")
	add("what runs later needs a person", "not-allow", act.Overwrite, "/work/project/.git/hooks/pre-commit", "runs-later")
	add("credentials need a person", "not-allow", act.Read, "/home/user/.ssh/id_ed25519", "credentials")
	add("a kind that is not in the table", "deny", "no-such-kind", "/work/project/a", "")
	return all
}

// query is s as the policy is asked.
func (s *Scenario) query(layer string) policy.Query {
	prefix := ""
	if layer != "" {
		prefix = layer + ":"
	}
	q := policy.Query{Principal: s.Principal, Tool: s.Tool, Effects: s.Effects, Args: s.Args, Labels: s.Labels, Now: s.Now}
	for _, a := range s.Approved {
		q.Approved = append(q.Approved, prefix+a)
	}
	q.Counts = func(clause string) int64 { return s.Counts[strings.TrimPrefix(clause, prefix)] }
	return q
}

// A Mismatch is a scenario that came out otherwise than it must.
type Mismatch struct {
	Scenario Scenario
	Got      act.Verdict
	Reason   string
}

// Check runs scenarios through p, in which the layer that they are about has the
// name layer, and returns those that come out otherwise than they must.
func Check(p *policy.Policy, layer string, all []Scenario) []Mismatch {
	var bad []Mismatch
	for _, s := range all {
		d := p.Decide(s.query(layer))
		got := d.Verdict.String()
		if got == s.Verdict || s.Verdict == "not-allow" && d.Verdict != act.Allow {
			continue
		}
		bad = append(bad, Mismatch{Scenario: s, Got: d.Verdict, Reason: d.Reason})
	}
	return bad
}

// everything is a granting layer beneath which a lower one is tried alone. What
// is private must be named.
const everything = `@id("everything") permit (principal, action, resource);
@id("everything-v4") permit (principal, action, resource in Network::"0.0.0.0/0");
@id("everything-v6") permit (principal, action, resource in Network::"::/0");
@id("everything-here") permit (principal, action, resource in Host::"localhost");
`

// verify loads the policy of c and runs its scenarios.
func verify(c *Compiled) error {
	layers := []policy.Layer{{Name: c.Source.Layer, Text: c.Cedar, Lists: c.Lists}}
	if c.Source.Layer != "" {
		layers = append(layers, policy.Layer{Text: []byte(everything)})
	}
	p, err := policy.Load(layers, scenarioBinding)
	if err != nil {
		return fmt.Errorf("loading the policy of %s: %w", c.Source.Name, err)
	}
	return mismatch(c, Check(p, c.Source.Layer, c.Scenarios))
}

// mismatch returns an error that names the first scenarios that failed.
func mismatch(c *Compiled, bad []Mismatch) error {
	if len(bad) == 0 {
		return nil
	}
	e := &Errors{Name: c.Source.Name}
	for _, m := range bad[:min(len(bad), 20)] {
		f := Finding{Line: 1, Column: 1, Severity: Failure, Clause: m.Scenario.Clause}
		for _, cl := range c.Clauses {
			if cl.ID == m.Scenario.Clause {
				f.Line, f.Column = cl.Line, cl.Column
				break
			}
		}
		effect := "a request without effects"
		if len(m.Scenario.Effects) > 0 {
			effect = m.Scenario.Effects[0].String()
		}
		f.Message = fmt.Sprintf("scenario %s (%s): %s gives %s, and must give %s", m.Scenario.ID, m.Scenario.Case, effect, m.Got, m.Scenario.Verdict)
		e.Findings = append(e.Findings, f)
	}
	return e
}

// marshalScenarios writes scenarios as JSON Lines.
func marshalScenarios(all []Scenario) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, s := range all {
		if err := enc.Encode(s); err != nil {
			return nil, fmt.Errorf("writing scenario %s: %w", s.ID, err)
		}
	}
	return b.Bytes(), nil
}

// ParseScenarios reads scenarios.jsonl. Numbers of arguments and facts come back
// as int64.
func ParseScenarios(data []byte) ([]Scenario, error) {
	var all []Scenario
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var s Scenario
		if err := strictjson.Unmarshal(bytes.TrimSpace(text), &s); err != nil {
			return nil, fmt.Errorf("reading scenarios: line %d:%w", line, err)
		}
		whole(s.Args)
		for i := range s.Effects {
			whole(s.Effects[i].Resource.Facts)
		}
		all = append(all, s)
	}
	return all, nil
}

// whole makes the whole numbers among values int64.
func whole(values map[string]any) {
	for k, v := range values {
		switch n := v.(type) {
		case float64:
			if n == float64(int64(n)) {
				values[k] = int64(n)
			}
		case json.Number:
			if i, err := n.Int64(); err == nil {
				values[k] = i
			}
		}
	}
}

// caseKey is what makes two scenarios the same.
func caseKey(s *Scenario) string {
	e := s.Effects[0]
	return fmt.Sprint(e.Kind, e.Resource.Text, e.Resource.Facts, e.Group, s.Principal, s.Tool, s.Args, slices.Sorted(slices.Values(s.Labels)), s.Counts, s.Now.Unix())
}
