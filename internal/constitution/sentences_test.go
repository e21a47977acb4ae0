package constitution

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// TestSentences runs testdata/sentences.txt: sentences as people write them, and
// beneath each what it becomes.
func TestSentences(t *testing.T) {
	const file = "testdata/sentences.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	count := map[string]int{}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		out.WriteString(lines[i] + "\n")
		if lines[i] == "" || lines[i][0] == '#' {
			continue
		}
		var want []string
		for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], "\t"); i++ {
			want = append(want, lines[i+1][1:])
		}
		sentence := strings.TrimSuffix(out.String()[strings.LastIndexByte(strings.TrimSuffix(out.String(), "\n"), '\n')+1:], "\n")
		got := outcome(sentence)
		count[strings.Fields(got[0])[0]]++
		if !slices.Equal(got, want) && !*update {
			t.Errorf("%s\n got %s\nwant %s", sentence, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
		for _, g := range got {
			out.WriteString("\t" + g + "\n")
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for _, n := range count {
		total += n
	}
	t.Logf("%d sentences: %d advice, %d errors", total, count["advice"], count["error"])
}

// outcome returns what a sentence becomes, a line for each clause or error.
func outcome(sentence string) []string {
	c, err := Compile(Source{Text: []byte(sentence)}, Options{Granting: true})
	if bad, ok := errors.AsType[*Errors](err); ok {
		var all []string
		for _, f := range bad.Findings {
			s := fmt.Sprintf("error %d: %s", f.Column, f.Message)
			if f.Suggestion != "" {
				s += " (try: " + f.Suggestion + ")"
			}
			all = append(all, s)
		}
		return all
	}
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, cl := range c.Clauses {
		all = append(all, brief(cl))
	}
	return all
}

// brief returns a clause on one line.
func brief(c policy.Clause) string {
	p := []string{string(c.Modality)}
	add := func(key string, values ...string) {
		if len(values) > 0 && values[0] != "" {
			p = append(p, key+strings.Join(values, ","))
		}
	}
	add("", string(c.Rest))
	add("who=", c.Who...)
	add("tools=", c.Tools...)
	add("", kindNames(c.Kinds)...)
	for _, g := range c.Groups {
		add("group=", string(g))
	}
	add("on ", patternNames(c.On)...)
	for _, e := range c.Except {
		add("except ", exceptionName(e))
	}
	for _, w := range c.When {
		add("when ", conditionName(w))
	}
	if c.Limit != nil {
		window := c.Limit.Window.String()
		if c.Limit.Window == 0 {
			window = "a session"
		}
		add("limit ", fmt.Sprintf("%d in %s", c.Limit.Count, window))
	}
	if c.Expires != nil {
		add("until ", c.Expires.Format(time.RFC3339))
	}
	if c.Quorum != nil {
		add("quorum ", fmt.Sprintf("%d of %s", c.Quorum.Count, c.Quorum.Role))
	}
	add("because ", c.Because)
	return strings.Join(p, " ")
}

func exceptionName(e policy.Exception) string {
	var p []string
	p = append(p, kindNames(e.Kinds)...)
	p = append(p, e.Tools...)
	p = append(p, patternNames(e.On)...)
	for _, w := range e.When {
		p = append(p, conditionName(w))
	}
	return "(" + strings.Join(p, " ") + ")"
}

func conditionName(c policy.Condition) string { return fmt.Sprintf("%s%s%v", c.Fact, c.Op, c.Value) }

// kindNames abbreviates the sets that occur together.
func kindNames(kinds []act.Kind) []string {
	rest := slices.Clone(kinds)
	var out []string
	for _, set := range []struct {
		name  string
		kinds []act.Kind
	}{{"PATH", ofType(act.Path)}, {"READ", kindSet("R")}, {"WRITE", kindSet("W")}, {"REPO", kindSet("M")}, {"REMOTE", kindSet("G")}, {"NET", kindSet("N")}} {
		if len(common(set.kinds, rest)) == len(set.kinds) {
			rest = slices.DeleteFunc(rest, func(k act.Kind) bool { return slices.Contains(set.kinds, k) })
			out = append(out, set.name)
		}
	}
	for _, k := range rest {
		out = append(out, string(k))
	}
	return out
}

func patternNames(on []policy.Pattern) []string {
	var out []string
	for _, p := range on {
		if (p.Type == act.Path || p.Type == act.Repo) && slices.Contains(credentialPlaces, p.Beneath) && len(on) >= len(credentialPlaces) {
			if !slices.Contains(out, "credentials") {
				out = append(out, "credentials")
			}
			continue
		}
		s := string(p.Type)
		if p.Not {
			s = "!" + s
		}
		for _, part := range []struct{ mark, text string }{
			{"/", p.Beneath}, {":", p.Name}, {"=", p.Exact}, {"@", p.Site}, {"@", p.Prefix}, {"#", p.Ref}, {" ", p.Package}, {"", p.List},
		} {
			if part.text != "" {
				s += part.mark + part.text
			}
		}
		out = append(out, s)
	}
	return out
}
