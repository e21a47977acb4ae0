package gate

import (
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/session"
)

// A Purse is what a session may use of models. Its methods may be called concurrently.
type Purse interface {
	// Take takes a place for one request, which may use what is left. why is why there is
	// none, for the agent; "" if there is.
	Take() (left act.Budget, why string)
	// Give gives the place back, with what the request used.
	Give(used act.Spent)
}

// overBudget is the rule that a denial names when a budget is used up.
const overBudget = "budget"

// pay takes a place in the purse for a request that asks a model.
func (d *draft) pay() *refusal {
	if d.run.Purse == nil || d.req.Verb != act.VerbEffect || !slices.ContainsFunc(d.res.Effects, func(e act.Effect) bool { return e.Kind == act.Infer }) {
		return nil
	}
	left, why := d.run.Purse.Take()
	if why != "" {
		return &refusal{code: act.CodePolicy, rules: []string{overBudget}, reason: why}
	}
	d.paying = true
	d.judged.Filter.Budget = &left
	return nil
}

// unpay gives the place back of a request that does not come to be.
func (d *draft) unpay() {
	if d.paying {
		d.run.Purse.Give(act.Spent{})
	}
}

// paid gives the place back of a request that is over.
func (r *Run) paid(open session.Open, used act.Spent) {
	if open.Infers && r.Purse != nil {
		r.Purse.Give(used)
	}
}
