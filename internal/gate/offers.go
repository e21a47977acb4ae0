package gate

import (
	"context"
	"maps"
	"strconv"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// maxOffers is how many versions of a package are decided at once.
const maxOffers = 8192

// anyAge is the age by which a name alone is judged, in hours: more than any package has.
const anyAge = int64(1) << 32

// decideOffers takes in the versions of one package that a registry offers, and allows
// showing those that might be installed, with approval or without. Nothing is counted and
// nobody is asked: that is done when one of them is installed.
func (g *Gate) decideOffers(ctx context.Context, d *draft) (act.Ticket, error) {
	name, no := d.offered()
	if no != nil {
		return g.settle(ctx, d, no)
	}
	offers := d.res.Effects
	d.res.Effects = []act.Effect{{Kind: act.Install, Resource: act.Resource{Type: act.Package, Text: name}}}
	d.res.Bytes = d.req.Args
	g.inspect(d)
	var denied *policy.Decision
	var withheld []string
	for i, o := range offers {
		q := d.query(g)
		q.Effects = []act.Effect{bestCase(o)}
		got := d.run.Policy.Decide(q)
		if got.Verdict != act.Allow && got.Verdict != act.Escalate {
			withheld = append(withheld, strconv.Itoa(i))
			denied = &got
		}
	}
	if len(withheld) == len(offers) {
		d.judged = *denied
		return g.settle(ctx, d, d.denial())
	}
	d.judged.Filter.LeaveOut = withheld
	return g.settle(ctx, d, nil)
}

// offered resolves the packages of d and returns the name that all of them have.
func (d *draft) offered() (name string, no *refusal) {
	if len(d.req.Direct) == 0 || len(d.req.Direct) > maxOffers {
		return "", refuse(act.CodeInvalid, "an offer is of 1 to %d versions of a package", maxOffers)
	}
	for _, e := range d.req.Direct {
		if e.Kind != act.Install {
			return "", refuse(act.CodeInvalid, "what is offered is installed, and nothing else is done with it")
		}
		got, err := d.run.View.Effect(e.Kind, e.Resource.Text)
		if err != nil {
			return "", refuse(act.CodeUnresolved, "%v", err)
		}
		got.Resource = aged(got.Resource, e.Resource)
		bare, _ := cutVersion(got.Resource.Text)
		if name != "" && bare != name {
			return "", refuse(act.CodeInvalid, "%s and %s are two packages", name, bare)
		}
		name = bare
		d.res.Effects = append(d.res.Effects, got)
	}
	return name, nil
}

// cutVersion parts "npm:@scope/name@1.0.0" before the version, which may be missing.
func cutVersion(pkg string) (name, version string) {
	if i := strings.LastIndexByte(pkg, '@'); i > 0 && pkg[i-1] != ':' {
		return pkg[:i], pkg[i+1:]
	}
	return pkg, ""
}

// aged is r with the age that given has. Only who reads the registry knows it.
func aged(r, given act.Resource) act.Resource {
	age, ok := given.Facts[act.FactAgeHours].(int64)
	if r.Type != act.Package || !ok || age < 0 {
		return r
	}
	facts := maps.Clone(r.Facts)
	if facts == nil {
		facts = map[string]any{}
	}
	facts[act.FactAgeHours] = age
	r.Facts = facts
	return r
}

// bestCase is e, where it names no version as if of the oldest: whether any could be had.
func bestCase(e act.Effect) act.Effect {
	if _, version := cutVersion(e.Resource.Text); version == "" {
		e.Resource = aged(e.Resource, act.Resource{Facts: map[string]any{act.FactAgeHours: anyAge}})
	}
	return e
}
