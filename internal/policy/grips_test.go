package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act"
)

// filesGen draws clauses about reading and changing the files in directories.
func filesGen() *rapid.Generator[Clause] {
	return rapid.Custom(func(t *rapid.T) Clause {
		reading := slices.Concat(givenToRead, comesToRead)
		c := Clause{
			Modality: rapid.SampledFrom([]Modality{May, May, May, MayWithApproval, MustAsk, MustNever}).Draw(t, "modality"),
			Kinds:    rapid.SampledFrom([][]act.Kind{reading, givenToWrite, slices.Concat(reading, givenToWrite)}).Draw(t, "kinds"),
		}
		for _, dir := range pick(t, "on", rapid.Permutation(someDirs).Draw(t, "dirs")[:2]...) {
			c.On = append(c.On, Pattern{Type: act.Path, Beneath: dir})
		}
		if c.On == nil && c.Modality == MustNever {
			c.On = []Pattern{{Type: act.Path, List: "@dirs"}}
		}
		return c
	})
}

// TestReach: what a box that is given a Reach lets through, the policy allows once what
// was asked about the tree is approved; and the policy allows that box.
func TestReach(t *testing.T) {
	var absent, fixed, open, asked int
	property := func(t *rapid.T) {
		of := filesGen()
		if rapid.IntRange(0, 3).Draw(t, "of all kinds") == 0 {
			of = clauseGen()
		}
		p, q := policyOf(t, of), queryGen().Draw(t, "query")
		q.Tool, q.Args = "", nil
		tree := rapid.SampledFrom([]string{"/w", "/", "/home/u", "/w/a"}).Draw(t, "tree")
		r := p.Reach(q, tree)
		absent, fixed, open, asked = absent+len(r.Absent), fixed+len(r.Fixed), open+len(r.Open), asked+len(r.Asked)
		q.Approved, q.Absent, q.Fixed = r.Asked, r.Absent, r.Fixed
		lets := func(what string, tree bool, at string, kinds ...act.Kind) {
			for _, k := range kinds {
				e := act.Effect{Kind: k, Resource: act.Resource{Type: act.Path, Text: at}, Tree: tree, Implied: slices.Contains(comesToRead, k)}
				if d := p.decide(q, e); d.Verdict != act.Allow {
					t.Fatalf("%s %s %s: %+v\n%+v\n%v", what, k, at, d, r, rulesText(p))
				}
			}
		}
		if r.Read {
			lets("the box", true, tree, slices.Concat(givenToRead, comesToRead)...)
		}
		for _, o := range r.Open {
			lets("the box", true, o, givenToWrite...)
		}
		if r.Write {
			lets("the box", true, tree, givenToWrite...)
		}
		q.Absent, q.Fixed = nil, nil
		for _, at := range slices.Concat(somePaths, []string{"/w/x", "/home/u/x"}) {
			for _, at := range []string{at, path.Join(at, "other"), path.Join(at, ".env"), path.Join(at, "c.pem")} {
				if !r.Read || !inDir(at, tree) || inAnyOf(at, r.Absent) {
					continue
				}
				lets("in the box", false, at, slices.Concat(givenToRead, comesToRead)...)
				if (r.Write || inAnyOf(at, r.Open)) && !inAnyOf(at, r.Fixed) {
					lets("in the box", false, at, givenToWrite...)
				}
			}
		}
	}
	for range 50 {
		if rapid.Check(t, property); t.Failed() || min(absent, fixed, open, asked) > 0 {
			return
		}
	}
	t.Errorf("not met: absent %d, fixed %d, open %d, asked %d", absent, fixed, open, asked)
}

// TestReachOfManyPlaces: of a tree of which too much is named nothing is told apart.
func TestReachOfManyPlaces(t *testing.T) {
	var text strings.Builder
	text.WriteString("permit(principal, action, resource);\n")
	load := func() *Policy {
		p, err := Load([]Layer{{Text: []byte(text.String())}}, Binding{Workspace: "/w", Home: "/home/u"})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for i := range maxPlaces + 1 {
		if i == maxPlaces {
			if r := load().Reach(Query{Principal: "p/a"}, "/w"); !r.Read || len(r.Fixed) != maxPlaces {
				t.Errorf("of %d places: %+v", i, r)
			}
		}
		fmt.Fprintf(&text, "forbid(principal, action == Action::\"create\", resource in Path::\"/w/%d\");\n", i)
	}
	if r := load().Reach(Query{Principal: "p/a"}, "/w"); r.Read {
		t.Errorf("of more: %+v", r)
	}
}
