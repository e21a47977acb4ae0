package policy

import (
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act"
)

// TestTree: what is allowed for everything beneath a directory is allowed for each
// path beneath it, and what a person is asked for is denied for none.
func TestTree(t *testing.T) {
	allowed := 0
	untilTold(t, &allowed, func(t *rapid.T) {
		p := policyGen(t)
		for range 20 {
			q := queryGen().Draw(t, "query")
			root := rapid.SampledFrom(somePaths).Draw(t, "root")
			kind := rapid.SampledFrom([]act.Kind{act.Read, act.List, act.Delete}).Draw(t, "kind")
			tree := p.decide(q, act.Effect{Kind: kind, Tree: true, Resource: act.Resource{Type: act.Path, Text: root}})
			for _, path := range somePaths {
				if !inDir(path, root) {
					continue
				}
				one := p.decide(q, act.Effect{Kind: kind, Resource: act.Resource{Type: act.Path, Text: path}})
				if one.Verdict < tree.Verdict {
					t.Fatalf("%s of all beneath %s: %v, of %s: %v\n%v", kind, root, tree.Verdict, path, one.Verdict, rulesText(p))
				}
			}
			if tree.Verdict != act.Deny {
				allowed++
			}
		}
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
