package gate

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/policy"
)

// TestServerHosts runs testdata/narrow.txt: what the box of a server asks for, "server kind
// resource", and what comes of it: "ok" or a code and a part of the reason. Its entry names
// api.example and *.deep.example:8443. A kind "a+b" is two effects, on resources "r+s".
func TestServerHosts(t *testing.T) {
	text, err := os.ReadFile("testdata/narrow.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		t.Run(words[1]+" "+words[2], func(t *testing.T) {
			judge := judge(allow)
			if words[3] == "silent" {
				judge = denies(policy.Default)
			}
			b := newBench(t, judge)
			for _, s := range []string{"api.example", "*.deep.example:8443"} {
				site, err := weburl.ParseSite(s)
				if err != nil {
					t.Fatal(err)
				}
				b.run.Servers["files"].Hosts = append(b.run.Servers["files"].Hosts, site)
			}
			b.run.Lend = lends{}
			b.run.Servers["none"] = &Server{Name: "none"}
			r := act.Request{Verb: act.VerbEffect, Tool: words[0], Args: []byte(`{"method":"GET"}`)}
			resources := strings.Split(words[2], "+")
			for i, k := range strings.Split(words[1], "+") {
				r.Direct = append(r.Direct, act.Effect{Kind: act.Kind(k), Resource: act.Resource{Text: resources[i]}})
			}
			got := b.decide(r)
			want := act.Code(words[4])
			if want == "ok" {
				want = ""
			}
			if got.Code != want || (got.Verdict == act.Allow) != (want == "") || !strings.Contains(got.Reason, strings.Join(words[5:], " ")) {
				t.Errorf("%s %q", got.Code, got.Reason)
			}
			if strings.Contains(got.Reason, "does not name it") && !slices.Equal(got.Rules, []string{serverHosts}) {
				t.Errorf("rules %q", got.Rules)
			}
			var e requestEntry
			if err := json.Unmarshal(b.record.entries[0].Body, &e); err != nil || e.Tool != words[0] {
				t.Errorf("recorded as of %q, %v", e.Tool, err)
			}
		})
	}
}

// A lends is a [Lender] of everything.
type lends struct{}

func (lends) Bound(string, string, string) error { return nil }
func (lends) Lend(string) (act.Loan, error)      { return act.Loan{Value: "v"}, nil }
