package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"ringfence/internal/act/weburl"
)

// An index finds the rules that can matter for an effect: those whose scope is
// the resource or something it is beneath, those that ask for the tool of the
// call, and those that have neither. What it leaves out cannot match.
type index struct {
	nodes    map[types.EntityUID]*node
	tools    map[types.EntityUID]byKind // rules without a resource that ask for a tool or server
	rest     byKind                     // rules without either
	networks []netip.Prefix
	paths    []pathNode            // nodes that are in the file system, by path
	hosts    map[string][]portNode // nodes that are part of one host: ports, prefixes, URLs
}

// A node is an entity that the layer names, in a rule or as member of a list.
type node struct {
	uid   types.EntityUID
	rules byKind
	lists []*node
}

// A pathNode is a Path or a Repo, with its path.
type pathNode struct {
	path string
	*node
}

// A portNode is a node that is part of a host, on one port or on any ("").
type portNode struct {
	port string
	*node
}

// byKind holds rules by the kinds that they can apply to.
type byKind []kindRules

type kindRules struct {
	kind  int
	rules []*rule
}

func (b byKind) of(kind int) []*rule {
	for _, k := range b {
		if k.kind == kind {
			return k.rules
		}
	}
	return nil
}

func (b *byKind) add(r *rule) {
	r.kinds.each(func(kind int) {
		for i := range *b {
			if (*b)[i].kind == kind {
				(*b)[i].rules = append((*b)[i].rules, r)
				return
			}
		}
		*b = append(*b, kindRules{kind, []*rule{r}})
	})
}

func newIndex(rules []*rule) index {
	x := index{nodes: map[types.EntityUID]*node{}, tools: map[types.EntityUID]byKind{}, hosts: map[string][]portNode{}}
	for _, r := range rules {
		for _, uid := range r.uids {
			x.node(uid)
		}
		x.place(r)
	}
	return x
}

// fill puts in the members of the lists that rules name.
func (x *index) fill(rules []*rule, lists map[string]List, b Binding, k *linker) error {
	used := map[types.EntityUID]kindSet{}
	for _, r := range rules {
		for _, uid := range r.uids {
			if uid.Type == typeList {
				used[uid] |= r.kinds
			}
		}
	}
	for uid, kinds := range used {
		name, through := strings.CutSuffix(string(uid.ID), throughLinks)
		for _, m := range lists[name].members() {
			members, err := memberUIDs(m, kinds, b)
			if err != nil {
				return fmt.Errorf("list @%s: %w", uid.ID, err)
			}
			if k != nil {
				members = k.members(members, through)
			}
			for _, member := range members {
				n := x.node(member)
				n.lists = append(n.lists, x.nodes[uid])
			}
		}
	}
	slices.SortFunc(x.paths, func(a, b pathNode) int { return strings.Compare(a.path, b.path) })
	return nil
}

// node returns the node of uid, and makes it first if there is none.
func (x *index) node(uid types.EntityUID) *node {
	if n := x.nodes[uid]; n != nil {
		return n
	}
	n := &node{uid: uid}
	x.nodes[uid] = n
	id := string(uid.ID)
	switch uid.Type {
	case typePath, typeRepo:
		x.paths = append(x.paths, pathNode{strings.TrimPrefix(id, "repo:"), n})
	case typeNetwork:
		x.networks = append(x.networks, netip.MustParsePrefix(id))
	case typePrefix:
		host, _, _ := strings.Cut(id, "/")
		x.atHost(host, n)
	case typeHost:
		x.atHost(id, n)
	case typeURL:
		u, _ := weburl.Parse(id) // checked when the rule was
		x.atHost(u.HostPort(), n)
	}
	return n
}

func (x *index) atHost(hostPort string, n *node) {
	host, port := cutHostPort(hostPort)
	x.hosts[host] = append(x.hosts[host], portNode{port, n})
}

// place puts r where [layer.candidates] will look for it.
func (x *index) place(r *rule) {
	switch s := r.tree.Resource.(type) {
	case ast.ScopeTypeEq:
		x.node(s.Entity).rules.add(r)
		return
	case ast.ScopeTypeIn:
		x.node(s.Entity).rules.add(r)
		return
	case ast.ScopeTypeIsIn:
		x.node(s.Entity).rules.add(r)
		return
	}
	tools := toolsOf(r.tree)
	for _, uid := range tools {
		b := x.tools[uid]
		b.add(r)
		x.tools[uid] = b
	}
	r.tools = len(tools) > 0
	if !r.tools {
		x.rest.add(r)
	}
}

// toolsOf returns the tools and servers of which a policy asks for one, nil if
// it may apply whatever the tool.
func toolsOf(tree *ast.Policy) []types.EntityUID {
	for _, c := range tree.Conditions {
		if c.Condition == ast.ConditionWhen {
			if uids := toolTest(c.Body); uids != nil {
				return uids
			}
		}
	}
	return nil
}

func toolTest(n ast.IsNode) []types.EntityUID {
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		if uids := toolTest(n.Left); uids != nil {
			return uids
		}
		return toolTest(n.Right)
	case ast.NodeTypeOr:
		left, right := toolTest(n.Left), toolTest(n.Right)
		if left != nil && right != nil {
			return append(left, right...)
		}
	case ast.NodeTypeEquals:
		return toolValue(n.BinaryNode)
	case ast.NodeTypeIn:
		return toolValue(n.BinaryNode)
	}
	return nil
}

// toolValue returns the entity that the test "context.tool in entity" is about.
func toolValue(n ast.BinaryNode) []types.EntityUID {
	a, ok := n.Left.(ast.NodeTypeAccess)
	if !ok || isContext(a.Arg) == 0 || a.Value != "tool" {
		return nil
	}
	v, _ := n.Right.(ast.NodeValue)
	if uid, ok := v.Value.(types.EntityUID); ok && (uid.Type == typeTool || uid.Type == typeServer) {
		return []types.EntityUID{uid}
	}
	return nil
}

// known returns the nodes of a resource: of itself, of what it is beneath, of
// the networks it is in, and of the lists that any of these is a member of.
func (x *index) known(r *resource) []*node {
	var found []*node
	add := func(uid types.EntityUID) {
		n := x.nodes[uid]
		if n == nil {
			return
		}
		found = append(found, n)
		for _, l := range n.lists {
			if !slices.Contains(found, l) {
				found = append(found, l)
			}
		}
	}
	add(r.uid)
	for _, uid := range r.up {
		add(uid)
	}
	if len(x.networks) > 0 && r.host != "" {
		if a, ok := hostAddr(r.host); ok {
			for _, p := range x.networks {
				if p.Contains(a) {
					add(types.EntityUID{Type: typeNetwork, ID: types.String(p.String())})
				}
			}
		}
	}
	return found
}

// below returns the nodes at dir and beneath it, and the lists that they are
// members of.
func (x *index) below(dir string) []*node {
	var found []*node
	for _, n := range x.beneath(dir) {
		found = append(append(found, n.node), n.lists...)
	}
	return found
}

// beneath returns the nodes at dir and beneath it, those beneath it by path.
func (x *index) beneath(dir string) []pathNode {
	var found []pathNode
	take := func(from string, ok func(p string) bool) {
		i, _ := slices.BinarySearchFunc(x.paths, from, func(n pathNode, p string) int { return strings.Compare(n.path, p) })
		for ; i < len(x.paths) && ok(x.paths[i].path); i++ {
			found = append(found, x.paths[i])
		}
	}
	take(dir, func(p string) bool { return p == dir })
	prefix := strings.TrimSuffix(dir, "/") + "/"
	take(prefix, func(p string) bool { return strings.HasPrefix(p, prefix) })
	return found
}

// parts returns the nodes that are part of a host on a port ("": on any), and
// the lists that they are members of.
func (x *index) parts(host, port string) []*node {
	var found []*node
	for _, n := range x.hosts[host] {
		if port == "" || n.port == "" || n.port == port {
			found = append(append(found, n.node), n.lists...)
		}
	}
	return found
}
