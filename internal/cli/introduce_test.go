package cli

import (
	"strings"
	"testing"

	"ringfence/internal/agent/external"
	"ringfence/internal/sandbox"
)

// TestIntroduction: what is said of a box is what its report says, and nothing besides.
func TestIntroduction(t *testing.T) {
	g := &guest{adapter: external.Adapter{Title: "One"}, person: "/home/u"}
	for _, c := range []struct {
		what      string
		report    sandbox.Report
		says, not []string
	}{
		{"nothing", sandbox.Report{Tier: "native"}, []string{"0 layers were read back", "it may change /w", "does not say what holds it"}, []string{"git hooks", "home of its own", "is decided", "review"}},
		{
			"all of it",
			sandbox.Report{
				Tier: "native", Enforced: []string{"home=own", "network=policy"}, Inferred: []string{sandbox.LayerHeld}, Missing: []string{"seccomp", "cgroup=cpu"},
				Evidence: map[string]string{sandbox.LayerHome: "x"},
			},
			[]string{"2 layers were", "not held: seccomp", "git hooks", "home of its own", "request is decided"},
			[]string{"cgroup", "review"},
		},
		{"a copy", sandbox.Report{Inferred: []string{"workspace=copy"}, Evidence: map[string]string{sandbox.LayerWorkspace: "x"}}, []string{"kept apart, for you to review"}, []string{"it may change", "git hooks"}},
	} {
		text := strings.Join(g.introduction(c.report, "/w"), "\n")
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", c.what, want, text)
			}
		}
		for _, no := range c.not {
			if strings.Contains(text, no) {
				t.Errorf("%s: %q in\n%s", c.what, no, text)
			}
		}
	}
}
