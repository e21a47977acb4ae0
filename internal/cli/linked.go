package cli

import (
	"slices"

	"ringfence/internal/constitution"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/policy"
	"ringfence/internal/sys/paths"
)

// linked adds to the findings of c the places that it names through links of this
// machine. What lies in a workspace is not known before a session.
func linked(c *constitution.Compiled) error {
	home, err := paths.UserHome()
	if err != nil {
		return err
	}
	const workspace = "/workspace"
	p, err := policy.Load([]policy.Layer{{Name: c.Source.Layer, Text: c.Cedar, Lists: c.Lists}}, policy.Binding{
		Workspace: workspace, Home: home, Links: resolve.View{Workspace: workspace, Home: home}.Leads,
	})
	if err != nil {
		return err
	}
	for _, l := range p.Links() {
		f := constitution.Finding{Severity: constitution.Info, Message: l.String()}
		if l.Idle {
			f.Severity = constitution.Warning
		}
		for _, cl := range c.Clauses {
			if cl.ID == l.Clause || c.Source.Layer+":"+cl.ID == l.Clause || slices.ContainsFunc(cl.On, func(p policy.Pattern) bool { return p.List == l.Clause }) {
				f.Clause, f.Line, f.Column = cl.ID, cl.Line, cl.Column
				break
			}
		}
		c.Findings = append(c.Findings, f)
	}
	return nil
}
