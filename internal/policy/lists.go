package policy

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// A List is a named set of resources, as lists.json holds it. Its members are
// Members and Added without Removed, compared as text.
type List struct {
	Members []string `json:"members,omitempty"` // found by the resolver
	Added   []string `json:"added,omitempty"`   // by hand; survives a refresh
	Removed []string `json:"removed,omitempty"` // by hand; survives a refresh
	From    string   `json:"from,omitempty"`    // how the members were found, for the next refresh
}

func (l List) members() []string {
	all := slices.Concat(l.Members, l.Added)
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(m string) bool { return slices.Contains(l.Removed, m) })
}

// memberUIDs returns the entities that member m of a list stands for, where the
// list is used for resources of the given kinds of effect. What is beneath one
// of them is in the list. A member that makes no sense for any of them is an
// error.
func memberUIDs(m string, kinds kindSet, b Binding) ([]types.EntityUID, error) {
	m = b.member(m)
	var uids []types.EntityUID
	kinds.each(func(i int) {
		for _, uid := range memberOn(m, allKinds[i].On()) {
			if !slices.Contains(uids, uid) {
				uids = append(uids, uid)
			}
		}
	})
	if uids == nil {
		return nil, fmt.Errorf("%q is nothing that the rules using the list are about", clip(m))
	}
	return uids, nil
}

// member returns m with its symbolic root bound.
func (b Binding) member(m string) string {
	for root, to := range map[string]string{"${workspace}": b.Workspace, "${home}": b.Home, "~": b.Home} {
		if rest, ok := strings.CutPrefix(m, root); ok && to != "" && (rest == "" || rest[0] == '/') {
			return path.Join(to, rest)
		}
	}
	return m
}

func memberOn(m string, on act.ResourceType) []types.EntityUID {
	switch on {
	case act.Path, act.Repo:
		return valid(m, typePath)
	case act.Command:
		if strings.Contains(m, "/") {
			return valid(m, typePath)
		}
		return valid(m, typeProgram)
	case act.Host, act.URL, act.Remote, act.Recipient:
		return networkUIDs(m, types.EntityType(on))
	case act.Package:
		if registry, ok := strings.CutSuffix(m, ":*"); ok {
			return valid(registry, typeRegist)
		}
		if strings.Contains(strings.TrimSuffix(m, "/*"), "*") { // as below
			return nil
		}
	case act.Tool:
		if server, ok := strings.CutSuffix(m, ".*"); ok {
			return valid(server, typeServer)
		}
		if strings.Contains(m, "*") { // as below
			return nil
		}
	default: // what has a name and no more
		if strings.Contains(m, "*") { // which would be nobody's, and forbid nothing
			return nil
		}
	}
	return valid(m, types.EntityType(on))
}

// networkUIDs reads "example.com", "example.com:8443", "*.example.com",
// "10.0.0.0/8", "example.com/path", and what is whole for the type itself.
func networkUIDs(m string, on types.EntityType) []types.EntityUID {
	if strings.Contains(m, "://") || strings.Contains(m, "@") {
		return valid(m, on)
	}
	if p, err := netip.ParsePrefix(m); err == nil {
		return valid(p.Masked().String(), typeNetwork)
	}
	if domain, ok := strings.CutPrefix(m, "*."); ok {
		return valid(strings.ToLower(domain), typeDomain)
	}
	if strings.Contains(m, "/") {
		host, rest, _ := strings.Cut(m, "/")
		return valid(foldPrefix(strings.ToLower(host)+"/"+strings.TrimSuffix(rest, "/")), typePrefix)
	}
	h, _, err := weburl.ParseHostPort(m)
	if err != nil {
		return nil
	}
	if _, port := cutHostPort(m); port != "" {
		return valid(h.String()+":"+port, typeHost)
	}
	return valid(h.String(), typeHost)
}

// valid returns the entity if it can be one.
func valid(id string, t types.EntityType) []types.EntityUID {
	uid := types.EntityUID{Type: t, ID: types.String(id)}
	if id == "" || checkID(uid) != nil {
		return nil
	}
	return []types.EntityUID{uid}
}
