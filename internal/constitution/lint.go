package constitution

import (
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// lists puts the lists that the clauses name into out, and reports those that do
// not exist, and members that cannot be what the clauses are about.
func (c *compiler) lists(out *Compiled) {
	used := map[string][]act.ResourceType{}
	first := map[string]*policy.Clause{}
	var order []string
	note := func(cl *policy.Clause, on []policy.Pattern) {
		for _, p := range on {
			name := strings.TrimPrefix(p.List, "@")
			if name == "" {
				continue
			}
			if first[name] == nil {
				first[name], order = cl, append(order, name)
			}
			used[name] = union(used[name], []act.ResourceType{p.Type})
		}
	}
	for i := range out.Clauses {
		cl := &out.Clauses[i]
		note(cl, cl.On)
		for _, e := range cl.Except {
			note(cl, e.On)
		}
	}
	for _, name := range order {
		c.list(out, name, first[name], used[name])
	}
}

// list checks one list, which clauses use for resources of the given types.
func (c *compiler) list(out *Compiled, name string, cl *policy.Clause, types []act.ResourceType) {
	l, ok := c.opts.Lists[name]
	if !ok {
		f := c.report(Warning, c.offset(cl), cl.ID, "there is no list @%s: it matches nothing", name)
		f.Suggestion = nearest(name, slices.Sorted(maps.Keys(c.opts.Lists)))
		return
	}
	out.Lists[name] = l
	for _, m := range slices.Concat(l.Members, l.Added) {
		if !slices.Contains(l.Removed, m) && !slices.ContainsFunc(types, func(t act.ResourceType) bool {
			_, problem := memberPattern(m, t)
			return problem == ""
		}) {
			c.report(Failure, c.offset(cl), cl.ID, "the list @%s holds %q, which is none of the %s it is used for", name, clip(m), typeNoun(types[0]))
		}
	}
}

func (c *compiler) offset(cl *policy.Clause) int { return c.lines[cl.Line-1] + cl.Column - 1 }

// lint reports what is odd about clauses that are each understood.
func (c *compiler) lint(out *Compiled) {
	byID := map[string]*policy.Clause{}
	for i := range out.Clauses {
		byID[out.Clauses[i].ID] = &out.Clauses[i]
	}
	o := policy.LintOptions{Lower: !out.Granting, Tools: c.opts.Tools, Lists: slices.Sorted(maps.Keys(c.opts.Lists))}
	for _, f := range policy.Lint(out.Clauses, o) {
		if f.Kind == "missing-list" {
			continue
		}
		if cl := byID[f.Clause]; cl != nil {
			c.report(Warning, c.offset(cl), f.Clause, "%s", f.Message)
		}
	}
	for i := range out.Clauses {
		cl := &out.Clauses[i]
		if cl.Modality == policy.May && len(cl.Kinds)+len(cl.Tools)+len(cl.On)+len(cl.Groups) == 0 && cl.Rest == "" {
			c.report(Warning, c.offset(cl), cl.ID, "this allows everything that no other sentence restricts")
		}
	}
}
