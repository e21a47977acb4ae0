package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"ringfence/internal/act"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/inspect"
	"ringfence/internal/policy"
)

// decisions measures our decision against that of cedar-go over the same rules.
func decisions(ctx context.Context, b *bench) error {
	work := b.dir + "/work"
	file := filepath.Join(work, "internal", "policy", "decide.go")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte("package policy\n"), 0o600); err != nil {
		return err
	}
	for _, n := range []int{10, 1000, 10_000} {
		if err := decisionsAt(ctx, b, n, work, file); err != nil {
			return fmt.Errorf("%d rules: %w", n, err)
		}
	}
	return nil
}

func decisionsAt(ctx context.Context, b *bench, n int, work, file string) error {
	p, err := rules(n, work)
	if err != nil {
		return err
	}
	cedarOf, err := newPeer(p)
	if err != nil {
		return err
	}
	const peerName = "cedar-go, unindexed"
	turns := b.times(400_000 / max(n, 200))
	for _, kind := range []struct {
		name   string
		effect act.Effect
		peer   cedar.Request
	}{
		{"path", act.Effect{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: file}}, request("read", "Path", file)},
		{"host", act.Effect{Kind: act.Fetch, Resource: act.Resource{Type: act.URL, Text: page1}}, request("fetch", "URL", page1)},
	} {
		q := policy.Query{Principal: "p/a", Tool: "filesystem.read_text_file", Effects: []act.Effect{kind.effect}, Now: time.Now()}
		ours := func() error { return allows(p.Decide(q)) }
		beside := func() error { return cedarOf.allows(kind.peer, kind.effect) }
		mine, theirs, err := inTurn(ctx, turns, ours, beside)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		r := latency(fmt.Sprintf("decision, %s rules, %s, facts given", grouped(float64(n)), kind.name), mine, peerName, theirs)
		if n == 1000 {
			r = r.within(mine.p50(), 5*time.Microsecond)
		}
		b.add(r)
	}
	return onDisk(ctx, b, n, p, cedarOf, turns, work, file)
}

// onDisk is the decision with the path resolved: what is asked is a call with
// arguments.
func onDisk(ctx context.Context, b *bench, n int, p *policy.Policy, c *peer, turns int, work, file string) error {
	shipped, err := policy.Shipped()
	if err != nil {
		return err
	}
	read := shipped["filesystem"].Tools["read_text_file"]
	view := resolve.View{Workspace: work, Home: b.dir, OwnState: []string{b.dir + "/own"}}
	call := resolve.Call{Tool: "filesystem.read_text_file", Args: fmt.Appendf(nil, `{"path":%q}`, file), Annotation: &read, Dir: work}
	now := time.Now()
	ours := func() error {
		r, err := view.Call(call)
		if err != nil {
			return err
		}
		return allows(p.Decide(policy.Query{Principal: "p/a", Tool: call.Tool, Effects: r.Effects, Args: r.Facts, Now: now}))
	}
	beside := func() error {
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			return err
		}
		e := act.Effect{Kind: act.Read, Resource: act.Resource{Type: act.Path, Text: real}}
		return c.allows(request("read", "Path", real), e)
	}
	mine, theirs, err := inTurn(ctx, turns, ours, beside)
	if err != nil {
		return fmt.Errorf("on disk: %w", err)
	}
	r := latency(fmt.Sprintf("decision, %s rules, path resolved on disk", grouped(float64(n))), mine, "EvalSymlinks and cedar-go", theirs)
	if n == 1000 {
		r = r.within(mine.p50(), 15*time.Microsecond)
	}
	b.add(r)
	return nil
}

const page1 = "https://docs.example.org/a/b/c.html"

// rules is a policy of n clauses: permits on directories, sites and tools,
// forbids of names and of directories within what is permitted, an approval.
func rules(n int, work string) (*policy.Policy, error) {
	clauses := []policy.Clause{
		{Modality: policy.May, Kinds: []act.Kind{act.Read, act.List}, On: []policy.Pattern{{Type: act.Path, Beneath: work}}},
		{Modality: policy.MustNever, Kinds: []act.Kind{act.Read}, On: []policy.Pattern{{Type: act.Path, Name: "*.pem"}, {Type: act.Path, Name: ".env"}}},
		{Modality: policy.May, Kinds: []act.Kind{act.Fetch}, On: []policy.Pattern{{Type: act.URL, Site: "*.example.org"}}},
		{Modality: policy.MustAsk, Kinds: []act.Kind{act.Delete}},
	}
	for i := len(clauses); i < n; i++ {
		c := policy.Clause{Modality: policy.May}
		switch i % 4 {
		case 0:
			c.Kinds, c.On = []act.Kind{act.Read, act.Overwrite}, []policy.Pattern{{Type: act.Path, Beneath: fmt.Sprintf("/data/%d/x", i)}}
		case 1:
			c.Kinds, c.On = []act.Kind{act.Fetch, act.Send}, []policy.Pattern{{Type: act.URL, Site: fmt.Sprintf("h%d.example.com", i)}}
		case 2:
			c.Tools = []string{fmt.Sprintf("server%d.tool", i)}
		case 3:
			c.Modality, c.Kinds = policy.MustNever, []act.Kind{act.Overwrite}
			c.On = []policy.Pattern{{Type: act.Path, Beneath: fmt.Sprintf("%s/secret/%d", work, i)}}
		}
		clauses = append(clauses, c)
	}
	for i := range clauses {
		clauses[i].ID = fmt.Sprintf("c%d", i+1)
	}
	text, err := policy.Cedar(clauses, true)
	if err != nil {
		return nil, err
	}
	return policy.Load([]policy.Layer{{Text: text}}, policy.Binding{})
}

func allows(d policy.Decision) error {
	if d.Verdict != act.Allow {
		return fmt.Errorf("we deny what is meant to be allowed: %s %v", d.Reason, d.Errors)
	}
	return nil
}

// A peer decides with cedar-go over all rules of a policy at once.
type peer struct{ set *cedar.PolicySet }

func newPeer(p *policy.Policy) (*peer, error) {
	set := cedar.NewPolicySet()
	for _, r := range p.Rules() {
		var one cedar.Policy
		if err := one.UnmarshalCedar([]byte(r.Cedar)); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		set.Add(cedar.PolicyID(r.ID), &one)
	}
	return &peer{set}, nil
}

// allows asks cedar-go, with the entities that the schema says.
func (p *peer) allows(r cedar.Request, e act.Effect) error {
	d, diag := cedar.Authorize(p.set, world(r, e), r)
	if d != cedar.Allow || len(diag.Errors) > 0 {
		return fmt.Errorf("cedar-go denies what is meant to be allowed: %v", diag)
	}
	return nil
}

func request(action, typ, text string) cedar.Request {
	var none []types.Value
	return cedar.Request{
		Principal: uid("Agent", "p/a"), Action: uid("Action", action), Resource: uid(typ, text),
		Context: types.NewRecord(types.RecordMap{
			"approved": types.NewSet(none...),
			"session":  types.NewRecord(types.RecordMap{"labels": types.NewSet(none...)}),
			"tool":     uid("Tool", "filesystem.read_text_file"),
			"counts":   uid("Counts", "call"),
			"args": types.NewRecord(types.RecordMap{
				"text": uid("TextArgs", "call"), "number": uid("NumberArgs", "call"), "flag": uid("FlagArgs", "call"),
			}),
		}),
	}
}

func world(r cedar.Request, e act.Effect) types.EntityMap {
	resource := types.Entity{UID: r.Resource}
	if e.Resource.Type == act.Path {
		var up []types.EntityUID
		for d := filepath.Dir(e.Resource.Text); ; d = filepath.Dir(d) {
			up = append(up, uid("Path", d))
			if d == "/" {
				break
			}
		}
		name := filepath.Base(e.Resource.Text)
		resource.Parents = types.NewEntityUIDSet(up...)
		resource.Attributes = types.NewRecord(types.RecordMap{
			"name": types.String(name), "ext": types.String(strings.TrimPrefix(filepath.Ext(name), ".")),
		})
	} else {
		resource.Parents = types.NewEntityUIDSet(
			uid("Host", "docs.example.org:443"), uid("Host", "docs.example.org"), uid("Domain", "docs.example.org"),
			uid("Domain", "example.org"), uid("Domain", "org"), uid("Prefix", "docs.example.org"),
			uid("Prefix", "docs.example.org/a"), uid("Prefix", "docs.example.org/a/b"))
		resource.Attributes = types.NewRecord(types.RecordMap{
			"scheme": types.String("https"), "host": types.String("docs.example.org"), "port": types.Long(443),
			"path": types.String("/a/b/c.html"), "private": types.False,
		})
	}
	m := types.EntityMap{}
	for _, ent := range []types.Entity{
		resource,
		{UID: r.Principal, Parents: types.NewEntityUIDSet(uid("Persona", "p"))},
		{UID: r.Action, Parents: types.NewEntityUIDSet(uid("Action", "observe"))},
		{UID: uid("Tool", "filesystem.read_text_file"), Parents: types.NewEntityUIDSet(uid("Server", "filesystem"))},
		{UID: uid("TextArgs", "call")},
		{UID: uid("NumberArgs", "call")},
		{UID: uid("FlagArgs", "call")},
		{UID: uid("Counts", "call")},
	} {
		m[ent.UID] = ent
	}
	return m
}

func uid(typ, id string) types.EntityUID {
	return types.EntityUID{Type: types.EntityType(typ), ID: types.String(id)}
}

// monitors measures what a limited clause costs, per event, beside adding one to
// a counter in a map.
func monitors(ctx context.Context, b *bench) error {
	const batch = 1000
	limited := []string{"c1"}
	m := policy.NewMonitors(map[string]policy.Limit{"c1": {Count: 1 << 30, Window: time.Hour}})
	now, plain := time.Now(), map[string]int{}
	mine, theirs, err := inTurn(ctx, b.times(500),
		func() error {
			for range batch {
				now = now.Add(time.Millisecond)
				if m.Counts("p/a", "s", now)("c1") < 0 || !m.Take(limited, "p/a", "s", now) {
					return errors.New("the limit is used up")
				}
			}
			return nil
		},
		func() error {
			for range batch {
				plain["c1"]++
			}
			return nil
		})
	if err != nil {
		return err
	}
	mine, theirs = mine.divided(batch), theirs.divided(batch)
	b.add(latency("history monitor, per event", mine, "a counter in a map", theirs).within(mine.p50(), time.Microsecond))
	return nil
}

// scans measures the inspection of a reply of 10 KB, beside checking that it is
// JSON.
func scans(ctx context.Context, b *bench) error {
	line := `2026-01-02 10:11:12 INFO request id=%08x path=/a/b/c status=200 user=someone@example.com took=12ms\n`
	var text strings.Builder
	text.WriteString(`{"content":[{"type":"text","text":"`)
	for i := 0; text.Len() < 10<<10; i++ {
		fmt.Fprintf(&text, line, i*2654435761)
	}
	text.WriteString(`"}]}`)
	reply := []byte(text.String())
	in := &inspect.Inspector{}
	mine, theirs, err := inTurn(ctx, b.times(4000),
		func() error {
			if f := in.ScanFrom(reply, inspect.Result); len(f.Matches) > 0 {
				return errors.New("it finds secrets where there are none")
			}
			return nil
		},
		func() error { return validJSON(reply) })
	if err != nil {
		return err
	}
	b.add(latency("scan of a reply of 10 KB", mine, "json.Valid on it", theirs).within(mine.p50(), 500*time.Microsecond))
	return nil
}
