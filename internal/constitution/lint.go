package constitution

import (
	"strings"

	"ringfence/internal/policy"
)

// lists puts the lists that the clauses name into out, and reports those that do
// not exist.
func (c *compiler) lists(out *Compiled) {
	seen := map[string]bool{}
	note := func(cl *policy.Clause, on []policy.Pattern) {
		for _, p := range on {
			name := strings.TrimPrefix(p.List, "@")
			if name == "" || seen[name] {
				continue
			}
			seen[name] = true
			if l, ok := c.opts.Lists[name]; ok {
				out.Lists[name] = l
				continue
			}
			f := c.report(Warning, c.offset(cl), cl.ID, "there is no list %s: it matches nothing", p.List)
			f.Suggestion = nearest(name, keys(c.opts.Lists))
		}
	}
	for i := range out.Clauses {
		cl := &out.Clauses[i]
		note(cl, cl.On)
		for _, e := range cl.Except {
			note(cl, e.On)
		}
	}
}

func keys(lists map[string]policy.List) []string {
	var all []string
	for k := range lists {
		all = append(all, k)
	}
	return all
}

func (c *compiler) offset(cl *policy.Clause) int { return c.lines[cl.Line-1] + cl.Column - 1 }

// lint reports what is odd about clauses that are each understood.
func (c *compiler) lint(out *Compiled) {
	byID := map[string]*policy.Clause{}
	for i := range out.Clauses {
		byID[out.Clauses[i].ID] = &out.Clauses[i]
	}
	o := policy.LintOptions{Lower: !out.Granting, Tools: c.opts.Tools}
	for name := range c.opts.Lists {
		o.Lists = append(o.Lists, name)
	}
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
