package provider

import (
	"slices"
	"strings"

	"ringfence/internal/act/loan"
	"ringfence/internal/act/weburl"
)

// Keyed returns what is known of the keys of providers: of those that package loan knows,
// and of all others whose clients take a key from a variable. A key is bound to where its
// provider is, which a configuration may have said, and to nothing else.
func (t *Table) Keyed() []loan.Provider {
	all := slices.Clone(loan.Providers())
	if t == nil {
		return all
	}
	for _, p := range t.all {
		i := slices.IndexFunc(all, func(q loan.Provider) bool { return q.Name == p.Name })
		switch {
		case i < 0 && len(p.Variables) > 0:
			all = append(all, loan.Provider{Name: p.Name, Variables: p.Variables, Bindings: p.bindings()})
		case i >= 0 && !slices.ContainsFunc(all[i].Bindings, p.isAt):
			all[i].Bindings = p.bindings()
		}
	}
	return all
}

// isAt reports whether b is bound to the host and port that p is at.
func (p Provider) isAt(b loan.Binding) bool {
	b.Prefix, b.Methods = "", nil
	return b.Covers("GET", p.at)
}

// bindings are each place in which a request to p can have its key.
func (p Provider) bindings() (all []loan.Binding) {
	b := loan.Binding{Host: p.at.Host.String(), Plain: p.at.Scheme == "http", Prefix: strings.TrimSuffix(p.at.Path, "/")}
	if p.at.Port != weburl.DefaultPort(p.at.Scheme) {
		b.Port = p.at.Port
	}
	for _, name := range p.Keys {
		b.Position = loan.Position{Header: strings.ToLower(name), Form: "{}"}
		if b.Header == "authorization" {
			b.Form = "Bearer {}"
		}
		all = append(all, b)
	}
	if p.Query != "" {
		b.Position = loan.Position{Query: p.Query}
		all = append(all, b)
	}
	return all
}
