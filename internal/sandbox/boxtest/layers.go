package boxtest

import (
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
)

// claims returns what r says is enforced: a layer, or for one with a detail that
// lists several things ("cgroup=memory,pids") each of them.
func claims(r sandbox.Report) (all []string) {
	for _, l := range r.Enforced {
		name, detail, _ := strings.Cut(l, "=")
		if name != sandbox.LayerCgroup && name != sandbox.LayerRlimits || detail == "" {
			all = append(all, name)
			continue
		}
		for part := range strings.SplitSeq(detail, ",") {
			all = append(all, name+"="+part)
		}
	}
	return all
}

// contradicted returns the layers that r claims and that proves, a list of layers
// which the answers have just disproved, has.
func contradicted(r sandbox.Report, proves []string) (layers []string) {
	for _, l := range claims(r) {
		if slices.Contains(proves, l) {
			layers = append(layers, l)
		}
	}
	return layers
}

// unconfirmed returns an outcome for each layer that some Report claims and no
// answer has confirmed (X2).
func unconfirmed(outcomes []Outcome) (more []Outcome) {
	claimed, confirmed := map[string]Outcome{}, map[string]bool{}
	for _, o := range outcomes {
		for _, l := range claims(o.Report) {
			if _, ok := claimed[l]; !ok {
				claimed[l] = o
			}
			if o.Verdict == Held && slices.Contains(o.proves, l) {
				confirmed[l] = true
			}
		}
	}
	var layers []string
	for l := range claimed {
		if !confirmed[l] {
			layers = append(layers, l)
		}
	}
	slices.Sort(layers)
	for _, l := range layers {
		o := claimed[l]
		more = append(more, Outcome{
			ID: "X2", Name: "layer " + l, Class: Escape, Place: o.Place, Verdict: Broken, Report: o.Report,
			Why: []string{fmt.Sprintf("the Report of %s claims %s, and no answer of any case confirms it", o, l)},
		})
	}
	return more
}
