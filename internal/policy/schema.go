package policy

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
)

//go:embed schema.cedarschema
var schemaText []byte

// Schema returns the Cedar schema that policies are validated against.
func Schema() []byte { return slices.Clone(schemaText) }

// A validator checks rules against the schema, and for what the schema cannot
// say.
type validator struct {
	cedar   *validate.Validator
	schema  *resolved.Schema
	actions []types.Entity // of each kind, in the order of allKinds, with its groups as parents
}

func newValidator(text []byte) (*validator, error) {
	var s schema.Schema
	if err := s.UnmarshalCedar(text); err != nil {
		return nil, fmt.Errorf("reading schema: %w", err)
	}
	r, err := s.Resolve()
	if err != nil {
		return nil, fmt.Errorf("reading schema: %w", err)
	}
	v := &validator{cedar: validate.New(r), schema: r}
	for _, k := range allKinds {
		v.actions = append(v.actions, r.Actions[actionUID(k)].Entity)
	}
	return v, nil
}

func actionUID(k act.Kind) types.EntityUID {
	return types.EntityUID{Type: typeAction, ID: types.String(k)}
}

// check validates r and fills in its kinds, reads, approvals and uids.
func (v *validator) check(r *rule) error {
	if err := v.cedar.Policy("", r.tree); err != nil {
		return v.explain(err)
	}
	r.kinds = v.kinds(r.tree)
	contexts, counts := 0, true
	ast.Inspect(ast.NewNode(r.node), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeVariable:
			if n.Name == "context" {
				contexts++
			}
		case ast.NodeTypeAccess:
			r.reads |= nameOf(n.Value)
			contexts -= isContext(n.Arg)
		case ast.NodeTypeHas:
			r.reads |= nameOf(n.Value)
			contexts -= isContext(n.Arg)
		case ast.NodeTypeHasTag:
			counts = counts && r.ownCount(n.BinaryNode)
		case ast.NodeTypeGetTag:
			counts = counts && r.ownCount(n.BinaryNode)
		case ast.NodeValue:
			if uid, ok := n.Value.(types.EntityUID); ok {
				r.uids = append(r.uids, uid)
			}
		}
		return true
	})
	if !counts {
		return errors.New("context.counts may only be asked for the clause of the rule, a permit with @limit")
	}
	if contexts != 0 {
		return errors.New("context may only be read by attribute, like context.tool")
	}
	for _, uid := range r.uids {
		if err := checkID(uid); err != nil {
			return err
		}
	}
	for _, c := range r.tree.Conditions {
		if err := r.approval(c.Body, r.permit == bool(c.Condition)); err != nil {
			return err
		}
		if c.Condition == ast.ConditionWhen {
			r.requires |= required(c.Body)
		}
	}
	return nil
}

// required returns the attributes that a condition asks the resource to have
// before anything else of it can matter.
func required(n ast.IsNode) nameSet {
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		return required(n.Left) | required(n.Right)
	case ast.NodeTypeHas:
		if isVar(n.Arg, "resource") {
			return nameOf(n.Value)
		}
	}
	return 0
}

func isContext(n ast.IsNode) int {
	if v, ok := n.(ast.NodeTypeVariable); ok && v.Name == "context" {
		return 1
	}
	return 0
}

// ownCount reports whether a test of a tag is of an argument, or of the count of
// r's own clause where r is a permit with a limit.
func (r *rule) ownCount(n ast.BinaryNode) bool {
	a, _ := n.Left.(ast.NodeTypeAccess)
	if nameOf(a.Value) != setOf(nameCounts) {
		return true
	}
	key, _ := n.Right.(ast.NodeValue)
	id, _ := key.Value.(types.String)
	return r.permit && r.clause.limit != nil && string(id) == r.clause.local
}

// explain turns the findings of the validator into one error, and adds what was
// probably meant.
func (v *validator) explain(err error) error {
	lines := strings.Split(err.Error(), "\n")
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if len(lines) > 3 {
		lines = append(lines[:3], fmt.Sprintf("and %d more", len(lines)-3))
	}
	msg := strings.Join(lines, "; ")
	word := quotedWord(msg)
	if near := strictjson.Nearest(word, v.vocabulary()); near != "" && near != word {
		msg += fmt.Sprintf("; did you mean %s?", near)
	}
	return errors.New(msg)
}

// quotedWord returns the last part of the first text in back quotes.
func quotedWord(msg string) string {
	_, rest, _ := strings.Cut(msg, "`")
	word, _, _ := strings.Cut(rest, "`")
	word = word[strings.LastIndexByte(word, ':')+1:]
	return strings.Trim(word, `"`)
}

// vocabulary returns all words that the schema declares.
func (v *validator) vocabulary() []string {
	var words []string
	for _, n := range nameTexts {
		words = append(words, string(n))
	}
	for a := range v.schema.Actions {
		words = append(words, string(a.ID))
	}
	for t := range maps.Keys(v.schema.Entities) {
		words = append(words, string(t))
	}
	slices.Sort(words)
	return words
}

// kinds returns the kinds that a policy can apply to.
func (v *validator) kinds(tree *ast.Policy) kindSet {
	var scope []types.EntityUID
	switch a := tree.Action.(type) {
	case ast.ScopeTypeAll:
		return v.onType(tree)
	case ast.ScopeTypeEq:
		scope = []types.EntityUID{a.Entity}
	case ast.ScopeTypeIn:
		scope = []types.EntityUID{a.Entity}
	case ast.ScopeTypeInSet:
		scope = a.Entities
	}
	var s kindSet
	for i, e := range v.actions {
		if slices.ContainsFunc(scope, func(u types.EntityUID) bool { return u == e.UID || e.Parents.Contains(u) }) {
			s |= 1 << i
		}
	}
	return s & v.onType(tree)
}

// onType returns the kinds on the type of resource that the scope names.
func (v *validator) onType(tree *ast.Policy) kindSet {
	var on types.EntityType
	switch r := tree.Resource.(type) {
	case ast.ScopeTypeIs:
		on = r.Type
	case ast.ScopeTypeIsIn:
		on = r.Type
	}
	var s kindSet
	for i, k := range allKinds {
		if on == "" || on == types.EntityType(k.On()) {
			s |= 1 << i
		}
	}
	return s
}

// approval walks a condition. help says that the condition holding is what can
// only allow more; there, and only there, may it ask for approval.
func (r *rule) approval(n ast.IsNode, help bool) error {
	switch n := n.(type) {
	case ast.NodeTypeAnd:
		return cmp.Or(r.approval(n.Left, help), r.approval(n.Right, help))
	case ast.NodeTypeOr:
		return cmp.Or(r.approval(n.Left, help), r.approval(n.Right, help))
	case ast.NodeTypeNot:
		return r.approval(n.Arg, !help)
	case ast.NodeTypeIfThenElse:
		if !mentions(n.If, "approved") {
			return cmp.Or(r.approval(n.Then, help), r.approval(n.Else, help))
		}
	case ast.NodeTypeContains:
		right, _ := n.Right.(ast.NodeValue)
		id, isText := right.Value.(types.String)
		if a, ok := n.Left.(ast.NodeTypeAccess); ok && isText && isContext(a.Arg) == 1 && a.Value == "approved" {
			if !help {
				return errors.New("context.approved may occur only where approval can allow: not below !, in unless of a permit or in when of a forbid")
			}
			r.approvals = append(r.approvals, string(id))
			return nil
		}
	}
	if mentions(n, "approved") {
		return errors.New(`context.approved may occur only as context.approved.contains("…"), joined by &&, || and !, and never negated`)
	}
	return nil
}

// mentions reports whether an attribute is read anywhere in n.
func mentions(n ast.IsNode, attr types.String) bool {
	found := false
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			found = found || n.Value == attr
		case ast.NodeTypeHas:
			found = found || n.Value == attr
		}
		return !found
	})
	return found
}

// checkApprovals returns an error if a rule asks for the approval of a clause
// that the layer does not have.
func (l *layer) checkApprovals(file string) error {
	known := slices.Sorted(maps.Keys(l.clauses))
	for _, r := range l.rules {
		for _, id := range r.approvals {
			if l.clauses[id] != nil {
				continue
			}
			msg := fmt.Sprintf("%s:%d: no clause has the id %q", file, r.policy.Position().Line, clip(id))
			if near := strictjson.Nearest(id, known); near != "" {
				msg += fmt.Sprintf("; did you mean %q?", near)
			}
			return errors.New(msg)
		}
	}
	return nil
}

// namesHost reports whether the scope of a policy is one host, one network, or
// one URL or remote: only then may a permit count for private hosts.
func namesHost(tree *ast.Policy) bool {
	var uid types.EntityUID
	switch r := tree.Resource.(type) {
	case ast.ScopeTypeEq:
		return true
	case ast.ScopeTypeIn:
		uid = r.Entity
	case ast.ScopeTypeIsIn:
		uid = r.Entity
	}
	return slices.Contains([]types.EntityType{typeHost, typeNetwork, typeURL, typeRemote}, uid.Type)
}

func isResource(t types.EntityType) bool {
	return slices.ContainsFunc(allKinds, func(k act.Kind) bool { return t == types.EntityType(k.On()) })
}

// checkID returns an error if an id is one that no resource can have, so that a
// rule could never apply, or not where its author meant.
func checkID(uid types.EntityUID) error {
	id, ok := string(uid.ID), true
	want := ""
	switch uid.Type {
	case typePath:
		if strings.Contains(id, "${") {
			return fmt.Errorf("%s: the root is not bound; known are ${workspace} and ${home}, at the start and followed by /", uid)
		}
		ok, want = canonicalPath(id), "an absolute path in canonical form"
	case typeDomain:
		h, err := weburl.ParseHost(id)
		_, addr := h.Addr()
		ok, want = err == nil && !addr && h.String() == id, "a domain in lower-case ASCII"
	case typeNetwork:
		p, err := netip.ParsePrefix(id)
		ok, want = err == nil && p.Masked().String() == id, "a network like 10.0.0.0/8"
	case typePrefix:
		host, _, _ := strings.Cut(id, "/")
		ok = checkID(types.EntityUID{Type: typeHost, ID: types.String(host)}) == nil && !strings.HasSuffix(id, "/") && foldPrefix(id) == id
		want = "a host and whole path segments, like github.com/me, in small letters on hosts that do not tell them from capitals"
	case typeAgent:
		ok, want = wellFormedPrincipal(id), `"persona/agent"`
	case typePersona:
		ok, want = id != "" && !strings.Contains(id, "/"), "the name of a persona"
	case typeGroup:
		ok, want = slices.Contains(groupsOfCalls, act.Group(id)), "a group of tools: observe, mutate, irreversible, remote"
	default:
		if isResource(uid.Type) {
			_, err := newResource(act.Effect{Resource: act.Resource{Type: act.ResourceType(uid.Type), Text: id}})
			return err
		}
	}
	if !ok {
		return fmt.Errorf("%s is not %s", uid, want)
	}
	return nil
}
