package policy

import (
	"path"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act"
)

// TestReach: what a box is given outright is allowed file by file, with nothing approved.
func TestReach(t *testing.T) {
	written := 0
	untilTold(t, &written, func(t *rapid.T) {
		p := policyOf(t, placesGen())
		q := queryGen().Draw(t, "query")
		r := p.Reach(q, dirs(somePaths...))
		q.Approved = nil
		for _, tree := range r.Read {
			kinds := givenToRead
			if slices.Contains(r.Write, tree) {
				kinds = slices.Concat(kinds, givenToWrite)
				written++
			}
			for _, at := range somePaths {
				for _, at := range []string{at, path.Join(at, "other"), path.Join(at, ".env")} {
					for _, kind := range kinds {
						if e := onPath(kind, at); inDir(at, tree) && p.decide(q, e).Verdict != act.Allow {
							t.Fatalf("%s is given, and %s is not allowed\n%v", tree, e, rulesText(p))
						}
					}
				}
			}
		}
		for _, tree := range r.Write {
			if !slices.Contains(r.Read, tree) {
				t.Fatalf("%s may be changed and not read", tree)
			}
		}
	})
}

// TestReachLeavesOut: what is asked about or kept back, in files or in what they come to,
// is not given.
func TestReachLeavesOut(t *testing.T) {
	all := `permit (principal, action, resource) when { resource in Path::"/w" };`
	for name, c := range map[string]struct {
		more string
		want Reach
	}{
		"all":           {"", Reach{[]string{"/w"}, []string{"/w"}}},
		"a file within": {`forbid (principal, action == Action::"read", resource == Path::"/w/a/b");`, Reach{}},
		"deleting":      {`forbid (principal, action == Action::"delete", resource);`, Reach{Read: []string{"/w"}}},
		"committing":    {`forbid (principal, action == Action::"git-commit", resource);`, Reach{Read: []string{"/w"}}},
		"asked": {
			`@id("r1") @clause("c1") forbid (principal, action == Action::"delete", resource) unless { context.approved.contains("c1") };`,
			Reach{Read: []string{"/w"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := Query{Principal: "default/exec", Approved: []string{"c1"}}
			got := loadText(t, all+"\n"+c.more).Reach(q, append(dirs("/w", "/other"), act.Resource{Type: act.Repo, Text: "repo:/w"}))
			if !slices.Equal(got.Read, c.want.Read) || !slices.Equal(got.Write, c.want.Write) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func dirs(paths ...string) []act.Resource {
	var all []act.Resource
	for _, p := range paths {
		all = append(all, act.Resource{Type: act.Path, Text: p})
	}
	return all
}
