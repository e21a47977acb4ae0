package policy

import (
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"pgregory.net/rapid"

	"ringfence/internal/act"
)

// The oracle is Cedar's own authorizer over every rule, with the whole hierarchy
// of the resource. It shares with the program under test the reading of canonical
// texts and the definition in docs/decisions/0002, and nothing else.

// oracle returns the verdict of one layer on an effect on one path, package,
// command or tool.
func oracle(p *Policy, l *layer, q Query, e act.Effect, lists map[string]List) act.Verdict {
	permits := func(approved []string) bool {
		rules, entities := inForce(l, q, e), world(p, l, e, q, lists)
		r := cedar.Request{
			Principal: uid(typeAgent, q.Principal),
			Action:    actionUID(e.Kind),
			Resource:  uid(types.EntityType(e.Resource.Type), e.Resource.Text),
			Context:   oracleContext(q, approved),
		}
		d, diag := cedar.Authorize(rules, entities, r)
		if told != nil {
			tell(rules, entities, r, d == cedar.Allow, len(diag.Errors) > 0)
		}
		return d == cedar.Allow && len(diag.Errors) == 0
	}
	now := l.approvals(q.Approved)
	switch {
	case permits(now):
		return act.Allow
	case permits(l.every.ids):
		return act.Escalate
	}
	return act.Deny
}

// told, if set, gets each question that the oracle answers, and its answer, as a line of
// JSON: for Cedar in Rust to answer too (test/e2e, TestCedarItself).
var told *json.Encoder

func tell(rules cedar.PolicyIterator, entities types.EntityMap, r cedar.Request, allow, errs bool) {
	texts := map[cedar.PolicyID]string{}
	for id, p := range rules.All() {
		texts[id] = string(p.MarshalCedar())
	}
	err := told.Encode(map[string]any{
		"policies": texts, "entities": entities, "principal": r.Principal, "action": r.Action, "resource": r.Resource, "context": r.Context,
		"allow": allow, "errors": errs,
	})
	if err != nil {
		panic(err)
	}
}

type policies []*rule

func (ps policies) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for i := range ps { // the other way round: order must not matter
			r := ps[len(ps)-1-i]
			if !yield(cedar.PolicyID(r.id), r.policy) {
				return
			}
		}
	}
}

// inForce are the rules that have not expired, without the permits that do not
// name a private host.
func inForce(l *layer, q Query, e act.Effect) cedar.PolicyIterator {
	var ps policies
	r, _ := newResource(e)
	for _, rule := range l.rules {
		expired := !rule.expires.IsZero() && !q.Now.Before(rule.expires)
		hidden := l.grants && rule.permit && r.host != "" && privateHost(r.host) && !namesHost(rule.tree)
		if !expired && !hidden {
			ps = append(ps, rule)
		}
	}
	return ps
}

// world has every ancestor of the resource, whether or not a rule names it.
func world(p *Policy, l *layer, e act.Effect, q Query, lists map[string]List) types.EntityMap {
	r, err := newResource(e)
	if err != nil {
		panic(err)
	}
	up := slices.Clone(r.up)
	if a, ok := hostAddr(r.host); ok {
		for _, n := range l.networks {
			if n.Contains(a) {
				up = append(up, uid(typeNetwork, n.String()))
			}
		}
	}
	for name, list := range lists {
		for _, m := range list.members() {
			members, _ := memberUIDs(m, 1<<len(allKinds)-1, Binding{Workspace: "/w", Home: "/home/u"})
			for _, member := range members {
				if member == r.uid || slices.Contains(r.up, member) {
					up = append(up, uid(typeList, name))
				}
			}
		}
	}
	attrs := types.RecordMap{}
	for _, v := range r.values {
		attrs[nameTexts[v.name]] = v.val
	}
	persona, _, _ := strings.Cut(q.Principal, "/")
	server, _, _ := strings.Cut(q.Tool, ".")
	m := types.EntityMap{}
	for _, ent := range []types.Entity{
		{UID: r.uid, Parents: types.NewEntityUIDSet(up...), Attributes: types.NewRecord(attrs)},
		{UID: uid(typeAgent, q.Principal), Parents: types.NewEntityUIDSet(uid(typePersona, persona))},
		{UID: uid(typeTool, q.Tool), Parents: types.NewEntityUIDSet(uid(typeServer, server))},
		p.actions[kindOf(e.Kind)],
		argEntity(typeText, q), argEntity(typeNumber, q), argEntity(typeFlag, q),
		{UID: uid(typeCounts, "call"), Tags: types.NewRecord(types.RecordMap{"c1": types.Long(q.Counts("c1"))})},
	} {
		if _, ok := m[ent.UID]; !ok {
			m[ent.UID] = ent
		}
	}
	return m
}

func argEntity(t types.EntityType, q Query) types.Entity {
	tags := types.RecordMap{}
	for k, v := range q.Args {
		switch v := v.(type) {
		case string:
			if t == typeText {
				tags[types.String(k)] = types.String(v)
			}
		case int64:
			if t == typeNumber {
				tags[types.String(k)] = types.Long(v)
			}
		case bool:
			if t == typeFlag {
				tags[types.String(k)] = types.Boolean(v)
			}
		}
	}
	return types.Entity{UID: uid(t, "call"), Tags: types.NewRecord(tags)}
}

func oracleContext(q Query, approved []string) types.Record {
	set := func(words []string) types.Set {
		var vs []types.Value
		for _, w := range words {
			vs = append(vs, types.String(w))
		}
		return types.NewSet(vs...)
	}
	var labels []string
	for _, l := range q.Labels {
		labels = append(labels, string(l))
	}
	c := types.RecordMap{
		"approved": set(approved),
		"session":  types.NewRecord(types.RecordMap{"labels": set(labels)}),
		"counts":   uid(typeCounts, "call"),
		"hour":     types.Long(q.Now.UTC().Hour()),
		"args": types.NewRecord(types.RecordMap{
			"text": uid(typeText, "call"), "number": uid(typeNumber, "call"), "flag": uid(typeFlag, "call"),
		}),
	}
	if q.Tool != "" {
		c["tool"] = uid(typeTool, q.Tool)
	}
	return types.NewRecord(c)
}

// Generators of clauses and effects over one small universe, in which rules and
// requests meet often.

var (
	someDirs  = []string{"/", "/w", "/w/a", "/w/a/b", "/w-x", "${workspace}", "${home}", "/w/a/b/c.pem"}
	somePaths = []string{"/", "/w", "/w/a", "/w/a/b", "/w/a/b/c.pem", "/w-x", "/w-x/y", "/home/u", "/home/u/.env", "/etc/x.pem"}
	someSites = []string{
		"a.org", "*.a.org", "b.a.org", "a.org:8443", "10.0.0.0/8", "10.1.2.3", "localhost", "localhost:3000", "*.org", "x.internal",
	}
	someURLs = []string{
		"https://a.org/", "https://b.a.org/x/y", "https://a.org:8443/x", "http://10.1.2.3/", "http://192.168.1.1/x",
		"http://localhost:3000/x/y", "http://localhost/", "https://c.net/x", "https://x.internal/", "http://[::1]/",
	}
	someLists = map[string]List{
		"dirs":  {Members: []string{"/w/a/b", "~/x", "/gone"}, Removed: []string{"/gone"}},
		"sites": {Members: []string{"*.a.org", "10.1.2.3", "localhost:3000"}, Added: []string{"c.net/x"}},
	}
	someTools = []string{"", "git.push", "git.log", "fs.read"}
)

func clauseGen() *rapid.Generator[Clause] {
	return rapid.Custom(func(t *rapid.T) Clause {
		c := Clause{
			Modality: rapid.SampledFrom([]Modality{May, MayWithApproval, MustAsk, MustNever}).Draw(t, "modality"),
			Kinds:    rapid.SliceOfDistinct(rapid.SampledFrom(allKinds), rapid.ID[act.Kind]).Draw(t, "kinds"),
			When:     rapid.SliceOfN(conditionGen(), 0, 2).Draw(t, "when"),
		}
		c.Tools = pick(t, "tools", "git.push", "git.*", "fs.read")
		c.Who = pick(t, "who", "p", "p/a", "q/a")
		if rapid.Bool().Draw(t, "groups") {
			c.Groups = pick(t, "groups", act.Observe, act.RemoteGroup)
		}
		on := rapid.SampledFrom([]act.ResourceType{act.Path, act.URL, act.Repo, act.Remote, act.Command, act.Package}).Draw(t, "type")
		if !slices.ContainsFunc(c.Kinds, func(k act.Kind) bool { return k.On() == on }) {
			c.Kinds = append(c.Kinds, act.Kinds()[slices.IndexFunc(act.Kinds(), func(k act.Kind) bool { return k.On() == on })])
		}
		c.On = rapid.SliceOfN(patternGen(on), 0, 3).Draw(t, "on")
		if rapid.Bool().Draw(t, "except") {
			c.Except = []Exception{{
				Kinds: pick(t, "except kinds", act.Read, act.Fetch), Tools: pick(t, "except tools", "git.*"),
				On: rapid.SliceOfN(patternGen(on), 1, 2).Draw(t, "except on"), When: rapid.SliceOfN(conditionGen(), 0, 1).Draw(t, "except when"),
			}}
		}
		if c.Modality == May && rapid.Bool().Draw(t, "limited") {
			c.Limit = &Limit{Count: 3, Window: time.Hour}
		}
		if rapid.IntRange(0, 4).Draw(t, "expires") == 0 {
			at := time.Unix(int64(rapid.IntRange(0, 1).Draw(t, "at"))*1000, 0)
			c.Expires = &at
		}
		return c
	})
}

func pick[T any](t *rapid.T, label string, from ...T) []T {
	n := rapid.IntRange(-2, len(from)).Draw(t, label)
	return from[:max(n, 0)]
}

func patternGen(on act.ResourceType) *rapid.Generator[Pattern] {
	return rapid.Custom(func(t *rapid.T) Pattern {
		p := Pattern{Type: on, Not: rapid.IntRange(0, 4).Draw(t, "not") == 0}
		way := rapid.IntRange(0, 4).Draw(t, "way")
		switch {
		case on == act.Package:
			p.Package = rapid.SampledFrom([]string{"npm:*", "npm:@s/*", "npm:left-pad", "npm:@s/p@1.0.0", ""}).Draw(t, "package")
		case on == act.URL || on == act.Remote:
			switch way {
			case 0:
				p.List = "@sites"
			case 1:
				p.Prefix = rapid.SampledFrom([]string{"a.org/x", "b.a.org/x", "localhost:3000/x", "c.net"}).Draw(t, "prefix")
			default:
				p.Site = rapid.SampledFrom(someSites).Draw(t, "site")
			}
			if on == act.Remote && rapid.Bool().Draw(t, "with ref") {
				p.Ref = rapid.SampledFrom([]string{"refs/heads/main", "refs/tags/*"}).Draw(t, "ref")
			}
		case way == 0 && on != act.Command:
			p.List = "@dirs"
		case way == 1:
			p.Name = rapid.SampledFrom([]string{"*.pem", ".env", "go", "*"}).Draw(t, "name")
		case way == 2 && on == act.Path:
			p.Exact = rapid.SampledFrom(somePaths).Draw(t, "exact")
		default:
			p.Beneath = rapid.SampledFrom(someDirs).Draw(t, "dir")
		}
		return p
	})
}

func conditionGen() *rapid.Generator[Condition] {
	return rapid.SampledFrom([]Condition{
		{FactLabel, "has", "secret"},
		{FactLabel, "lacks", "untrusted-content"},
		{FactHour, ">=", 1},
		{FactHour, "<", 1},
		{"arg:/force", "==", true},
		{"arg:/force", "!=", true},
		{"arg:/n", ">", 3},
		{"arg:/n", "<=", 3},
		{"arg:/s", "like", "a*b"},
		{"arg:/s", "has", nil},
		{"arg:/n", "lacks", nil},
		{"resource:ageHours", ">=", 48},
		{"resource:resembles", "!=", ""},
		{"resource:exists", "==", false},
		{"resource:ref", "==", "refs/heads/main"},
		{"resource:port", "!=", 443},
		{"resource:name", "like", "*c*"},
		{"resource:private", "==", true},
	})
}

func effectGen() *rapid.Generator[act.Effect] {
	return rapid.Custom(func(t *rapid.T) act.Effect {
		e := act.Effect{Kind: rapid.SampledFrom(allKinds).Draw(t, "kind")}
		e.Resource.Type = e.Kind.On()
		texts := map[act.ResourceType][]string{
			act.Path: somePaths, act.URL: someURLs,
			act.Host:   {"a.org:443", "a.org:8443", "10.1.2.3:80", "localhost:3000", "localhost:80", "x.internal:443", "c.net:443", "d.net"},
			act.Repo:   {"repo:/w", "repo:/w/a/b", "repo:/home/u", "repo:/x"},
			act.Remote: {"https://a.org/x/r#refs/heads/main", "https://a.org/x/r", "ssh://git@b.a.org/x/r#refs/tags/v1", "file:///w/a", "git@c.net:x.git"},
			act.Command: {
				`["/usr/bin/go","test"]`, `["/w/a/b/go"]`, `["/w/x.pem","-f"]`,
			},
			act.Package:   {"npm:left-pad@1.0.0", "npm:@s/p@1.0.0", "npm:@s/q", "npm:lodahs@1.0.0", "pypi:x@1"},
			act.Recipient: {"bob@a.org", "bob@b.a.org", "al@x.net"},
			act.Tool:      {"git.push", "git.log", "fs.read"},
		}[e.Resource.Type]
		if texts == nil {
			texts = []string{"main", "other"}
		}
		e.Resource.Text = rapid.SampledFrom(texts).Draw(t, "text")
		facts := map[string]any{}
		if e.Resource.Type == act.Package && rapid.Bool().Draw(t, "aged") {
			facts[act.FactAgeHours] = rapid.Int64Range(46, 49).Draw(t, "age")
		}
		if e.Resource.Type == act.Path && rapid.Bool().Draw(t, "looked") {
			facts[act.FactExists] = rapid.Bool().Draw(t, "exists")
		}
		if rapid.IntRange(0, 6).Draw(t, "classed") == 0 {
			facts[act.FactClass] = rapid.SampledFrom([]string{"own-state", "metadata", "runs-later", "credentials", "x"}).Draw(t, "class")
		}
		e.Resource.Facts = facts
		if e.Kind == act.Call {
			e.Group = rapid.SampledFrom([]act.Group{"", act.Observe, act.Mutate, act.RemoteGroup}).Draw(t, "group")
		}
		return e
	})
}

func queryGen() *rapid.Generator[Query] {
	return rapid.Custom(func(t *rapid.T) Query {
		q := Query{
			Principal: rapid.SampledFrom([]string{"p/a", "p/b", "q/a"}).Draw(t, "principal"),
			Tool:      rapid.SampledFrom(someTools).Draw(t, "tool"),
			Labels:    pick(t, "labels", act.LabelSecret, act.LabelUntrusted),
			Approved:  pick(t, "approved", "c1", "user:c1", "bedrock.credentials", "c2"),
			Args:      map[string]any{},
			Now:       time.Unix(int64(rapid.IntRange(0, 2).Draw(t, "now"))*1800, 0),
		}
		n := rapid.Int64Range(2, 3).Draw(t, "count")
		q.Counts = func(string) int64 { return n }
		if rapid.Bool().Draw(t, "force given") {
			q.Args["/force"] = rapid.SampledFrom([]any{true, false, "yes"}).Draw(t, "force")
		}
		if rapid.Bool().Draw(t, "n given") {
			q.Args["/n"] = rapid.Int64Range(3, 4).Draw(t, "n")
		}
		if rapid.Bool().Draw(t, "s given") {
			q.Args["/s"] = rapid.SampledFrom([]string{"ab", "axxb", "b"}).Draw(t, "s")
		}
		return q
	})
}

// policyGen draws a policy of two layers.
func policyGen(t *rapid.T) *Policy { return policyOf(t, clauseGen()) }

func policyOf(t *rapid.T, of *rapid.Generator[Clause]) *Policy {
	var layers []Layer
	for _, name := range []string{"", "user"} {
		clauses := rapid.SliceOfN(of, 1, 4).Draw(t, "clauses")
		if name != "" && rapid.Bool().Draw(t, "only") {
			clauses = append(clauses, Clause{Modality: MustNever, Rest: RestAll})
		}
		for i := range clauses {
			clauses[i].ID = fmt.Sprint("c", i+1)
			if i > 0 {
				clauses[i].Limit = nil
			}
		}
		text, err := Cedar(clauses, name == "")
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, Layer{Name: name, Text: text, Lists: someLists})
	}
	p, err := Load(layers, Binding{Workspace: "/w", Home: "/home/u"})
	if err != nil {
		t.Fatalf("%v\n%s", err, layers)
	}
	return p
}

// TestOracle is PO-08: what is indexed and read in place decides as Cedar does
// over all rules at once.
func TestOracle(t *testing.T) {
	if name := os.Getenv("RINGFENCE_TEST_CEDAR_CASES"); name != "" {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		told = json.NewEncoder(f)
		defer func() { told = nil }()
	}
	rapid.Check(t, func(t *rapid.T) {
		p := policyGen(t)
		for range 40 {
			q, e := queryGen().Draw(t, "query"), effectGen().Draw(t, "effect")
			if e.Resource.Type == act.URL || e.Resource.Type == act.Host {
				continue // see TestNetwork
			}
			want := act.Allow
			for _, l := range p.layers {
				want = min(want, oracle(p, l, q, e, someLists))
			}
			q.Effects = []act.Effect{e}
			if d := p.Decide(q); d.Verdict != want {
				t.Fatalf("%v %v: %v, want %v\n%+v\n%v", e, e.Resource.Facts, d.Verdict, want, d, rulesText(p))
			}
		}
	})
}

func rulesText(p *Policy) string {
	var b strings.Builder
	for _, r := range p.Rules() {
		fmt.Fprintln(&b, r.Cedar)
	}
	return b.String()
}
