package policy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
)

// A case is one block of a file of cases: a name, text, and what must come out.
type textCase struct{ name, text, want string }

// readCases reads blocks that begin with "== name" and end with "=> …".
func readCases(t *testing.T, file string) []textCase {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []textCase
	for _, part := range strings.Split("\n"+string(data), "\n== ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		text, want, ok := strings.Cut("\n"+rest, "\n=> ")
		if !ok {
			t.Fatalf("%s: %s has no result", file, name)
		}
		want, _, _ = strings.Cut(want, "\n")
		cases = append(cases, textCase{name, strings.TrimPrefix(text, "\n"), want})
	}
	return cases
}

func TestRefused(t *testing.T) {
	for _, c := range readCases(t, "testdata/refused.txt") {
		t.Run(c.name, func(t *testing.T) {
			var b Binding
			l := Layer{File: "f.cedar"}
			text := c.text
			for _, at := range []struct {
				prefix string
				to     *string
			}{{"@workspace=", &b.Workspace}, {"@home=", &b.Home}, {"@layer=", &l.Name}} {
				if rest, ok := strings.CutPrefix(text, at.prefix); ok {
					*at.to, text, _ = strings.Cut(rest, "\n")
				}
			}
			l.Text = []byte(text)
			p, err := Load([]Layer{l}, b)
			if err == nil || !strings.Contains(err.Error(), c.want) || p != nil {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	permit := "permit (principal, action, resource)"
	for _, c := range []struct{ name, text, want string }{
		{"document", strings.Repeat(" ", MaxPolicyText+1), "policy.cedar:1: a policy of more than 16 MiB"},
		{"rule", permit + ";\n" + permit + " when { resource.name like \"" + strings.Repeat("a", maxRuleText) + "\" };", "policy.cedar:1: a rule of more than 64 KiB"},
		{"brackets", permit + " when { " + strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100) + " };", "a rule of more than 64 KiB, or with brackets more than 64 deep"},
		{"open string", permit + ` when { "((((\"`, "literal not terminated"},
		{"comment", permit + " when { true }; // ((((", ""},
		{"comment with quote", "// \"\n" + permit + ";", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load([]Layer{{Text: []byte(c.text)}}, Binding{})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestDeepNesting: what the bounds let through must not exhaust the stack.
func TestDeepNesting(t *testing.T) {
	permit := "permit (principal, action, resource) when { "
	for _, unit := range []string{"if true then ", "!", "true && ", "-"} {
		text := permit + strings.Repeat(unit, (maxRuleText-100)/len(unit)) + "true };"
		if _, err := Load([]Layer{{Text: []byte(text)}}, Binding{}); err != nil && !strings.Contains(err.Error(), "policy.cedar") {
			t.Errorf("%q: %v", unit, err)
		}
	}
}

func TestNoPolicy(t *testing.T) {
	q := Query{Principal: "p/a", Effects: []act.Effect{{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: "/a"}}}}
	var none *Policy
	if d := none.Decide(q); d.Verdict != act.Deny || d.Reason == "" {
		t.Errorf("nil policy: %+v", d)
	}
	p, err := Load(nil, Binding{})
	if err != nil {
		t.Fatal(err)
	}
	// PO-02: an empty policy allows nothing.
	if d := p.Decide(q); d.Verdict != act.Deny || !slices.Equal(d.Rules, []string{Default}) {
		t.Errorf("empty policy: %+v", d)
	}
}

func TestLoadBadSchema(t *testing.T) {
	if _, err := load([]byte("entity"), nil, Binding{}); err == nil || !strings.HasPrefix(err.Error(), "reading schema: ") {
		t.Error(err)
	}
}

func TestHash(t *testing.T) {
	base := Layer{Text: []byte("permit (principal, action, resource in List::\"l\");"), Lists: map[string]List{"l": {Members: []string{"/a"}}}}
	load := func(l Layer, b Binding, more ...Layer) string {
		p, err := Load(append(more, l), b)
		if err != nil {
			t.Fatal(err)
		}
		return p.Hash()
	}
	text, list := base, base
	text.Text = append([]byte("//\n"), base.Text...)
	list.Lists = map[string]List{"l": {Members: []string{"/b"}}}
	hashes := []string{
		load(base, Binding{}), load(text, Binding{}), load(list, Binding{}), load(base, Binding{Workspace: "/w"}),
		load(base, Binding{Home: "/w"}), load(base, Binding{}, Layer{Name: "user"}), load(base, Binding{}, Layer{Name: "persona"}),
	}
	if again := load(base, Binding{}); again != hashes[0] || len(again) != 64 {
		t.Errorf("hash %s, then %s", hashes[0], again)
	}
	slices.Sort(hashes)
	if n := len(slices.Compact(hashes)); n != 7 {
		t.Errorf("%d different hashes, want 7", n)
	}
}

func TestLists(t *testing.T) {
	rule := []byte(`permit (principal, action == Action::"read", resource in List::"l");`)
	for member, want := range map[string]string{
		"x":     `policy.cedar: list @l: "x" is nothing that the rules using the list are about`,
		"":      `is nothing that the rules`,
		"~/x":   `"~/x" is nothing`,
		"/a/..": `"/a/.." is nothing`,
	} {
		_, err := Load([]Layer{{Text: rule, Lists: map[string]List{"l": {Members: []string{member}}}}}, Binding{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", member, err, want)
		}
	}
	for member, want := range map[string]bool{"openai/gpt-5": true, "openai/*": false} {
		if got := memberOn(member, act.Model) != nil; got != want {
			t.Errorf("%q is a model: %t, want %t", member, got, want)
		}
	}
	for member, want := range map[string]bool{"npm:*": true, "npm:@scope/*": true, "npm:evil-*": false, "npm:e*/x": false} {
		if got := memberOn(member, act.Package) != nil; got != want {
			t.Errorf("%q is a package: %t, want %t", member, got, want)
		}
	}
	for member, want := range map[string]bool{"git.*": true, "git.push": true, "git.p*": false} {
		if got := memberOn(member, act.Tool) != nil; got != want {
			t.Errorf("%q is a tool: %t, want %t", member, got, want)
		}
	}
	for member, want := range map[string]bool{
		"a.org": true, "a.org:99999": false, "*.a.org": true, "*.10.0.0.1": false, "10.0.0.1/8": true, "a b": false, "a b/x": false,
		"https://a.org/": true, "https://a.org": false, "bob@a.org": false, "": false, "A.org": true,
	} {
		if got := networkUIDs(member, typeURL) != nil; got != want {
			t.Errorf("%q is a site: %t, want %t", member, got, want)
		}
	}
}

func TestRules(t *testing.T) {
	p, err := Load([]Layer{{Text: []byte("@id(\"c1.1\")@clause(\"c1\")@line(\"7\")@text(\"words\")\npermit (principal, action, resource in Path::\"${workspace}\");")}}, Binding{Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	r := p.Rules()[0]
	if r.ID != "c1.1" || r.Clause != "c1" || r.Line != 7 || r.Text != "words" || !strings.Contains(r.Cedar, `resource in Path::"/w"`) {
		t.Errorf("%+v", r)
	}
}
