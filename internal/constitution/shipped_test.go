package constitution

import (
	"os"
	"strings"
	"testing"

	"ringfence/internal/policy"
)

// shippedPolicy compiles a shipped constitution, which runs its scenarios, and
// loads it for workspace /w.
func shippedPolicy(t *testing.T, name string) (*Compiled, *policy.Policy) {
	t.Helper()
	text, lists, err := Shipped(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compile(Source{Name: name + ".md", Text: text}, Options{Granting: true, Lists: lists})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Load([]policy.Layer{{Text: c.Cedar, Lists: c.Lists}}, policy.Binding{Workspace: "/w", Home: "/home/u"})
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

// TestShipped decides the cases of testdata/shipped, and holds "coding" to its
// promise: an ordinary task of forty calls asks at most twice.
func TestShipped(t *testing.T) {
	for _, name := range ShippedNames() {
		t.Run(name, func(t *testing.T) {
			c, p := shippedPolicy(t, name)
			for _, f := range c.Findings {
				if f.Severity != Info {
					t.Errorf("%s:%d: %s", name, f.Line, f.Message)
				}
			}
			data, err := os.ReadFile("testdata/shipped/" + name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			calls, asked, task := 0, 0, true
			for line := range strings.Lines(string(data)) {
				line = strings.TrimSpace(line)
				task = task && line != "# after"
				if line == "" || line[0] == '#' {
					continue
				}
				call, want, _ := strings.Cut(line, " => ")
				d := p.Decide(parseCall(call))
				if got := d.Verdict.String(); got != want {
					t.Errorf("%s => %s, want %s (%v)", call, got, want, d.Rules)
				}
				if task {
					calls++
					asked += strings.Count(d.Verdict.String(), "escalate")
				}
			}
			if name == "coding" && (calls != 40 || asked > 2) {
				t.Errorf("%d calls, %d of them asked for", calls, asked)
			}
		})
	}
	if _, _, err := Shipped("codign"); err == nil || !strings.Contains(err.Error(), `did you mean "coding"`) {
		t.Errorf("a name that does not exist: %v", err)
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, name := range ShippedNames() {
		b.Run(name, func(b *testing.B) {
			text, lists, err := Shipped(name)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := Compile(Source{Name: name, Text: text}, Options{Granting: true, Lists: lists}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
