package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	for _, c := range readCases(t, "testdata/lint.txt") {
		t.Run(c.name, func(t *testing.T) {
			var clauses []Clause
			for line := range strings.Lines(c.text) {
				var clause Clause
				if strings.TrimSpace(line) == "" {
					continue
				}
				if err := json.Unmarshal([]byte(line), &clause); err != nil {
					t.Fatal(err)
				}
				clauses = append(clauses, clause)
			}
			o := LintOptions{Lower: strings.HasPrefix(c.name, "lower"), Lists: []string{"docs-sites"}}
			if strings.HasPrefix(c.name, "unknown-tool") {
				o.Tools = []string{"git.log", "git.push"}
			}
			var got []string
			for _, f := range Lint(clauses, o) {
				got = append(got, f.Clause+" "+f.Kind+" "+f.Other+": "+f.Message)
			}
			if s := strings.Join(got, " | "); s != strings.TrimSpace(c.want) {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}
