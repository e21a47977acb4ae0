package policy

import (
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
)

func onPath(kind act.Kind, text string) act.Effect {
	return act.Effect{Kind: kind, Resource: act.Resource{Type: act.Path, Text: text}}
}

func loadText(t testing.TB, text string, lower ...Layer) *Policy {
	t.Helper()
	p, err := Load(append([]Layer{{Text: []byte(text)}}, lower...), Binding{Workspace: "/w", Home: "/home/u"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestUnjudgeable: what cannot be judged is denied, whatever the policy says.
func TestUnjudgeable(t *testing.T) {
	p := loadText(t, "permit (principal, action, resource);")
	good := Query{Principal: "p/a", Tool: "s.t", Effects: []act.Effect{onPath(act.Read, "/a")}, Now: time.Unix(0, 0)}
	if d := p.Decide(good); d.Verdict != act.Allow || d.Reason != "" {
		t.Fatalf("%+v", d)
	}
	for name, edit := range map[string]func(q *Query){
		"no effects":      func(q *Query) { q.Effects = nil },
		"no principal":    func(q *Query) { q.Principal = "" },
		"half principal":  func(q *Query) { q.Principal = "p/" },
		"long principal":  func(q *Query) { q.Principal = "p/a/b" },
		"half tool":       func(q *Query) { q.Tool = "git" },
		"argument":        func(q *Query) { q.Args = map[string]any{"/x": 1.5} },
		"unknown kind":    func(q *Query) { q.Effects[0].Kind = "fly" },
		"kind on another": func(q *Query) { q.Effects[0].Kind = act.Fetch },
		"no resource":     func(q *Query) { q.Effects[0].Resource = act.Resource{} },
		"bad text":        func(q *Query) { q.Effects[0].Resource.Text = "a" },
		"bad fact":        func(q *Query) { q.Effects[0].Resource.Facts = map[string]any{"exists": 1} },
		"list fact":       func(q *Query) { q.Effects[0].Resource.Facts = map[string]any{"exists": []string{"x"}} },
		"one of two":      func(q *Query) { q.Effects = append(q.Effects, onPath(act.Read, "b")) },
		"tree of a host": func(q *Query) {
			q.Effects[0] = act.Effect{Kind: act.Connect, Tree: true, Resource: act.Resource{Type: act.Host, Text: "a.org:443"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := good
			q.Effects = append([]act.Effect(nil), good.Effects...)
			edit(&q)
			d := p.Decide(q)
			if d.Verdict != act.Deny || len(d.Errors) == 0 || len(d.Rules) == 0 || d.Reason == "" {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestR9 is R9: an evaluation error denies, so that a forbid that errs does not
// vanish, nor a permit hide it.
func TestR9(t *testing.T) {
	const overflow = "context has hour && context.hour + 9223372036854775807 > 0"
	for name, text := range map[string]string{
		"forbid errs":        "permit (principal, action, resource); forbid (principal, action, resource) when { " + overflow + " };",
		"permit errs":        "permit (principal, action, resource); permit (principal, action, resource) when { " + overflow + " };",
		"forbid of a tree":   "permit (principal, action, resource); forbid (principal, action, resource in Path::\"/a/b\") when { " + overflow + " };",
		"forbid of approval": "permit (principal, action, resource); forbid (principal, action, resource) when { " + overflow + " } unless { context.approved.contains(\"rule1\") };",
	} {
		t.Run(name, func(t *testing.T) {
			e := onPath(act.Read, "/a")
			e.Tree = name == "forbid of a tree"
			q := Query{Principal: "p/a", Effects: []act.Effect{e}, Now: time.Unix(3600, 0)}
			d := loadText(t, text).Decide(q)
			if d.Verdict != act.Deny || len(d.Errors) == 0 || !strings.Contains(d.Errors[0], "rule rule2: integer overflow") || !strings.Contains(d.Reason, "cannot be judged") {
				t.Errorf("%+v", d)
			}
			q.Now = time.Unix(0, 0)
			if d := loadText(t, text).Decide(q); d.Verdict == act.Allow && strings.HasPrefix(name, "forbid") {
				t.Errorf("without overflow: %+v", d)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	p := loadText(t, `
@id("c1.1") @clause("c1") @line("1") @text("may read files") permit (principal, action == Action::"read", resource);
@id("c2.1") @clause("c2") @line("2") @text("must never read secrets") @because("they are secret") forbid (principal, action == Action::"read", resource in Path::"/s");
@id("c3.1") @clause("c3") @text("two owners") @approvers("2 of owner") permit (principal, action == Action::"delete", resource) when { context.approved.contains("c3") };
@id("c4") permit (principal, action == Action::"delete", resource in Path::"/d") when { context.approved.contains("c4") };
permit (principal, action == Action::"stat", resource);
`, Layer{Name: "user", Text: []byte(`permit (principal, action, resource) unless { action == Action::"stat" };`)})
	for name, c := range map[string]struct {
		effects []act.Effect
		want    string
	}{
		"forbidden": {
			[]act.Effect{onPath(act.Read, "/s/x")},
			"denied: read /s/x is forbidden by c2.1 (line 2: “must never read secrets”), because they are secret. Retrying will not help: do without it, or tell the person what stands in the way.",
		},
		"default":        {[]act.Effect{onPath(act.Create, "/x")}, "denied: create /x is allowed by no rule of the policy (default). Retrying will not help"},
		"lower default":  {[]act.Effect{onPath(act.Stat, "/x")}, "denied: stat /x is not among what the user policy leaves allowed (user:default). Retrying"},
		"several layers": {[]act.Effect{onPath(act.Create, "/x\x1b[2J\u202e")}, `create /x\u{1b}[2J\u{202e} is allowed by no rule`},
		"escalate":       {[]act.Effect{onPath(act.Delete, "/x")}, "delete /x needs approval by c3 (two owners) [2 of owner]."},
		"escalate bare":  {[]act.Effect{onPath(act.Delete, "/d/x")}, "needs approval by c3 (two owners)"},
		"many": {
			[]act.Effect{onPath(act.Create, "/1"), onPath(act.Create, "/2"), onPath(act.Create, "/3"), onPath(act.Create, "/4"), onPath(act.Create, "/5"), onPath(act.Read, "/ok")},
			"denied: create /1 is allowed by no rule of the policy (default); likewise create /2; likewise create /3; and 2 more effects. Retrying",
		},
		"one more than fit": {
			[]act.Effect{onPath(act.Create, "/1"), onPath(act.Create, "/2"), onPath(act.Create, "/3"), onPath(act.Create, "/4")},
			"likewise create /3; and 1 more effect. Retrying",
		},
		"one thing": {
			[]act.Effect{onPath(act.Create, "/1"), onPath(act.Append, "/1"), onPath(act.Move, "/1"), onPath(act.Read, "/s/x")},
			"denied: create, append and move /1 is allowed by no rule of the policy (default); read /s/x is forbidden by c2.1",
		},
		"long": {[]act.Effect{onPath(act.Create, "/"+strings.Repeat("x", 1000))}, "xxx… is allowed by no rule"},
		"tree": {[]act.Effect{{Kind: act.Read, Tree: true, Resource: act.Resource{Type: act.Path, Text: "/"}}}, "read / and everything beneath is forbidden at /s by c2.1"},
		"bedrock": {
			[]act.Effect{{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: "/k", Facts: map[string]any{act.FactClass: "credentials"}}}},
			"read /k needs approval by bedrock.credentials (using the keys and credentials of this person needs a person).",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := p.Decide(Query{Principal: "p/a", Effects: c.effects})
			if !strings.Contains(d.Reason, c.want) || len(d.Reason) > 2000 {
				t.Errorf("got  %s\nwant %s", d.Reason, c.want)
			}
			for _, c := range d.Reason {
				if c < ' ' {
					t.Errorf("control character %q in a reason", c)
				}
			}
		})
	}
}

// TestAskedOnce: what several effects ask for is asked once.
func TestAskedOnce(t *testing.T) {
	p := loadText(t, `@id("c1") permit (principal, action, resource) when { context.approved.contains("c1") };`)
	d := p.Decide(Query{Principal: "p/a", Effects: []act.Effect{onPath(act.Read, "/a"), onPath(act.Read, "/b")}})
	if d.Verdict != act.Escalate || len(d.Ask) != 1 || len(d.Rules) != 1 || len(d.Effects) != 2 || d.Ask[0].Quorum != (Quorum{Count: 1}) {
		t.Errorf("%+v", d)
	}
}

// TestFirstPermit: of several permits the first is named, and one without a limit
// before one with.
func TestFirstPermit(t *testing.T) {
	p := loadText(t, `
@id("c1") @limit("1 in session") permit (principal, action, resource) when { context.counts.hasTag("c1") && context.counts.getTag("c1") < 1 };
@id("c3") permit (principal, action == Action::"list", resource);
@id("c2") permit (principal, action == Action::"list", resource);`)
	count := int64(0)
	q := Query{Principal: "p/a", Effects: []act.Effect{onPath(act.List, "/a")}, Counts: func(string) int64 { return count }}
	if d := p.Decide(q); d.Rules[0] != "c2" || d.Limited != nil {
		t.Errorf("%+v", d)
	}
	q.Effects[0].Kind = act.Read
	if d := p.Decide(q); d.Rules[0] != "c1" || len(d.Limited) != 1 || d.Limited[0] != "c1" {
		t.Errorf("%+v", d)
	}
	q.Effects = append(q.Effects, onPath(act.Create, "/b"))
	if d := p.Decide(q); d.Verdict != act.Deny || d.Limited != nil {
		t.Errorf("two under a limit of one: %+v", d)
	}
	for _, count = range []int64{1, 1 << 62, -5} {
		q.Effects = q.Effects[:1]
		if d := p.Decide(q); (d.Verdict == act.Allow) != (count < 0) {
			t.Errorf("count %d: %+v", count, d)
		}
	}
	q.Counts = nil
	if d := p.Decide(q); d.Verdict != act.Deny {
		t.Errorf("no counts: %+v", d)
	}
}

// TestPatternsAreBounded is PO-06: a pattern cannot make a decision slow.
func TestPatternsAreBounded(t *testing.T) {
	p := loadText(t, `permit (principal, action, resource is Path) when { resource.name like "`+strings.Repeat("*a", 5000)+`*b" };`)
	began := time.Now()
	p.Decide(Query{Principal: "p/a", Effects: []act.Effect{onPath(act.Read, "/"+strings.Repeat("a", 60000))}})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("permit (principal, action, resource);"))
	f.Add([]byte(`@id("c1") @limit("3 in 1h0m0s") forbid (principal in Persona::"p", action in [Action::"read"], resource is Path in Path::"${workspace}/x") when { resource.name like "*.x" } unless { context.approved.contains("c1") };`))
	f.Add(bedrockText)
	effects := []act.Effect{onPath(act.Read, "/w/x/a.x"), {Kind: act.Connect, Resource: act.Resource{Type: act.Host, Text: "a.org:443"}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Load([]Layer{{Text: text}}, Binding{Workspace: "/w", Home: "/h"})
		if err != nil {
			return
		}
		d := p.Decide(Query{Principal: "p/a", Effects: effects, Now: time.Unix(0, 0)})
		if d.Verdict == act.Allow && len(d.Errors) > 0 {
			t.Fatalf("%+v", d)
		}
	})
}
