package gate

import (
	"context"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestConnect: what facts the policy is given of a request without a tool, and what is
// not asked about it.
func TestConnect(t *testing.T) {
	for name, c := range map[string]struct {
		args   string
		inside bool // the policy says that only what is inside is asked about
		want   act.Code
		asked  bool
	}{
		"asked":          {`{"method":"GET","n":3,"yes":true,"none":null,"list":[1]}`, false, "", true},
		"inside":         {`{"inside":true}`, true, "", false},
		"not its inside": {`{"inside":true}`, false, "", true},
		"not decided":    {`{}`, true, "", true},
		"a text":         {`{"inside":"true"}`, true, "", true},
		"a message":      {`{"message":"text","direction":"in"}`, false, "", false},
		"quiet":          {`{"quiet":true}`, false, act.CodePolicy, false},
		"quiet inside":   {`{"quiet":true,"inside":true}`, true, "", false},
		"quiet whole":    {`{"quiet":true}`, true, act.CodePolicy, false},
		"counted":        {`{"repeated":7}`, false, act.CodeNoAnswer, false},
		"not JSON":       {`{"a":1,"a":2}`, false, act.CodeInvalid, false},
		"no object":      {`[1]`, false, act.CodeInvalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			var facts map[string]any
			b := newBench(t, func(q policy.Query) policy.Decision {
				facts = q.Args
				d := asks("c1")(q)
				d.Inside = c.inside && d.Verdict == act.Escalate
				return d
			})
			r := direct(act.Connect, "a.org:443")
			r.Direct[0].Tree, r.Args = false, []byte(c.args)
			got := b.decide(r)
			if got.Code != c.want || (got.Verdict == act.Allow) != (c.want == "") || len(b.people.digests) > 0 != c.asked {
				t.Errorf("%+v, asked %d", got, len(b.people.digests))
			}
			if name == "asked" && (facts["/method"] != "GET" || facts["/n"] != int64(3) || facts["/yes"] != true || len(facts) != 3) {
				t.Errorf("%v", facts)
			}
		})
	}
}

// TestCarried: what was carried is in the entry of the result.
func TestCarried(t *testing.T) {
	b := newBench(t, allow)
	r := direct(act.Connect, "a.org:443")
	r.Direct[0].Tree = false
	for _, body := range []string{`{"sent":3,"received":4,"ms":5,"address":"192.0.2.1:443","tunnel":true}`, `{"sent":3,"other":4}`, `{"sent":3,"sent":4}`} {
		tick := b.decide(r)
		if _, err := New(b.o).Finish(context.Background(), tick, act.Outcome{Body: []byte(body), Labels: []act.Label{act.LabelUntrusted}}); err != nil {
			t.Fatal(err)
		}
		last := string(b.record.entries[len(b.record.entries)-1].Body)
		if known := strings.HasSuffix(body, `"tunnel":true}`); known != strings.Contains(last, `"carried":{"address":"192.0.2.1:443","ms":5,"received":4,"sent":3,"tunnel":true}`) {
			t.Errorf("%s", last)
		}
	}
	if labels := b.run.Session.Labels(); len(labels) != 1 || labels[0] != act.LabelUntrusted {
		t.Errorf("%v", labels)
	}
}
