package gate

import (
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/display"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/policy"
)

// A program that is given trees comes to more than the kinds that are decided for them:
// it lists them, and reads and changes repositories in them. Where the policy speaks of
// that, it holds by the strictest means that there is: what it asks about is asked with
// the rest, what it forbids of a repository is not writable, or not there, in the box,
// and everything else denies.

// implied adds to d what else its program comes to, as far as the policy does not
// simply let it. q is the query about d without that. Nobody can be asked if never.
func (d *draft) implied(q policy.Query, never bool) *refusal {
	if !resolve.RunsProgram(d.res.Effects) {
		return nil
	}
	all := resolve.Implied(d.res.Effects)
	whole := q
	whole.Effects, whole.Approved = all, nil
	if len(all) == 0 || d.run.Policy.Decide(whole).Verdict == act.Allow {
		return nil
	}
	q.Approved = nil
	var roots []string
	var kinds []act.Kind // of changes of repositories
	for _, e := range all {
		switch root, repo := strings.CutPrefix(e.Resource.Text, "repo:"); {
		case d.lets(q, e).Verdict == act.Allow:
		case !repo:
			d.res.Effects = append(d.res.Effects, e)
		default:
			roots, kinds = appendNew(roots, root), appendNew(kinds, e.Kind)
		}
	}
	if len(roots) == 0 || d.run.Policy.Decide(q).Verdict == act.Deny {
		return nil // with nothing to look for, or for nothing
	}
	n := narrowing{draft: d, kinds: kinds, query: q, never: never}
	for _, root := range roots {
		found, err := d.run.View.Repositories(root)
		if err != nil {
			return refuse(act.CodeUnresolved, "the policy speaks of git, and %s %v", root, err)
		}
		for _, r := range found {
			n.repository(r)
		}
	}
	return n.finish()
}

// lets is what the policy says of one effect alone, with nothing approved.
func (d *draft) lets(q policy.Query, e act.Effect) policy.EffectDecision {
	q.Effects = []act.Effect{e}
	all := d.run.Policy.Decide(q)
	one := policy.EffectDecision{Effect: e, Verdict: all.Verdict, Reason: all.Reason}
	if len(all.Effects) == 1 {
		one.Reason = all.Effects[0].Reason
	}
	return one
}

// A narrowing is what becomes of a box because of the repositories that it would show.
type narrowing struct {
	*draft
	kinds      []act.Kind
	query      policy.Query
	never      bool
	ask        []act.Effect
	hold, hide []string
	said       []string
}

// repository decides about r. What is not there needs no hold, and about neither is
// anybody asked.
func (n *narrowing) repository(r resolve.Repository) {
	var ask []act.Effect
	var held, hidden string
	for _, k := range n.kinds {
		e := act.Effect{Kind: k, Resource: act.Resource{Type: act.Repo, Text: "repo:" + r.Top}, Implied: true}
		switch it := n.lets(n.query, e); {
		case it.Verdict == act.Allow:
		case it.Verdict == act.Escalate && !n.never, n.req.Verb != act.VerbExec && !n.boxes():
			ask = append(ask, e)
		case k == act.GitRead:
			hidden = it.Reason
		case held == "":
			held = it.Reason
		}
	}
	if hidden != "" {
		n.hide = append(n.hide, r.Places...)
		n.said = append(n.said, fmt.Sprintf("%s is not there in the box: %s", strings.Join(r.Places, ", "), hidden))
		return
	}
	if held != "" {
		n.hold = append(n.hold, r.Places...)
		n.said = append(n.said, fmt.Sprintf("%s cannot be changed in the box: %s", strings.Join(r.Places, ", "), held))
		ask = slices.DeleteFunc(ask, func(e act.Effect) bool { return e.Kind != act.GitRead })
	}
	n.ask = append(n.ask, ask...)
}

// maxSaid bounds of how many repositories an agent or a person is told.
const maxSaid = 20

// finish makes the command what was decided.
func (n *narrowing) finish() *refusal {
	n.res.Effects = append(n.res.Effects, n.ask...)
	if len(n.hold)+len(n.hide) == 0 || n.req.Verb != act.VerbExec {
		return nil // a call has a box that is decided on by itself, or nothing to narrow
	}
	res, err := n.res.Narrow(n.hold, n.hide)
	if err != nil {
		return refuse(act.CodeInternal, "%v", err)
	}
	if left := len(n.said) - maxSaid; left > 0 {
		n.said = append(n.said[:maxSaid], "and so for "+display.Count(left, "more repository", "more repositories"))
	}
	n.res, n.notes = res, n.said
	return nil
}

func appendNew[T comparable](to []T, one T) []T {
	if slices.Contains(to, one) {
		return to
	}
	return append(to, one)
}
