package policy

import (
	"path"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act"
)

// onTree returns the effects of a kind on everything beneath root, and on each of what
// is there: as far as rules can tell, all of it.
func onTree(t *rapid.T) (tree act.Effect, members []act.Effect) {
	kind := rapid.SampledFrom([]act.Kind{act.Read, act.Create, act.Delete, act.GitRead, act.GitCommit}).Draw(t, "kind")
	on := func(path string) act.Resource {
		if kind.On() == act.Repo {
			path = "repo:" + path
		}
		return act.Resource{Type: kind.On(), Text: path}
	}
	root := rapid.SampledFrom(append(somePaths, "/home/u/x")).Draw(t, "root")
	for _, p := range slices.Concat(somePaths, []string{"/home/u/x", root}) {
		for _, p := range []string{p, path.Join(p, "other"), path.Join(p, ".env"), path.Join(p, "c.pem")} {
			if inDir(p, root) {
				members = append(members, act.Effect{Kind: kind, Resource: on(p)})
			}
		}
	}
	return act.Effect{Kind: kind, Tree: true, Resource: on(root)}, members
}

// TestTree: no member of a tree is decided more strictly than the tree is.
func TestTree(t *testing.T) {
	allowed := 0
	untilTold(t, &allowed, func(t *rapid.T) {
		p := policyGen(t)
		for range 20 {
			q := queryGen().Draw(t, "query")
			tree, members := onTree(t)
			got := p.decide(q, tree)
			for _, one := range members {
				if v := p.decide(q, one).Verdict; v < got.Verdict {
					t.Fatalf("%s: %v, %s: %v\n%v", tree, got.Verdict, one, v, rulesText(p))
				}
			}
			if got.Verdict != act.Deny {
				allowed++
			}
		}
	})
}

// TestTreeIsItsStrictest: where rules ask only for directories, lists and the call, a
// tree is exactly as its strictest member: allowed or asked for also where no one
// permit holds for all of it.
func TestTreeIsItsStrictest(t *testing.T) {
	joined := 0
	untilTold(t, &joined, func(t *rapid.T) {
		p := policyOf(t, placesGen())
		for range 20 {
			q := queryGen().Draw(t, "query")
			tree, members := onTree(t)
			want := act.Allow
			for _, one := range members {
				want = min(want, p.decide(q, one).Verdict)
			}
			got := p.decide(q, tree)
			if got.Verdict != want {
				t.Fatalf("%s: %+v, strictest of its members: %v\n%v", tree, got, want, rulesText(p))
			}
			if got.Verdict == act.Allow && len(got.Rules) > 1 {
				joined++
			}
		}
	})
}

// placesGen draws clauses about directories, which together may say something of all.
func placesGen() *rapid.Generator[Clause] {
	return rapid.Custom(func(t *rapid.T) Clause {
		on := rapid.SampledFrom([]act.ResourceType{act.Path, act.Repo}).Draw(t, "type")
		places := rapid.SliceOfN(rapid.Map(rapid.SampledFrom(append(someDirs, "@dirs")), func(dir string) Pattern {
			if dir[0] == '@' {
				return Pattern{Type: on, List: dir}
			}
			return Pattern{Type: on, Beneath: dir}
		}), 1, 2)
		c := Clause{
			Modality: rapid.SampledFrom([]Modality{May, May, MayWithApproval, MustAsk, MustNever}).Draw(t, "modality"),
			When:     pick(t, "when", Condition{FactLabel, "has", "secret"}, Condition{"resource:private", "!=", true}),
		}
		if rapid.Bool().Draw(t, "placed") {
			c.On = places.Draw(t, "on")
		}
		if c.Modality == MustNever || rapid.Bool().Draw(t, "except") {
			c.Except = []Exception{{On: places.Draw(t, "except on")}}
		}
		return c
	})
}

// untilTold checks property until it has met a case that it is about. By chance a
// hundred policies may allow nothing, and then the property says nothing.
func untilTold(t *testing.T, met *int, property func(*rapid.T)) {
	t.Helper()
	for range 50 {
		rapid.Check(t, property)
		if *met > 0 || t.Failed() {
			return
		}
	}
	t.Error("no case was met: the test says nothing")
}

// TestNetwork is reading 5: where a page may be fetched or sent to, its host may
// be connected to and resolved; where connecting is forbidden, so is fetching.
func TestNetwork(t *testing.T) {
	allowed := 0
	untilTold(t, &allowed, func(t *rapid.T) {
		p := policyGen(t)
		for range 20 {
			q := queryGen().Draw(t, "query")
			q.Counts = func(string) int64 { return 0 }
			text := rapid.SampledFrom(someURLs).Draw(t, "url")
			url := act.Effect{Kind: rapid.SampledFrom([]act.Kind{act.Fetch, act.Send}).Draw(t, "kind"), Resource: act.Resource{Type: act.URL, Text: text}}
			r, err := newResource(url)
			if err != nil {
				t.Fatal(err)
			}
			host := act.Resource{Type: act.Host, Text: r.host + ":" + r.port}
			fetch := p.decide(q, url)
			connect := p.decide(q, act.Effect{Kind: act.Connect, Resource: host})
			resolve := p.decide(q, act.Effect{Kind: act.Resolve, Resource: host})
			if fetch.Verdict > connect.Verdict || connect.Verdict > resolve.Verdict {
				t.Fatalf("%s %s: %v, connect %v, resolve %v\n%v", url.Kind, text, fetch.Verdict, connect.Verdict, resolve.Verdict, rulesText(p))
			}
			if fetch.Verdict != act.Deny {
				allowed++
			}
		}
	})
}

func (p *Policy) decide(q Query, e act.Effect) Decision {
	q.Effects = []act.Effect{e}
	return p.Decide(q)
}

// TestOrder is PO-07: the order of rules changes no verdict.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policyGen(t)
		var layers []Layer
		for _, l := range p.layers[:2] {
			var text []byte
			for _, r := range rapid.Permutation(l.rules).Draw(t, "order") {
				text = append(append(text, r.policy.MarshalCedar()...), '\n')
			}
			layers = append(layers, Layer{Name: l.name, Text: text, Lists: someLists})
		}
		other, err := Load(layers, Binding{Workspace: "/w", Home: "/home/u"})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			q := queryGen().Draw(t, "query")
			q.Effects = []act.Effect{effectGen().Draw(t, "effect")}
			if a, b := p.Decide(q).Verdict, other.Decide(q).Verdict; a != b {
				t.Fatalf("%v in one order, %v in another", a, b)
			}
		}
	})
}

// TestMoreApproval is P3: more approval never makes a verdict stricter, and
// approving all that was asked for allows.
func TestMoreApproval(t *testing.T) {
	asked := 0
	untilTold(t, &asked, func(t *rapid.T) {
		p := policyGen(t)
		for range 20 {
			q := queryGen().Draw(t, "query")
			q.Effects = rapid.SliceOfN(effectGen(), 1, 2).Draw(t, "effects")
			before := p.Decide(q)
			for _, a := range before.Ask {
				q.Approved = append(q.Approved, a.Clause)
			}
			after := p.Decide(q)
			if after.Verdict < before.Verdict || before.Verdict == act.Escalate && after.Verdict != act.Allow {
				t.Fatalf("%+v\nthen %+v\n%v", before, after, rulesText(p))
			}
			if before.Verdict == act.Escalate {
				asked++
			}
		}
	})
}
