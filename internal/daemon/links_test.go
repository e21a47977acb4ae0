package daemon

import (
	"os"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestPlacesBehindLinks: a clause that names a place through a link holds where the link
// leads when the session begins, and the session is told; another session, after the
// link was changed, has that.
func TestPlacesBehindLinks(t *testing.T) {
	dir, work := t.TempDir(), realPaths([]string{t.TempDir()})[0]
	text := `permit(principal, action, resource); forbid(principal, action == Action::"overwrite", resource in Path::"${workspace}/lnk");`
	for name, body := range map[string]string{policy.FilePolicy: text, policy.FileClauses: "[]", policy.FileLists: "{}"} {
		if err := os.WriteFile(dir+"/"+name, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := policySource{home: t.TempDir(), user: "/nonexistent/home", unsigned: true}
	var c compiled
	for _, at := range []string{"one", "two", "two"} {
		if err := os.MkdirAll(work+"/"+at, 0o750); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(work + "/lnk")
		if err := os.Symlink(at, work+"/lnk"); err != nil {
			t.Fatal(err)
		}
		in, err := c.load(p, dir, work)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"one", "two"} {
			e := act.Effect{Kind: act.Overwrite, Resource: act.Resource{Type: act.Path, Text: work + "/" + name + "/x"}}
			got := in.policy.Decide(policy.Query{Principal: "p/a", Effects: []act.Effect{e}}).Verdict
			if (got == act.Deny) != (name == at) {
				t.Errorf("the link leads to %s: %s is %v", at, name, got)
			}
		}
		if !slices.ContainsFunc(in.notes, func(n string) bool { return strings.Contains(n, "link to "+work+"/"+at) }) {
			t.Errorf("%q", in.notes)
		}
	}
}
