package policy

import (
	"slices"

	"ringfence/internal/act"
)

// connection notes what the decision on a connect is about: the connection as it is, or
// only what flows inside of it. It passes as it is only by a clause about connections,
// and where no clause forbids or asks about anything that could be inside: nobody would
// see that.
func (d *decider) connection(ways []way, v act.Verdict, answers []answer) {
	whole := ways[0][0]
	if allKinds[whole.kind] != act.Connect || len(d.q.Effects) != 1 {
		return
	}
	own, asked := v == act.Allow, false
	for _, a := range answers {
		own = own && (a.way == 0 || !a.layer.grants)
		asked = asked || a.verdict == act.Escalate && a.way == 0
	}
	d.d.Quiet = !slices.ContainsFunc(d.layers, func(l *layer) bool { return d.speaksOfInside(l, whole.res) })
	d.d.Filter.Tunnel = own && d.d.Quiet
	d.d.Inside = v == act.Escalate && !asked
}

// speaksOfInside reports whether l forbids or asks about anything that could be sent in
// a connection to host.
func (d *decider) speaksOfInside(l *layer, host *resource) bool {
	j := judge{decider: d, layer: l, now: approved{l.approvals(d.q.Approved)}}
	for i, kind := range []int{kindFetch, kindSend} {
		w := way{{kind: kind, res: host, region: true}}
		c := scene{sheet: j.sheet(w, i, 0), judge: &j, now: j.now}
		for _, r := range c.rules {
			if !r.permit && c.eval(r.node) != none || c.err != nil {
				return true
			}
		}
	}
	return false
}
