package gate

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
)

// leaving is a question of a box: "KIND [METHOD] RESOURCE", by a process of that number.
func leaving(t *testing.T, text string, pid int) act.Request {
	t.Helper()
	words := strings.Fields(text)
	e := act.Effect{Kind: act.Kind(words[0]), Resource: act.Resource{Type: act.Host, Text: words[len(words)-1]}}
	args := fmt.Sprintf(`{"via":"direct","pid":%d}`, pid)
	if len(words) == 3 {
		e.Resource.Type = act.URL
		args = fmt.Sprintf(`{"method":%q,"via":"connect","pid":%d}`, words[1], pid)
	}
	return act.Request{Verb: act.VerbEffect, Direct: []act.Effect{e}, Args: []byte(args)}
}

// TestScopesOfRequests: what leaves a box is allowed for the session within the scope that a
// person chose, and asked about everywhere else. Each case of the file is what is asked
// first, the scopes that there are, and for each what is within ("+") and what is not ("-").
func TestScopesOfRequests(t *testing.T) {
	data, err := os.ReadFile("testdata/scopes.txt")
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n\n") {
		lines := slices.DeleteFunc(strings.Split(block, "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
		if len(lines) == 0 {
			continue
		}
		first, offered := lines[0], []string{}
		var b *bench
		for _, line := range lines[1:] {
			sign, rest, _ := strings.Cut(line, " ")
			if sign != "+" && sign != "-" {
				offered = append(offered, line)
				b = newBench(t, asks("c1"))
				b.o.Digest = func(b Bound) [32]byte { return sha256.Sum256(fmt.Appendf(nil, "%+v", b)) }
				b.people.answer.Scope = len(offered)
				if got := b.decide(leaving(t, first, 1)); got.Verdict != act.Allow || len(b.run.Session.Scopes()) != 1 {
					t.Fatalf("%s: %s: %+v", first, line, got)
				}
				s := b.run.Session.Scopes()[0]
				if got := strings.TrimSpace(s.Form + " " + s.Place); got != line {
					t.Errorf("%s: scope %d is %q, want %q", first, len(offered), got, line)
				}
				b.people.answer.Scope = 0
				continue
			}
			before := len(b.people.digests)
			if got := b.decide(leaving(t, rest, 2)); got.Verdict != act.Allow {
				t.Errorf("%s: %s: %+v", first, rest, got)
			}
			if asked := len(b.people.digests) > before; asked != (sign == "-") {
				t.Errorf("%s, %s: %s: asked %v", first, offered[len(offered)-1], rest, asked)
			}
		}
		d := &draft{run: b.run, req: leaving(t, first, 1)}
		if no := d.resolve(); no != nil {
			t.Fatal(no.reason)
		}
		if got := len(d.scopes()); got != len(offered) {
			t.Errorf("%s: %d scopes: %q", first, got, forms(d.scopes()))
		}
	}
}
