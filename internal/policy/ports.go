package policy

import (
	"regexp"
	"slices"
	"strconv"
	"sync"

	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// The ports that every policy names, and how many are returned at most.
var webPorts = []uint16{80, 443}

const maxNamedPorts = 32

// portTest finds the test that goes with a site and everything beneath it.
var portTest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`resource\.port == (\d{1,5})\b`) })

func beneathDomain(scope ast.IsResourceScopeNode) bool {
	switch s := scope.(type) {
	case ast.ScopeTypeIn:
		return s.Entity.Type == typeDomain
	case ast.ScopeTypeIsIn:
		return s.Entity.Type == typeDomain
	}
	return false
}

// Ports returns the ports of hosts that p names, and those of the web, sorted: where
// programs are worth listening to that connect without a proxy. It says nothing of what is
// allowed there. Of more than 32 those of the web and the lowest are returned.
func (p *Policy) Ports() []uint16 {
	named := map[uint16]bool{}
	add := func(text string) {
		if n, err := strconv.ParseUint(text, 10, 16); err == nil && n > 0 {
			named[uint16(n)] = true
		}
	}
	for _, l := range p.layers {
		for _, nodes := range l.hosts {
			for _, n := range nodes {
				add(n.port)
			}
		}
		for _, r := range l.rules {
			if !beneathDomain(r.tree.Resource) {
				continue
			}
			for _, m := range portTest().FindAllSubmatch(r.policy.MarshalCedar(), -1) {
				add(string(m[1]))
			}
		}
	}
	ports := slices.Clone(webPorts)
	for n := range named {
		if !slices.Contains(webPorts, n) {
			ports = append(ports, n)
		}
	}
	slices.Sort(ports[len(webPorts):])
	ports = ports[:min(len(ports), maxNamedPorts)]
	slices.Sort(ports)
	return ports
}
