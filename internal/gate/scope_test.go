package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
	"ringfence/internal/session"
)

func forms(all []Scope) []string {
	var out []string
	for _, s := range all {
		out = append(out, strings.TrimSpace(s.Form+" "+s.at))
	}
	return out
}

// TestScopes: what a person can say yes to for the session is concrete, narrow, and nothing
// that cannot be undone.
func TestScopes(t *testing.T) {
	on := func(k act.Kind, on act.ResourceType, texts ...string) (all []act.Effect) {
		for _, text := range texts {
			all = append(all, act.Effect{Kind: k, Resource: act.Resource{Type: on, Text: text}})
		}
		return all
	}
	tree := func(e []act.Effect) []act.Effect { e[0].Tree = true; return e }
	group := func(g act.Group) []act.Effect {
		e := on(act.Call, act.Tool, "s.t")
		e[0].Group = g
		return e
	}
	class := on(act.Create, act.Path, "/w/p/a")
	class[0].Resource.Facts = map[string]any{act.FactClass: "runs-later"}
	c1 := policy.Asked{Clause: "c1", Quorum: policy.Quorum{Count: 1}}
	for _, c := range []struct {
		what    string
		effects []act.Effect
		ask     policy.Asked
		want    string
	}{
		{"a file", on(act.Create, act.Path, "/w/p/a"), c1, "exact, directory /w/p, subtree /w/p"},
		{"a file deeper", on(act.Create, act.Path, "/w/p/d/a"), c1, "exact, directory /w/p/d, subtree /w/p/d, subtree /w/p"},
		{"files apart", on(act.Create, act.Path, "/w/p/d/a", "/w/p/e/a"), c1, "exact, subtree /w/p"},
		{"a file elsewhere", on(act.Read, act.Path, "/srv/x/a"), c1, "exact, directory /srv/x, subtree /srv/x"},
		{"beside a directory", on(act.Create, act.Path, "/w/p/d/a", "/w/p/da/a"), c1, "exact, subtree /w/p"},
		{"a listing", on(act.List, act.Path, "/w/p/d"), c1, "exact, directory /w/p/d, subtree /w/p/d, subtree /w/p"},
		{"a search", tree(on(act.Read, act.Path, "/w/p/d")), c1, "exact, subtree /w/p/d, subtree /w/p"},
		{"a file at home", on(act.Read, act.Path, "/home/u/a"), c1, "exact"},
		{"above home", on(act.Read, act.Path, "/home/a"), c1, "exact"},
		{"at the top", on(act.Read, act.Path, "/a"), c1, "exact"},
		{"a directory at the top", on(act.Read, act.Path, "/etc/a"), c1, "exact"},
		{"a file and a page", append(on(act.Read, act.Path, "/w/p/a"), on(act.Fetch, act.URL, "https://a.org/")...), c1, "exact"},
		{"a page", on(act.Fetch, act.URL, "https://a.org/x?y"), c1, "exact, domain https://a.org:443, subdomains https://a.org:443"},
		{"pages", on(act.Fetch, act.URL, "https://a.org/x", "https://b.org/x"), c1, "exact"},
		{"no page", on(act.Fetch, act.URL, "?"), c1, "exact"},
		{"a host", on(act.Connect, act.Host, "a.org:443"), c1, "exact, domain a.org:443, subdomains a.org:443"},
		{"a command", on(act.Execute, act.Command, `["/bin/a"]`), c1, "exact"},
		{"a tool", group(act.RemoteGroup), c1, "exact, tool s.t"},
		{"a tool of unknown group", group(""), c1, ""},
		{"a tool that undoes nothing", group(act.Irreversible), c1, ""},
		{"a deletion", on(act.Delete, act.Path, "/w/p/a"), c1, ""},
		{"one beside others", append(on(act.Create, act.Path, "/w/p/a"), on(act.GitForce, act.Remote, "r")...), c1, ""},
		{"a secret", on(act.UseSecret, act.Secret, "k"), c1, ""},
		{"a change of a tree", tree(on(act.Overwrite, act.Path, "/w/p/d")), c1, ""},
		{"a place of its own class", class, c1, ""},
		{"nothing", nil, c1, ""},
		{"two people", on(act.Create, act.Path, "/w/p/a"), policy.Asked{Clause: "c1", Quorum: policy.Quorum{Count: 2}}, ""},
		{"a role", on(act.Create, act.Path, "/w/p/a"), policy.Asked{Clause: "c1", Quorum: policy.Quorum{Count: 1, Role: "owner"}}, ""},
		{"a doubt", on(act.Create, act.Path, "/w/p/a"), policy.Asked{Clause: guardClause}, ""},
		{"a connection", on(act.Connect, act.Host, "a.org:443"), policy.Asked{Clause: grantRule}, ""},
		{"bedrock", on(act.Read, act.Path, "/w/p/a"), policy.Asked{Clause: "bedrock.credentials"}, ""},
	} {
		d := &draft{
			run: &Run{Session: &session.Session{Workspace: "/w/p"}},
			req: act.Request{Verb: act.VerbCall, Tool: "s.t"}, judged: policy.Decision{Ask: []policy.Asked{c.ask}},
		}
		d.run.View.Home, d.res.Effects = "/home/u", c.effects
		if got := strings.Join(forms(d.scopes()), ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// lasting is a bench on which one yes was given for the session, in a scope of that form.
func lasting(t *testing.T, form string) *bench {
	b := newBench(t, asks("c1")).list()
	b.run.View.Home = "/home/u"
	d := &draft{run: b.run, req: write("a"), judged: policy.Decision{Ask: []policy.Asked{{Clause: "c1"}}}}
	if no := d.resolve(); no != nil {
		t.Fatal(no.reason)
	}
	b.people.answer.Scope = 1 + slices.IndexFunc(d.scopes(), func(s Scope) bool { return s.Form == form })
	if got := b.decide(write("a")); got.Verdict != act.Allow || len(b.run.Session.Scopes()) != 1 {
		t.Fatalf("%+v %+v", got, b.run.Session.Scopes())
	}
	b.people.answer.Scope = 0
	return b
}

// TestForTheSession: within the scope that a person chose nobody is asked again, and
// everything else is asked as before.
func TestForTheSession(t *testing.T) {
	then := func(next judge) func(*bench) {
		return func(b *bench) {
			b.run.Policy = judge(func(q policy.Query) policy.Decision {
				if slices.Contains(q.Approved, "c1") {
					return next(q)
				}
				return asks("c1")(q)
			})
		}
	}
	for _, c := range []struct {
		what, form string
		change     func(*bench)
		req        act.Request
		asked      bool
		verdict    act.Verdict
	}{
		{"the same call", ScopeExact, nil, write("a"), false, act.Allow},
		{"another call", ScopeExact, nil, write("b"), true, act.Allow},
		{"another file", ScopeDirectory, nil, write("b"), false, act.Allow},
		{"a deeper file", ScopeDirectory, nil, write("d/b"), true, act.Allow},
		{"a deeper file beneath", ScopeSubtree, nil, write("d/b"), false, act.Allow},
		{"a file elsewhere", ScopeSubtree, nil, write("../b"), true, act.Allow},
		{"another tool", ScopeSubtree, nil, read("a"), true, act.Allow},
		{"another kind", ScopeSubtree, func(b *bench) {
			b.run.Servers["files"].Annotation.Tools["write"].Args["/path"] = policy.Arg{Role: policy.RolePath, Effects: []act.Kind{act.Append}}
		}, write("b"), true, act.Allow},
		{"what cannot be undone", ScopeSubtree, func(b *bench) {
			b.run.Servers["files"].Annotation.Tools["write"].Args["/path"] = policy.Arg{Role: policy.RolePath, Effects: []act.Kind{act.Delete}}
		}, write("b"), true, act.Allow},
		{"another server behind the name", ScopeSubtree, func(b *bench) { b.run.Servers["files"].Pin = "other" }, write("b"), true, act.Allow},
		{"another clause besides", ScopeSubtree, func(b *bench) { b.run.Policy = asks("c1", "c2") }, write("b"), true, act.Allow},
		{"another clause behind", ScopeSubtree, then(asks("c2")), write("b"), true, act.Deny},
		{"forbidden behind", ScopeSubtree, then(denies("c3.1")), write("b"), false, act.Deny},
		{"taken back", ScopeSubtree, func(b *bench) { b.run.Session.Withdraw("q") }, write("b"), true, act.Allow},
		{"taken back meanwhile", ScopeSubtree, func(b *bench) { b.o.Guard = withdraws{b} }, write("b"), false, act.Deny},
		{"a doubt", ScopeSubtree, func(b *bench) { b.o.Guard = opinion{verdict: act.Escalate} }, write("b"), true, act.Allow},
	} {
		b := lasting(t, c.form)
		if c.change != nil {
			c.change(b)
		}
		got := b.decide(c.req)
		if asked := len(b.people.digests) == 2; asked != c.asked || got.Verdict != c.verdict {
			t.Errorf("%s: asked %v, %v %s", c.what, asked, got.Verdict, got.Reason)
		}
		last := b.record.entries[len(b.record.entries)-1]
		passed := !c.asked && c.verdict == act.Allow
		if passed && (b.run.Session.Scopes()[0].Used != 1 || !strings.Contains(string(last.Body), `"granted":"q"`)) {
			t.Errorf("%s: neither counted nor on record: %s", c.what, last.Body)
		}
	}
}

type withdraws struct{ b *bench }

func (w withdraws) Judge(context.Context, act.Request, []act.Effect) (act.Verdict, string, error) {
	w.b.run.Session.Withdraw("q")
	return act.Allow, "", nil
}

// TestScopeOnRecord: a yes for the session is in force only if it is on record, and there is
// room for it.
func TestScopeOnRecord(t *testing.T) {
	b := lasting(t, ScopeSubtree)
	if !slices.ContainsFunc(b.record.entries, func(e ledger.Entry) bool {
		return e.Type == EntryAnswer && strings.Contains(string(e.Body), `"scope":"create anywhere beneath `)
	}) {
		t.Errorf("%q", b.record.types())
	}
	b.run.Session.Withdraw("q")
	b.people.answer.Scope, b.record.failAt = 1, b.record.appends+2
	if got, err := New(b.o).Decide(context.Background(), act.Request{Session: "s", Verb: act.VerbCall, Tool: "files.write", Args: write("a").Args}); err == nil || got.Verdict != act.Deny || len(b.run.Session.Scopes()) > 0 {
		t.Errorf("%+v %v %+v", got, err, b.run.Session.Scopes())
	}
	b.record.failAt, b.people.answer.Scope = 0, 99
	if got := b.decide(write("a")); got.Verdict != act.Allow || len(b.run.Session.Scopes()) > 0 {
		t.Errorf("a scope that was not offered: %+v", got)
	}
	for i := 0; b.run.Session.Keep(session.Scope{ID: fmt.Sprint(i)}); i++ {
	}
	b.people.answer.Scope = 1
	if got := b.decide(write("a")); got.Verdict != act.Deny {
		t.Errorf("one scope too many: %+v", got)
	}
}
