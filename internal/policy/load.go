package policy

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// Bounds on the text of a layer. They keep parsing within a few milliseconds and
// the parser's recursion within its stack.
const (
	MaxPolicyText = 16 << 20 // bytes of one layer
	maxRuleText   = 64 << 10
	maxRuleNest   = 64 // brackets within brackets
)

//go:embed bedrock.cedar
var bedrockText []byte

// Bedrock is the name of the layer that is always there. Its ids are prefixed
// like "bedrock.own-state".
const Bedrock = "bedrock"

// A Policy is a set of layers, ready to decide. It is immutable and safe for
// concurrent use. A nil Policy denies everything.
type Policy struct {
	layers  []*layer // the granting one first
	actions []types.Entity
	hash    string

	// forbidsHosts says that some rule forbids connect or resolve for other
	// hosts than those that have a class.
	forbidsHosts bool
	links        []Link
}

// A layer is one constitution, indexed.
type layer struct {
	name    string
	grants  bool
	rules   []*rule
	clauses map[string]*clauseInfo // by local id
	every   approved               // as if all clauses were
	index
}

// A clauseInfo is what the annotations of its rules say about a clause.
type clauseInfo struct {
	id      string // with the prefix of the layer
	local   string // without
	line    int
	text    string
	because string
	quorum  Quorum
	limit   *Limit
}

// A rule is one Cedar policy.
type rule struct {
	id        string // with the prefix of the layer
	clause    *clauseInfo
	policy    *cedar.Policy
	tree      *ast.Policy
	node      ast.IsNode // scope and conditions as one expression, without the action
	permit    bool
	public    bool // a permit that does not count for private hosts
	order     [2]int
	kinds     kindSet
	reads     nameSet // attributes that it may read
	requires  nameSet // attributes of the resource without which it cannot match
	tools     bool    // it asks for a tool, and is indexed by that
	expires   time.Time
	approvals []string // local ids of the clauses it asks about
	uids      []types.EntityUID
}

// A kindSet is a set of kinds, by their place in act.Kinds().
type kindSet uint32

func (s kindSet) each(f func(i int)) {
	for ; s != 0; s &= s - 1 {
		f(bits.TrailingZeros32(uint32(s)))
	}
}

// Load parses, validates and binds layers, the granting one and those below it,
// and adds bedrock. Without a granting layer everything is denied. An error
// names file and line.
func Load(layers []Layer, b Binding) (*Policy, error) { return load(schemaText, layers, b) }

func load(schema []byte, layers []Layer, b Binding) (*Policy, error) {
	v, err := newValidator(schema)
	if err != nil {
		return nil, err
	}
	p, k := &Policy{actions: v.actions}, newLinker(b)
	all := append(slices.Clone(layers), Layer{Name: Bedrock, File: "bedrock.cedar", Text: bedrockText})
	if !slices.ContainsFunc(all, func(l Layer) bool { return l.Name == "" }) {
		all = append(all, Layer{})
	}
	slices.SortStableFunc(all, func(a, b Layer) int { return min(len(a.Name), 1) - min(len(b.Name), 1) })
	for i, l := range all {
		if slices.ContainsFunc(all[:i], func(o Layer) bool { return o.Name == l.Name }) {
			return nil, fmt.Errorf("loading policy: two layers are named %q", l.Name)
		}
		if !wellFormedID(l.Name) {
			return nil, fmt.Errorf("loading policy: the layer name %q is not well formed", clip(l.Name))
		}
		built, err := v.layer(l, b, k)
		if err != nil {
			return nil, err
		}
		p.layers = append(p.layers, built)
		p.forbidsHosts = p.forbidsHosts || slices.ContainsFunc(built.rules, (*rule).forbidsHosts)
	}
	if k != nil {
		p.links = k.said
	}
	p.hash = hashOf(all, b, p.links)
	return p, nil
}

func (r *rule) forbidsHosts() bool {
	return !r.permit && r.kinds&(1<<kindConnect|1<<kindResolve) != 0 && !r.requires.has(nameClass)
}

// hashOf returns the hash that [Policy.Hash] describes.
func hashOf(layers []Layer, b Binding, links []Link) string {
	text := fmt.Appendf(nil, "policy/v1\n{%q %q}\n", b.Workspace, b.Home)
	for _, l := range links {
		text = fmt.Appendf(text, "link %q %q %t\n", l.Named, l.Real, l.Idle)
	}
	for _, l := range layers {
		text = fmt.Appendf(text, "%q %x %q\n", l.Name, sha256.Sum256(l.Text), l.Lists) // maps print in order of their keys
	}
	return hexHash(text)
}

// Hash returns the hex SHA-256 of everything that decides: the texts and lists
// of all layers and what they are bound to.
func (p *Policy) Hash() string { return p.hash }

// Limits returns the limit of each limited clause, by clause id with the prefix
// of its layer.
func (p *Policy) Limits() map[string]Limit {
	limits := map[string]Limit{}
	for _, l := range p.layers {
		for _, c := range l.clauses {
			if c.limit != nil {
				limits[c.id] = *c.limit
			}
		}
	}
	return limits
}

// A Rule is a rule as people look at it.
type Rule struct {
	ID     string
	Clause string
	Line   int // of the constitution
	Text   string
	Cedar  string
}

// Rules returns all rules, layer by layer, as loaded: with roots bound.
func (p *Policy) Rules() []Rule {
	var all []Rule
	for _, l := range p.layers {
		for _, r := range l.rules {
			all = append(all, Rule{r.id, r.clause.id, r.clause.line, r.clause.text, string(r.policy.MarshalCedar())})
		}
	}
	return all
}

// layer parses, checks and indexes one layer.
func (v *validator) layer(l Layer, b Binding, k *linker) (*layer, error) {
	if l.File == "" {
		l.File = "policy.cedar"
	}
	text, err := bind(l, b)
	if err != nil {
		return nil, err
	}
	parsed, err := cedar.NewPolicyListFromBytes(l.File, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", l.File, strings.ReplaceAll(err.Error(), "<input>", l.File))
	}
	out := &layer{name: l.Name, grants: l.Name == "", clauses: map[string]*clauseInfo{}}
	ids := map[string]bool{}
	if k != nil {
		k.lists = l.Lists
	}
	for i, policy := range parsed {
		r, err := v.rule(out, i, policy)
		if err == nil && k != nil && k.touches(r) {
			r, err = v.rule(out, i, k.rule(r.clause.id, policy))
		}
		if err == nil && ids[r.id] {
			err = fmt.Errorf("the id %q is used twice", r.id)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", l.File, policy.Position().Line, err)
		}
		ids[r.id] = true
		out.rules = append(out.rules, r)
	}
	if err := out.checkApprovals(l.File); err != nil {
		return nil, err
	}
	slices.SortStableFunc(out.rules, func(a, b *rule) int { return slices.Compare(a.order[:], b.order[:]) })
	out.every = approved{slices.Sorted(maps.Keys(out.clauses))}
	out.index = newIndex(out.rules)
	if err := out.fill(out.rules, l.Lists, b, k); err != nil {
		return nil, fmt.Errorf("%s: %w", l.File, err)
	}
	return out, nil
}

// rule checks one policy and works out what the index and the decision need.
func (v *validator) rule(l *layer, ordinal int, policy *cedar.Policy) (*rule, error) {
	tree := (*ast.Policy)(policy.AST())
	anyKind := *tree
	anyKind.Action = ast.ScopeTypeAll{}
	r := &rule{
		policy: policy, tree: tree, permit: tree.Effect == ast.EffectPermit,
		node: eval.PolicyToNode(&anyKind).AsIsNode(),
	}
	if err := r.annotations(l, ordinal); err != nil {
		return nil, err
	}
	err := v.check(r)
	r.public = l.grants && r.permit && !namesHost(tree)
	return r, err
}

// prefix puts the name of the layer before a local id.
func (l *layer) prefix(id string) string {
	switch l.name {
	case "", Bedrock:
		return id
	}
	return l.name + ":" + id
}

// annotations reads the annotations of r, see cedar.go for what is written.
func (r *rule) annotations(l *layer, ordinal int) error {
	notes := map[string]string{}
	for _, a := range r.tree.Annotations {
		notes[string(a.Key)] = string(a.Value)
	}
	id := notes["id"]
	if id == "" {
		id = "rule" + strconv.Itoa(ordinal+1)
	}
	local := notes["clause"]
	if local == "" {
		local = id
	}
	for _, s := range []string{id, local} {
		if !wellFormedID(s) {
			return fmt.Errorf("the id %q is not of letters, digits, dots, underscores and hyphens", clip(s))
		}
	}
	if l.name != Bedrock && strings.HasPrefix(local, Bedrock) {
		return fmt.Errorf("the id %q is taken by what is built in", clip(local))
	}
	r.id = l.prefix(id)
	r.order = [2]int{ordinalOf(local), ordinal}
	c := l.clauses[local]
	if c == nil {
		c = &clauseInfo{id: l.prefix(local), local: local, quorum: Quorum{Count: 1}}
		l.clauses[local] = c
	}
	r.clause = c
	return r.notes(c, notes)
}

// notes reads the annotations that speak of the clause.
func (r *rule) notes(c *clauseInfo, notes map[string]string) (err error) {
	if c.text == "" {
		c.text, c.because = notes["text"], notes["because"]
	}
	if s, ok := notes["line"]; ok {
		if c.line, err = strconv.Atoi(s); err != nil {
			return fmt.Errorf("@line(%q) is not a number", clip(s))
		}
	}
	if s, ok := notes["expires"]; ok {
		if r.expires, err = time.Parse(time.RFC3339, s); err != nil {
			return fmt.Errorf("@expires(%q) is not a time like 2026-01-31T12:00:00Z", clip(s))
		}
	}
	if s, ok := notes["approvers"]; ok {
		q, err := parseQuorum(s)
		if err != nil {
			return err
		}
		if c.quorum.Count > 1 || c.quorum.Role != "" {
			if c.quorum != q {
				return fmt.Errorf("@approvers(%q) differs from that of another rule of %s", s, c.id)
			}
		}
		c.quorum = q
	}
	if s, ok := notes["limit"]; ok {
		l, err := parseLimit(s)
		if err != nil {
			return err
		}
		c.limit = &l
	}
	return nil
}

// parseQuorum reads "2 of owner", "2", as [Quorum.String] writes them.
func parseQuorum(s string) (Quorum, error) {
	count, role, _ := strings.Cut(s, " of ")
	n, err := strconv.ParseUint(count, 10, 16)
	if err != nil || n == 0 || (Quorum{int(n), role}).String() != s {
		return Quorum{}, fmt.Errorf(`@approvers(%q) is not like "2 of owner"`, clip(s))
	}
	return Quorum{int(n), role}, nil
}

// String returns "2 of owner", or "2" where the role does not matter.
func (q Quorum) String() string {
	if q.Role == "" {
		return strconv.Itoa(q.Count)
	}
	return strconv.Itoa(q.Count) + " of " + q.Role
}

// maxLimit is the highest count of a limit: a monitor remembers that many times.
const maxLimit = 1_000_000

// parseLimit reads "20 in 1h0m0s", "20 in session", "20 in 1h0m0s of session",
// as [Limit.String] writes them.
func parseLimit(s string) (Limit, error) {
	var l Limit
	count, rest, _ := strings.Cut(s, " in ")
	window, per, _ := strings.Cut(rest, " of ")
	n, err := strconv.ParseUint(count, 10, 31)
	l.Count, l.PerSession = int64(n), per == "session"
	if err == nil && window != "session" {
		l.Window, err = time.ParseDuration(window)
	}
	if err != nil || l.Window < 0 || l.Count > maxLimit || l.String() != s {
		return Limit{}, fmt.Errorf(`@limit(%q) is not like "20 in 1h0m0s", "20 in 1h0m0s of session" or "20 in session"`, clip(s))
	}
	return l, nil
}

// String returns the limit as the annotation @limit has it.
func (l Limit) String() string {
	s := strconv.FormatInt(l.Count, 10) + " in "
	if l.Window == 0 {
		return s + "session"
	}
	s += l.Window.String()
	if l.PerSession {
		s += " of session"
	}
	return s
}

func wellFormedID(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(s) <= 64 && strings.Trim(s, letters) == ""
}

// ordinalOf returns the ordinal of a clause id like "c7", and for any other id a
// number above all ordinals: what the compiler numbered comes first.
func ordinalOf(id string) int {
	if n, err := strconv.ParseUint(strings.TrimPrefix(id, "c"), 10, 31); err == nil && id[0] == 'c' {
		return int(n)
	}
	return math.MaxInt32
}

// bind checks the bounds of a text and puts the bound roots in.
func bind(l Layer, b Binding) ([]byte, error) {
	if line, err := checkBounds(l.Text); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", l.File, line, err)
	}
	text := string(l.Text)
	for root, to := range map[string]string{"workspace": b.Workspace, "home": b.Home} {
		if to == "" {
			continue
		}
		if !canonicalPath(to) {
			return nil, fmt.Errorf("binding ${%s} to %q: %w", root, clip(to), errPath)
		}
		quoted := string(types.String(to).MarshalCedar())
		whole := "::" + quoted
		open := strings.TrimSuffix(whole[:len(whole)-1], "/") + "/"
		text = strings.ReplaceAll(text, `::"${`+root+`}"`, whole)
		text = strings.ReplaceAll(text, `::"${`+root+`}/`, open)
	}
	return []byte(text), nil
}

// checkBounds returns the line and the reason if text is larger or nested more
// deeply than a policy may be.
func checkBounds(text []byte) (line int, err error) {
	if len(text) > MaxPolicyText {
		return 1, fmt.Errorf("a policy of more than %d MiB", MaxPolicyText>>20)
	}
	start, depth := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = skipString(text, i)
		case '/':
			if bytes.HasPrefix(text[i:], []byte("//")) {
				i += max(0, bytes.IndexByte(text[i:], '\n'))
			}
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ';':
			start, depth = i+1, 0
		}
		if i-start > maxRuleText || depth > maxRuleNest {
			return 1 + bytes.Count(text[:start], []byte("\n")),
				fmt.Errorf("a rule of more than %d KiB, or with brackets more than %d deep", maxRuleText>>10, maxRuleNest)
		}
	}
	return 0, nil
}

// skipString returns the index of the quote that ends the string at i, or the
// last index of text.
func skipString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text) - 1
}
