package constitution

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/policy"
)

// understood returns the sentences of testdata/sentences.txt that compile.
func understood(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/sentences.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	lines := strings.Split(string(data), "\n")
	for i, l := range lines[:len(lines)-1] {
		if l != "" && l[0] != '#' && l[0] != '\t' && !strings.HasPrefix(lines[i+1], "\terror") {
			all = append(all, l)
		}
	}
	return all
}

// TestAnyDocument compiles documents of sentences drawn at random, in both kinds
// of layer. Compiling runs their scenarios, so the oracle and the policy must
// agree on what sentences mean together.
func TestAnyDocument(t *testing.T) {
	sentences := understood(t)
	lists := map[string]policy.List{
		"docs-sites": {Members: []string{"docs.example.org", "*.readthedocs.io"}},
		"team":       {Members: []string{"a@example.com", "b@example.com"}, Removed: []string{"b@example.com"}},
	}
	rapid.Check(t, func(t *rapid.T) {
		picked := rapid.SliceOfN(rapid.SampledFrom(sentences), 1, 12).Draw(t, "sentences")
		src := Source{Name: "drawn", Text: []byte("- " + strings.Join(picked, "\n- ") + "\n")}
		granting := rapid.Bool().Draw(t, "granting")
		if !granting {
			src.Layer = "user"
		}
		c, err := Compile(src, Options{Granting: granting, Lists: lists})
		var bad *Errors
		if errors.As(err, &bad) && slices.ContainsFunc(bad.Findings, func(f Finding) bool { return !strings.HasPrefix(f.Message, "scenario") }) {
			return // "any other" without anything before it, "only" in a layer that narrows
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := Compile(src, Options{Granting: granting, Lists: lists})
		if err != nil || string(again.Cedar) != string(c.Cedar) {
			t.Fatalf("the same text gave another policy: %v", err)
		}
	})
}

// TestNothingIsSkipped puts a word that means nothing into every gap of every
// sentence: none may still be enforced.
func TestNothingIsSkipped(t *testing.T) {
	const nonsense = "zorble"
	for _, s := range understood(t) {
		if outcome(s)[0] == "advice" || strings.Contains(s, "because") { // reasons are free text
			continue
		}
		words := strings.Fields(strings.TrimSuffix(s, "."))
		for i := range len(words) + 1 {
			text := strings.Join(slices.Insert(slices.Clone(words), i, nonsense), " ") + "."
			if strings.Contains(text, "zorble agent") || strings.Contains(text, "zorble tools") || strings.Contains(text, "zorble Tools") {
				continue // a persona, the tools of a server
			}
			got := outcome(text)
			if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "error") || line == "advice" }) {
				t.Errorf("%s\nbecomes %s", text, strings.Join(got, "\n        "))
			}
		}
	}
}
