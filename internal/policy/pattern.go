package policy

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// A matcher is a pattern as Cedar says it: an entity that the resource is or is
// in, and a condition; either may be missing.
type matcher struct {
	uid     types.EntityUID
	eq      bool // the resource is uid itself
	cond    *ast.Node
	special bool // names one host or network, so that it may match private ones
}

// expr returns the whole match as an expression.
func (m matcher) expr() ast.Node {
	var parts []ast.Node
	switch {
	case m.uid.IsZero():
	case m.eq:
		parts = append(parts, ast.Resource().Equal(ast.Value(m.uid)))
	default:
		parts = append(parts, ast.Resource().In(ast.Value(m.uid)))
	}
	if m.cond != nil {
		parts = append(parts, *m.cond)
	}
	if len(parts) == 0 {
		return ast.True()
	}
	return allOf(parts)
}

// typed returns the match as an expression that is false for other types.
func (m matcher) typed(t act.ResourceType) ast.Node {
	is := ast.Resource().Is(types.EntityType(t))
	if m.uid.IsZero() && m.cond == nil {
		return is
	}
	return is.And(m.expr())
}

func (m *matcher) and(n ast.Node) {
	if m.cond != nil {
		n = m.cond.And(n)
	}
	m.cond = &n
}

// matcher returns what p matches; Not is left to the caller. Where a fact that p
// needs is absent it matches if absent says so.
func (p Pattern) matcher(absent bool) (matcher, error) {
	ways := 0
	for _, s := range []string{p.Exact, p.Beneath + p.Name, p.Site, p.Prefix, p.Package, p.List} {
		if s != "" {
			ways++
		}
	}
	if ways > 1 {
		return matcher{}, fmt.Errorf("a pattern on %s with more than one way to match", p.Type)
	}
	m, err := p.entity()
	if err != nil {
		return matcher{}, err
	}
	if !m.uid.IsZero() && !strings.HasPrefix(string(m.uid.ID), "${") {
		if err := checkID(m.uid); err != nil {
			return matcher{}, err
		}
	}
	if p.Name != "" {
		if err := m.name(p, absent); err != nil {
			return matcher{}, err
		}
	}
	if p.Ref != "" {
		if p.Type != act.Remote {
			return matcher{}, fmt.Errorf("a %s has no ref", p.Type)
		}
		m.and(optional("ref", absent, globOrEqual("ref", p.Ref)))
	}
	return m, nil
}

// entity returns the part of a pattern that is an entity.
func (p Pattern) entity() (matcher, error) {
	switch {
	case p.List != "":
		name := strings.TrimPrefix(p.List, "@")
		if !wellFormedID(name) || name == "" {
			return matcher{}, fmt.Errorf("%q is no name of a list", clip(p.List))
		}
		return matcher{uid: uid(typeList, name)}, nil
	case p.Exact != "":
		return p.exact()
	case p.Beneath != "":
		if p.Type != act.Path && p.Type != act.Repo && p.Type != act.Command {
			return matcher{}, fmt.Errorf("a %s is beneath no directory", p.Type)
		}
		return matcher{uid: uid(typePath, p.Beneath)}, nil
	case p.Site != "":
		if !isNetwork(p.Type) && p.Type != act.Recipient {
			return matcher{}, fmt.Errorf("a %s has no site", p.Type)
		}
		return site(p.Site)
	case p.Prefix != "":
		if p.Type != act.URL && p.Type != act.Remote {
			return matcher{}, fmt.Errorf("a %s has no prefix", p.Type)
		}
		return matcher{uid: uid(typePrefix, foldPrefix(strings.TrimSuffix(p.Prefix, "/")))}, nil
	case p.Package != "":
		if p.Type != act.Package {
			return matcher{}, fmt.Errorf("a %s is no package", p.Type)
		}
		if registry, ok := strings.CutSuffix(p.Package, ":*"); ok {
			return matcher{uid: uid(typeRegist, registry)}, nil
		}
		return matcher{uid: uid(typePackage, p.Package)}, nil
	}
	if !isResource(types.EntityType(p.Type)) {
		return matcher{}, fmt.Errorf("there is no type of resource %q", clip(string(p.Type)))
	}
	return matcher{}, nil
}

func (p Pattern) exact() (matcher, error) {
	t := types.EntityType(p.Type)
	switch {
	case p.Type == act.Host || (p.Type == act.URL || p.Type == act.Remote) && !strings.Contains(p.Exact, "/"):
		return site(p.Exact)
	case p.Type == act.Command && strings.HasPrefix(p.Exact, "/"):
		return matcher{uid: uid(typePath, p.Exact)}, nil
	case p.Type == act.Tool && strings.HasSuffix(p.Exact, ".*"):
		return matcher{uid: uid(typeServer, strings.TrimSuffix(p.Exact, ".*"))}, nil
	case p.Type == act.Remote: // with any ref
		return matcher{uid: uid(t, strings.TrimSuffix(p.Exact, ".git")), special: true}, nil
	case p.Type == act.Package: // with any version
		return matcher{uid: uid(t, p.Exact)}, nil
	case !isResource(t):
		return matcher{}, fmt.Errorf("there is no type of resource %q", clip(string(p.Type)))
	}
	return matcher{uid: uid(t, p.Exact), eq: true, special: true}, nil
}

// site reads "example.com", "*.example.com", "10.0.0.0/8", each but the network
// also with ":port".
func site(s string) (matcher, error) {
	if n, err := netip.ParsePrefix(s); err == nil {
		return matcher{uid: uid(typeNetwork, n.Masked().String()), special: true}, nil
	}
	rest, beneath := strings.CutPrefix(s, "*.")
	h, port, err := weburl.ParseHostPort(rest)
	if err != nil {
		return matcher{}, fmt.Errorf("site %q %w", clip(s), err)
	}
	if !beneath {
		host := h.String()
		if port != 0 {
			host = h.WithPort(port)
		}
		return matcher{uid: uid(typeHost, host), special: true}, nil
	}
	m := matcher{uid: uid(typeDomain, h.String())}
	if port != 0 {
		m.and(ast.Resource().Has("port").And(ast.Resource().Access("port").Equal(ast.Long(int64(port)))))
	}
	return m, nil
}

// name adds the test of a name, in which * stands for any run of characters.
func (m *matcher) name(p Pattern, absent bool) error {
	switch p.Type {
	case act.Command:
		if m.uid.IsZero() && !strings.Contains(p.Name, "*") {
			m.uid = uid(typeProgram, p.Name)
			return nil
		}
		m.and(optional("program", absent, globOrEqual("program", p.Name)))
	case act.Host, act.URL, act.Remote, act.Recipient:
		return fmt.Errorf("a %s has no name", p.Type)
	default:
		m.and(globOrEqual("name", p.Name))
	}
	return nil
}

func globOrEqual(attr types.String, glob string) ast.Node {
	value := ast.Resource().Access(attr)
	if !strings.Contains(glob, "*") {
		return value.Equal(ast.String(glob))
	}
	return like(value, glob)
}

func like(value ast.Node, glob string) ast.Node {
	var parts []any
	for i, literal := range strings.Split(glob, "*") {
		if i > 0 {
			parts = append(parts, types.Wildcard{})
		}
		parts = append(parts, literal)
	}
	return value.Like(types.NewPattern(parts...))
}

// optional guards a test of an attribute that a resource may lack.
func optional(attr types.String, absent bool, test ast.Node) ast.Node {
	return guarded(ast.Resource().Has(attr), absent, test)
}

func guarded(has ast.Node, absent bool, test ast.Node) ast.Node {
	if absent {
		return ast.IfThenElse(has, test, ast.True())
	}
	return has.And(test)
}

// node returns the condition as Cedar. Where its fact is absent it holds if
// absent says so.
func (c Condition) node(absent bool) (ast.Node, error) {
	value, err := valueOf(c.Value)
	if err != nil {
		return ast.Node{}, fmt.Errorf("condition on %s: %w", clip(c.Fact), err)
	}
	switch {
	case c.Fact == FactLabel && (c.Op == "has" || c.Op == "lacks"):
		has := ast.Context().Access("session").Access("labels").Contains(ast.Value(value))
		if c.Op == "lacks" {
			return ast.Not(has), nil
		}
		return has, nil
	case c.Fact == FactHour:
		test, err := compare(ast.Context().Access("hour"), c.Op, value, types.Long(0))
		return guarded(ast.Context().Has("hour"), absent, test), err
	case strings.HasPrefix(c.Fact, "arg:"):
		return c.argument(value, absent)
	case strings.HasPrefix(c.Fact, "resource:"):
		attr := types.String(strings.TrimPrefix(c.Fact, "resource:"))
		want, ok := attrTypes[attr]
		if !ok {
			return ast.Node{}, fmt.Errorf("resources have no fact %q", clip(string(attr)))
		}
		test, err := compare(ast.Resource().Access(attr), c.Op, value, want)
		return optional(attr, absent, test), err
	}
	return ast.Node{}, fmt.Errorf("there is no fact %q with the operator %q", clip(c.Fact), clip(c.Op))
}

// attrTypes are the attributes of resources that conditions may test, each with
// a value of its type.
var attrTypes = map[types.String]types.Value{
	"name": types.String(""), "ext": types.String(""), "scheme": types.String(""), "host": types.String(""),
	"path": types.String(""), "url": types.String(""), "ref": types.String(""), "domain": types.String(""),
	"registry": types.String(""), "version": types.String(""), act.FactResembles: types.String(""), "program": types.String(""), "class": types.String(""),
	"port": types.Long(0), "ageHours": types.Long(0),
	act.FactExists: types.False, factHardlinked: types.False, "new": types.False, "private": types.False, act.FactConfigured: types.False,
}

// argument tests an argument of the call. All arguments are known, so that one
// which is absent equals nothing; one of another type than the value is unknown.
func (c Condition) argument(value types.Value, absent bool) (ast.Node, error) {
	pointer := ast.String(strings.TrimPrefix(c.Fact, "arg:"))
	args := ast.Context().Access("args")
	var own ast.Node
	var present, differs []ast.Node
	for _, field := range argFields {
		has := args.Access(field.name).HasTag(pointer)
		present = append(present, has)
		if sameType(field.value, value) {
			own = args.Access(field.name)
		} else {
			differs = append(differs, has)
		}
	}
	switch c.Op {
	case "has":
		return anyOf(present), nil
	case "lacks":
		return ast.Not(anyOf(present)), nil
	}
	test, err := compare(own.GetTag(pointer), c.Op, value, value)
	if absent && c.Op == "==" && err == nil {
		return ast.IfThenElse(own.HasTag(pointer), test, anyOf(differs)), nil
	}
	return guarded(own.HasTag(pointer), absent, test), err
}

// argFields are where arguments are, by their type.
var argFields = []struct {
	name  types.String
	value types.Value
}{{"text", types.String("")}, {"number", types.Long(0)}, {"flag", types.False}}

func sameType(a, b types.Value) bool {
	switch a.(type) {
	case types.String:
		_, ok := b.(types.String)
		return ok
	case types.Long:
		_, ok := b.(types.Long)
		return ok
	}
	_, ok := b.(types.Boolean)
	return ok
}

// compare returns "fact op value"; want has the type that the fact has.
func compare(fact ast.Node, op string, value, want types.Value) (ast.Node, error) {
	if !sameType(want, value) {
		return ast.Node{}, fmt.Errorf("%s is not of the type of what it is compared with", value.MarshalCedar())
	}
	v := ast.Value(value)
	_, isText := value.(types.String)
	_, isNumber := value.(types.Long)
	switch {
	case op == "==":
		return fact.Equal(v), nil
	case op == "!=":
		return fact.NotEqual(v), nil
	case op == "like" && isText:
		return like(fact, string(value.(types.String))), nil
	case op == "<" && isNumber:
		return fact.LessThan(v), nil
	case op == "<=" && isNumber:
		return fact.LessThanOrEqual(v), nil
	case op == ">" && isNumber:
		return fact.GreaterThan(v), nil
	case op == ">=" && isNumber:
		return fact.GreaterThanOrEqual(v), nil
	}
	return ast.Node{}, fmt.Errorf("the operator %q does not compare with %s", clip(op), value.MarshalCedar())
}

// valueOf returns a value of a condition for Cedar. A nil value, which has and
// lacks may have, is the empty text.
func valueOf(v any) (types.Value, error) {
	switch v := v.(type) {
	case nil:
		return types.String(""), nil
	case string:
		return types.String(v), nil
	case bool:
		return types.Boolean(v), nil
	case int64:
		return types.Long(v), nil
	case int:
		return types.Long(v), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= 1<<53 {
			return types.Long(v), nil
		}
	}
	return nil, errors.New("the value is no text, whole number or boolean")
}
