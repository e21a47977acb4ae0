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

// claimed returns those of proves that r claims. "a!b" is a layer a that is proved
// only where there is no b, which would have refused the same.
func claimed(r sandbox.Report, proves []string) (layers []string) {
	all := claims(r)
	for _, p := range proves {
		layer, without, _ := strings.Cut(p, "!")
		if slices.Contains(all, layer) && !slices.Contains(all, without) {
			layers = append(layers, layer)
		}
	}
	return layers
}

// unconfirmed returns an outcome for each layer that some Report claims and no
// answer has confirmed (X2).
func unconfirmed(outcomes []Outcome) (more []Outcome) {
	first, confirmed := map[string]Outcome{}, map[string]bool{}
	for _, o := range outcomes {
		for _, l := range claims(o.Report) {
			if _, ok := first[l]; !ok {
				first[l] = o
			}
		}
		for _, l := range claimed(o.Report, o.proves) {
			confirmed[l] = confirmed[l] || o.Verdict == Held
		}
	}
	var layers []string
	for l := range first {
		if !confirmed[l] {
			layers = append(layers, l)
		}
	}
	slices.Sort(layers)
	for _, l := range layers {
		o := first[l]
		more = append(more, Outcome{
			ID: "X2", Name: "layer " + l, N: -1, Class: Escape, Place: o.Place, Verdict: Broken, Report: o.Report,
			Why: []string{fmt.Sprintf("the Report of %s claims %s, and no answer of any case confirms it", o, l)},
		})
	}
	return more
}
