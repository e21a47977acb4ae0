package gate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/policy"
)

// repositories makes, in a workspace: a repository r with a linked work tree wt, a bare
// one b, and one far/down.
func repositories(t *testing.T, b *bench) {
	t.Helper()
	put := func(name, text string) {
		p := filepath.Join(b.work, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"r/.git", "b", "far/down/.git"} {
		put(dir+"/HEAD", "ref: refs/heads/main\n")
		put(dir+"/objects/x", "")
		put(dir+"/refs/x", "")
	}
	put("r/.git/worktrees/wt/commondir", "../..\n")
	put("wt/.git", "gitdir: "+b.work+"/r/.git/worktrees/wt\n")
	put("empty/.git", "nothing\n")
	put("gone/.git", "gitdir: nowhere\n")
}

// TestImplied: what a program comes to that is given trees is asked about, held or hidden,
// as clauses say that do not speak of files.
func TestImplied(t *testing.T) {
	const (
		anything = `permit(principal, action, resource);`
		never    = `forbid(principal, action == Action::"git-rewrite", resource);`
		ask      = `@id("ask") forbid(principal, action == Action::"git-commit", resource) unless {context.approved.contains("ask")};`
		far      = `forbid(principal, action in [Action::"git-commit", Action::"git-branch"], resource in Path::"${workspace}/far");`
		blind    = `forbid(principal, action == Action::"git-read", resource is Repo in Path::"${workspace}/r");`
		unlisted = `forbid(principal, action == Action::"list", resource in Path::"${workspace}/r/secret");`
	)
	const limited = `permit(principal, action, resource) unless {action == Action::"execute"};
		@id("n") @limit("1 in session") permit(principal, action == Action::"execute", resource) when {context.counts.hasTag("n") && context.counts.getTag("n") < 1};`
	all := []string{"b", "far/down/.git", "r/.git", "r/.git/worktrees/wt"}
	for name, c := range map[string]struct {
		policy     string
		alone      bool // nobody is asked
		verdict    act.Verdict
		hold, hide []string
		asked, say string
	}{
		"nothing is said of git":          {policy: ``, verdict: act.Allow},
		"never rewrite history":           {policy: never, verdict: act.Allow, hold: all, say: "far/down/.git cannot be changed in the box: git-rewrite repo:"},
		"must ask before committing":      {policy: ask, verdict: act.Escalate, asked: "git-commit repo:$/r,git-commit repo:$/wt"},
		"nobody to ask":                   {policy: ask, alone: true, verdict: act.Allow, hold: all, say: "git-commit repo:"},
		"no repository that is spoken of": {policy: strings.ReplaceAll(ask, `resource)`, `resource in Path::"${workspace}/other")`), verdict: act.Allow},
		"repositories in one directory":   {policy: far, verdict: act.Allow, hold: all[1:2], say: "git-commit repo:"},
		"a repository is not read":        {policy: blind + ask, verdict: act.Escalate, hide: []string{"r/.git"}, asked: "git-commit repo:$/b,git-commit repo:$/wt,git-commit repo:$/far/down"},
		"held and asked about reading":    {policy: never + strings.ReplaceAll(ask, "git-commit", "git-read"), verdict: act.Escalate, hold: all, asked: "git-read repo:$/b"},
		"never list ./r/secret":           {policy: unlisted, verdict: act.Deny, say: "list "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			repositories(t, b)
			text := anything + c.policy
			if strings.HasSuffix(c.policy, limited) {
				text = c.policy
			}
			p, err := policy.Load([]policy.Layer{{Text: []byte(text)}}, policy.Binding{Workspace: b.work, Home: "/home/u"})
			if err != nil {
				t.Fatal(err)
			}
			b.run.Policy, b.run.Ask.Never, b.run.Monitors = p, c.alone, policy.NewMonitors(p.Limits())
			before := act.Allow
			b.people.before = func() { before = act.Escalate }
			got := b.decide(act.Request{Verb: act.VerbExec, Args: fmt.Appendf(nil, `{"argv":["/bin/sh"],"write":[%q],"hold":["/x"]}`, b.work)})
			if got.Verdict == act.Deny {
				before = act.Deny
			}
			var asked []string
			for _, e := range got.Effects {
				if e.Implied {
					asked = append(asked, strings.ReplaceAll(e.String(), b.work, "$"))
				}
			}
			var box resolve.Exec
			if got.Verdict == act.Allow {
				err = json.Unmarshal(got.Bytes, &box)
			}
			if err != nil || before != c.verdict || !strings.Contains(strings.Join(asked, ","), c.asked) || !strings.Contains(got.Reason, c.say) || (c.say == "") != (got.Reason == "") && c.hide == nil && c.asked == "" {
				t.Errorf("%v, %v, asked %q, said %q", err, before, asked, got.Reason)
			}
			for list, want := range map[*[]string][]string{&box.Hold: c.hold, &box.Hide: c.hide} {
				for i, p := range want {
					want = slices.Clone(want)
					want[i] = filepath.Join(b.work, p)
				}
				if !slices.Equal(*list, want) {
					t.Errorf("%q, want %q", *list, want)
				}
			}
		})
	}
}

// TestImpliedOfManyRepositories: of many, not all are named.
func TestImpliedOfManyRepositories(t *testing.T) {
	b := newBench(t, nil)
	for i := range maxSaid + 5 {
		if err := os.MkdirAll(fmt.Sprintf("%s/%d/.git", b.work, i), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	b.run.Policy = judge(func(q policy.Query) policy.Decision {
		if slices.ContainsFunc(q.Effects, func(e act.Effect) bool { return e.Kind == act.GitBranch }) {
			return policy.Decision{Reason: "no."}
		}
		return policy.Decision{Verdict: act.Allow}
	})
	r := act.Request{Verb: act.VerbExec, Args: fmt.Appendf(nil, `{"argv":["/bin/sh"],"write":[%q]}`, b.work)}
	if got := b.decide(r); !strings.HasSuffix(got.Reason, "and so for 5 more repositories") {
		t.Errorf("%+v", got)
	}
	if got := Evaluate(b.run, r, Given{Now: time.Unix(1, 0)}); got.Verdict != act.Allow {
		t.Errorf("%+v", got)
	}
	b.run.Policy = judge(func(q policy.Query) policy.Decision {
		if q.Effects[0].Kind == act.GitBranch || len(q.Effects) > 1 {
			return policy.Decision{Verdict: act.Escalate, Ask: []policy.Asked{{Clause: "c1"}}}
		}
		return policy.Decision{Verdict: act.Allow}
	})
	b.people.before = func() {
		for i := range 1_001 {
			if err := os.MkdirAll(fmt.Sprintf("%s/more/%d/.git", b.work, i), 0o750); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 { // while a person is asked, and from then on
		if got := b.decide(r); got.Code != act.CodeUnresolved || !strings.Contains(got.Reason, "give the box a smaller tree") {
			t.Errorf("%+v", got)
		}
	}
	if got := Evaluate(b.run, r, Given{}); got.Code != act.CodeUnresolved {
		t.Errorf("%+v", got)
	}
}

// TestImpliedOfCalls: a call that runs a program has no box of its own to narrow, so what
// is not let denies or is asked; a call that runs none comes to nothing else.
func TestImpliedOfCalls(t *testing.T) {
	b := newBench(t, nil)
	repositories(t, b)
	p, err := policy.Load([]policy.Layer{{Text: []byte(`permit(principal, action, resource); forbid(principal, action == Action::"git-read", resource);`)}}, policy.Binding{})
	if err != nil {
		t.Fatal(err)
	}
	b.run.Policy = p
	d := &draft{run: b.run, req: act.Request{Verb: act.VerbCall, Tool: "files.read", Principal: "p/a"}}
	tree := act.Effect{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: b.work}, Tree: true}
	for _, run := range []bool{false, true} {
		d.res.Effects = []act.Effect{tree}
		if run {
			d.res.Effects = append(d.res.Effects, act.Effect{Kind: act.Execute, Resource: act.Resource{Type: act.Command, Text: `["/bin/ls"]`}})
		}
		if no := d.implied(d.query(New(b.o)), false); no != nil {
			t.Fatal(no)
		}
		if got := slices.ContainsFunc(d.res.Effects, func(e act.Effect) bool { return e.Kind == act.GitRead }); got != run {
			t.Errorf("runs a program: %v; %v", run, d.res.Effects)
		}
	}
	p, err = policy.Load([]policy.Layer{{Text: []byte(`permit(principal, action, resource); forbid(principal, action == Action::"git-read", resource is Repo in Path::"${workspace}/b");`)}}, policy.Binding{Workspace: b.work})
	if err != nil {
		t.Fatal(err)
	}
	b.run.Policy = p
	d.req.Verb, d.res.Bytes, d.res.Effects = act.VerbExec, []byte(`{`), d.res.Effects[:2]
	if no := d.implied(d.query(New(b.o)), false); no == nil || no.code != act.CodeInternal {
		t.Errorf("%+v", no)
	}
}
