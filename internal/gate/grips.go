package gate

import (
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// A box whose changes of the workspace are kept apart changes nothing there. What a person
// would be asked about such changes is left to him who looks at them at the end; what is
// forbidden is forbidden to keep apart, too.

// waits takes out of d the changes of the workspace that wait for a person in a review. q
// is the query about d.
func (d *draft) waits(q policy.Query) {
	if !d.res.Review {
		return
	}
	var ids []string
	var kept []act.Effect
	for _, e := range d.run.Policy.Decide(q).Effects {
		if e.Verdict != act.Escalate || !d.apart(e.Effect) {
			kept = append(kept, e.Effect)
			continue
		}
		for _, a := range e.Ask {
			ids = appendNew(ids, a.Clause)
		}
	}
	if len(ids) == 0 {
		return
	}
	d.res.Effects = kept
	d.notes = append(d.notes, fmt.Sprintf("what %s asks about waits for a person: changes of %s are kept apart", strings.Join(ids, ", "), d.run.View.Workspace))
}

// apart reports whether e is a change of the workspace, of which each file can be taken or
// left.
func (d *draft) apart(e act.Effect) bool {
	changes := []act.Kind{act.Create, act.Overwrite, act.Append, act.Delete, act.Move}
	return e.Tree && e.Resource.Text == d.run.View.Workspace && slices.Contains(changes, e.Kind)
}

// Grips is how the program of r, a [act.VerbExec], is held in run: c, with what a person
// would be asked about before it starts, and the rules because of which it is not started.
// Like [Evaluate] it allows nothing.
func Grips(run *Run, r act.Request, g Given, c policy.Circumstances) (policy.Circumstances, Judgement) {
	j := Evaluate(run, r, g)
	c.Principal = run.Session.Principal
	for _, a := range j.Ask {
		c.Asked = append(c.Asked, a.Clause)
	}
	if j.Verdict == act.Deny {
		c.Refused = j.Rules
	}
	return c, j
}
