package constitution

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/popular"
	"ringfence/internal/policy"
)

// An oracle says what clauses mean for one effect, read from decision 0002 and
// not from the policy that is generated from the same clauses. A bundle in which
// the two disagree on a scenario is not written.
type oracle struct {
	clauses  []policy.Clause
	lists    map[string]policy.List
	granting bool
	members  map[policy.Pattern][]policy.Pattern // what the lists stand for, by pattern
}

// A question is one effect and what is known when it is asked for.
type question struct {
	effect    act.Effect
	principal string
	tool      string
	args      map[string]any
	labels    []act.Label
	approved  []string
	counts    map[string]int64
	now       time.Time
}

// verdict answers q.
func (o *oracle) verdict(q *question) act.Verdict {
	alone := o.granting || slices.ContainsFunc(o.clauses, func(c policy.Clause) bool { return c.Rest == policy.RestAll })
	permitted, permittable, asked := !alone, !alone, false
	for i := range o.clauses {
		c := &o.clauses[i]
		may, ask, never := o.forms(c, alone)
		approved := slices.Contains(q.approved, c.ID)
		if never && o.restricts(c, q) {
			return act.Deny
		}
		if ask && !approved && o.restricts(c, q) {
			asked = true
		}
		if may != "" && o.matches(c, q, false) {
			permittable = true
			permitted = permitted || may == policy.May || approved
		}
	}
	switch {
	case !permittable:
		return act.Deny
	case asked || !permitted:
		return act.Escalate
	}
	return act.Allow
}

// restricts reports whether a restriction applies to q. A fetch or send includes
// looking the host up and connecting to it.
func (o *oracle) restricts(c *policy.Clause, q *question) bool {
	if o.matches(c, q, true) {
		return true
	}
	if k := q.effect.Kind; k != act.Fetch && k != act.Send {
		return false
	}
	inner := *q
	for _, k := range []act.Kind{act.Resolve, act.Connect} {
		host := hostOf(q.effect.Resource)
		if k == act.Resolve {
			host, _ = cutPort(host)
		}
		inner.effect = act.Effect{Kind: k, Resource: act.Resource{Type: act.Host, Text: host}}
		if o.matches(c, &inner, true) {
			return true
		}
	}
	return false
}

// forms is the table of modalities: what the clause permits (with approval or
// without), asks before and forbids.
func (o *oracle) forms(c *policy.Clause, alone bool) (may policy.Modality, ask, never bool) {
	everything := c.Rest == policy.RestAll
	switch c.Modality {
	case policy.May:
		if alone {
			may = policy.May
		}
	case policy.MayWithApproval:
		if alone {
			return policy.MayWithApproval, false, false
		}
		ask = true
	case policy.MustAsk:
		if alone {
			may = policy.MayWithApproval
		}
		ask = !everything
	case policy.MustNever:
		never = !everything
	case policy.Advice:
	}
	return may, ask, never
}

// matches reports whether c applies to q; restricts says in which way unknown
// facts are taken.
func (o *oracle) matches(c *policy.Clause, q *question, restricts bool) bool {
	switch {
	case c.Expires != nil && !q.now.Before(*c.Expires),
		len(c.Who) > 0 && !slices.ContainsFunc(c.Who, func(w string) bool { return w == q.principal || strings.HasPrefix(q.principal, w+"/") }),
		len(c.Tools) > 0 && !ofTools(c.Tools, q.tool),
		!o.kind(c, q.effect),
		len(c.On) > 0 && !o.on(c.On, q.effect, restricts):
		return false
	case !restricts && private(hostOf(q.effect.Resource)) && !o.namesHost(c.On, q.effect):
		return false
	case !restricts && c.Limit != nil && (q.counts[c.ID] >= c.Limit.Count || q.effect.Tree && c.Modality == policy.May):
		return false
	}
	for _, w := range c.When {
		if !holds(w, q, restricts) {
			return false
		}
	}
	for _, e := range c.Except {
		if o.excepted(e, q, restricts) {
			return false
		}
	}
	return true
}

func (o *oracle) excepted(e policy.Exception, q *question, restricts bool) bool {
	if len(e.Tools) > 0 && !ofTools(e.Tools, q.tool) || len(e.Kinds) > 0 && !slices.Contains(e.Kinds, q.effect.Kind) ||
		len(e.On) > 0 && !o.on(e.On, q.effect, !restricts) {
		return false
	}
	for _, w := range e.When {
		if !holds(w, q, !restricts) {
			return false
		}
	}
	return true
}

func ofTools(tools []string, tool string) bool {
	_, name, _ := strings.Cut(tool, ".")
	return slices.ContainsFunc(tools, func(t string) bool {
		server, all := strings.CutSuffix(t, ".*")
		return t == tool || all && strings.HasPrefix(tool, server+".") && !policy.IsAsked(name)
	})
}

func (o *oracle) kind(c *policy.Clause, e act.Effect) bool {
	if len(c.Kinds)+len(c.Groups) == 0 {
		return true
	}
	if e.Kind == act.Call && len(c.Groups) > 0 {
		return slices.ContainsFunc(c.Groups, e.Is)
	}
	return slices.Contains(c.Kinds, e.Kind)
}

// on reports whether patterns of one list match the resource of e: one of those
// that name it, or all of those that exclude.
func (o *oracle) on(patterns []policy.Pattern, e act.Effect, absent bool) bool {
	nots, excluded := false, true
	for _, p := range patterns {
		if p.Type != e.Resource.Type {
			continue
		}
		if p.Not {
			nots = true
			excluded = excluded && !o.pattern(p, e.Resource, !absent)
		} else if o.pattern(p, e.Resource, absent) {
			return true
		}
	}
	return nots && excluded
}

// pattern reports whether p, as if Not were not set, matches r.
func (o *oracle) pattern(p policy.Pattern, r act.Resource, absent bool) bool {
	if p.Ref != "" {
		_, ref, known := strings.Cut(r.Text, "#")
		if known && !glob(p.Ref, ref) || !known && !absent {
			return false
		}
	}
	switch {
	case p.List != "":
		return o.listed(p, r, absent)
	case p.Site != "":
		return siteMatches(p.Site, r)
	case p.Prefix != "":
		return prefixMatches(p.Prefix, r)
	case p.Package != "":
		name, _, _ := cutVersion(r.Text)
		return glob(p.Package, name)
	case p.Exact != "":
		return p.Exact == r.Text || p.Type == act.Tool && ofTools([]string{p.Exact}, r.Text) || slices.Contains([]act.ResourceType{act.URL, act.Host, act.Remote}, p.Type) && siteMatches(p.Exact, r)
	}
	if p.Beneath != "" && !beneath(pathOfResource(r), bound(p.Beneath)) {
		return false
	}
	return p.Name == "" || nameMatches(p, r)
}

func nameMatches(p policy.Pattern, r act.Resource) bool {
	if p.Type == act.Model || p.Type == act.Secret { // whose names are no paths
		return glob(p.Name, r.Text)
	}
	file := pathOfResource(r)
	if p.Type == act.Command && p.Beneath == "" && path.Dir(file) != "/usr/bin" { // another program of that name
		return false
	}
	return glob(p.Name, path.Base(file))
}

func (o *oracle) listed(p policy.Pattern, r act.Resource, absent bool) bool {
	key := policy.Pattern{Type: p.Type, List: p.List}
	members, ok := o.members[key]
	if !ok {
		l := o.lists[strings.TrimPrefix(p.List, "@")]
		for _, m := range slices.Concat(l.Members, l.Added) {
			if pat, problem := memberPattern(m, p.Type); problem == "" && !slices.Contains(l.Removed, m) {
				members = append(members, pat)
			}
		}
		o.members[key] = members
	}
	return slices.ContainsFunc(members, func(m policy.Pattern) bool { return o.pattern(m, r, absent) })
}

// memberPattern is the pattern that a member of a list stands for where the list
// is about resources of type t, or why it cannot be about them.
func memberPattern(m string, t act.ResourceType) (pat policy.Pattern, problem string) {
	n := name{text: m, tok: token{kind: atom}}
	switch t {
	case act.Path, act.Repo:
		if pat, problem = pathPattern(n, true); problem == "" && (pat.Name != "" || pat.Beneath == "" || !looksPath(m) || strings.HasPrefix(m, ".")) {
			problem = "is not a whole path"
		}
		pat.Type = t
	case act.Host, act.URL, act.Recipient:
		pat, problem = hostPattern(n, t)
	case act.Remote:
		pat, problem = remotePattern(n, "")
		if pat.Ref != "" {
			problem = "is not a place on a host"
		}
	case act.Command:
		pat, problem = commandPattern(n, "")
	case act.Package:
		pat, problem = packagePattern(n)
	default:
		pat = policy.Pattern{Type: t, Exact: m}
	}
	return pat, problem
}

// scenarioBinding is what the symbolic roots are bound to in scenarios.
var scenarioBinding = policy.Binding{Workspace: "/work/project", Home: "/home/user"}

// ScenarioBinding is the binding under which scenarios hold.
func ScenarioBinding() policy.Binding { return scenarioBinding }

func bound(s string) string {
	s = strings.Replace(s, "${workspace}", scenarioBinding.Workspace, 1)
	return strings.Replace(s, "${home}", scenarioBinding.Home, 1)
}

func beneath(file, dir string) bool {
	return dir == "/" || file == dir || strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/")
}

// pathOfResource is the path of a file, a repository or the program of a command.
func pathOfResource(r act.Resource) string {
	switch r.Type {
	case act.Repo:
		return strings.TrimPrefix(r.Text, "repo:")
	case act.Command:
		// Commands of scenarios are made here, and have no escapes in the program.
		program, _, _ := strings.Cut(strings.TrimPrefix(r.Text, `["`), `"`)
		return program
	default:
		return r.Text
	}
}

// glob matches s with a pattern in which * stands for any run of characters.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	rest, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(rest, p)
		if i < 0 {
			return false
		}
		rest = rest[i+len(p):]
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}

func cutVersion(pkg string) (name, version string, ok bool) {
	if i := strings.LastIndexByte(pkg, '@'); i > strings.IndexByte(pkg, ':')+1 {
		return pkg[:i], pkg[i+1:], true
	}
	return pkg, "", false
}

// hostOf returns the host of a resource that is on one, with its port.
func hostOf(r act.Resource) string {
	s := r.Text
	switch r.Type {
	case act.Host:
		return s
	case act.URL, act.Remote:
		scheme, rest, ok := strings.Cut(s, "://")
		if !ok {
			return ""
		}
		host, _, _ := strings.Cut(rest, "/")
		host, _, _ = strings.Cut(host, "#")
		if !strings.Contains(host[strings.IndexByte(host, ']')+1:], ":") {
			host += map[string]string{"https": ":443", "http": ":80", "ssh": ":22"}[scheme]
		}
		return host
	case act.Recipient:
		return s[strings.LastIndexByte(s, '@')+1:]
	default:
		return ""
	}
}

func cutPort(hostPort string) (host, port string) {
	if i := strings.LastIndexByte(hostPort, ':'); i > strings.IndexByte(hostPort, ']') {
		return hostPort[:i], hostPort[i+1:]
	}
	return hostPort, ""
}

func siteMatches(site string, r act.Resource) bool {
	host, port := cutPort(hostOf(r))
	if network, err := netip.ParsePrefix(site); err == nil {
		a, err := netip.ParseAddr(strings.Trim(host, "[]"))
		return err == nil && network.Contains(a.Unmap())
	}
	domain, wild := strings.CutPrefix(site, "*.")
	name, only := cutPort(domain)
	if only != "" && only != port {
		return false
	}
	return host == name || wild && strings.HasSuffix(host, "."+name)
}

func prefixMatches(prefix string, r act.Resource) bool {
	_, rest, _ := strings.Cut(r.Text, "://")
	rest, _, _ = strings.Cut(rest, "#")
	rest, _, _ = strings.Cut(rest, "?")
	place := strings.TrimSuffix(strings.TrimSuffix(rest, "/"), ".git")
	want := strings.TrimSuffix(prefix, "/")
	return place == want || strings.HasPrefix(place, want+"/")
}

// private reports whether a host is not on the public internet.
func private(hostPort string) bool {
	host, _ := cutPort(hostPort)
	if host == "" {
		return false
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return !a.IsGlobalUnicast() || a.IsPrivate()
	}
	return !strings.Contains(host, ".") || slices.ContainsFunc([]string{".internal", ".local", ".localhost", ".home.arpa"}, func(s string) bool {
		return strings.HasSuffix(host, s)
	})
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// namesHost reports whether a pattern names the very host or network of e, and
// so may reach a private one.
func (o *oracle) namesHost(on []policy.Pattern, e act.Effect) bool {
	return slices.ContainsFunc(on, func(p policy.Pattern) bool {
		return p.Type == e.Resource.Type && !p.Not && p.List == "" && p.Prefix == "" && p.Site != "" && !strings.HasPrefix(p.Site, "*.") && o.pattern(p, e.Resource, false)
	})
}

// holds reports whether a condition holds for q; absent is the answer where its
// fact is not known.
func holds(c policy.Condition, q *question, absent bool) bool {
	var fact any
	known := true
	switch {
	case c.Fact == policy.FactLabel:
		has := slices.ContainsFunc(q.labels, func(l act.Label) bool { return string(l) == c.Value })
		return has == (c.Op == "has")
	case c.Fact == policy.FactHour:
		fact, known = int64(q.now.UTC().Hour()), !q.now.IsZero()
	case strings.HasPrefix(c.Fact, "arg:"):
		fact, known = q.args[strings.TrimPrefix(c.Fact, "arg:")]
		if !known && c.Op == "==" {
			return false
		}
	case c.Fact == "resource:"+act.FactResembles:
		fact = popular.Resembles(q.effect.Resource.Text)
	case strings.HasPrefix(c.Fact, "resource:"):
		fact, known = q.effect.Resource.Facts[strings.TrimPrefix(c.Fact, "resource:")]
	}
	if !known {
		return absent
	}
	switch want := c.Value.(type) {
	case int64:
		n, ok := fact.(int64)
		return ok && compares(n, c.Op, want) || !ok && absent
	default:
		if c.Op == "!=" {
			return fact != want
		}
		return fact == want
	}
}

func compares(a int64, op string, b int64) bool {
	switch op {
	case "==":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	case ">=":
		return a >= b
	}
	return false
}
