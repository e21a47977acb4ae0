package constitution

import (
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// A selection is a set of resources of one type: those that match one of pats
// and none of nots. The zero selection is all of them.
type selection struct {
	pats []policy.Pattern
	nots []policy.Pattern
}

func (s selection) open() bool { return len(s.pats) == 0 && len(s.nots) == 0 }

// patterns gives d the patterns of o and of its places.
func (g *grounder) patterns(d *deed, o *object, class string) {
	kinds := d.kinds
	if class == "credential" || class == "secret" && slices.ContainsFunc(kinds, func(k act.Kind) bool { return k.On() == act.Path }) {
		g.credentials(d, o)
		return
	}
	var types []act.ResourceType
	for _, k := range kinds {
		if !slices.Contains(types, k.On()) {
			types = append(types, k.On())
		}
	}
	if g.keepApplicable(&types, o, class) {
		return
	}
	restricted := false
	var on []policy.Pattern
	var except []policy.Exception
	for _, t := range types {
		s, problem := g.selectMain(o, t, class)
		if problem != "" {
			g.fail(o.at, "", "%s", problem)
			return
		}
		restricted = restricted || !s.open()
		switch {
		case s.open():
			on = append(on, policy.Pattern{Type: t})
		case len(s.pats) == 0:
			on = append(on, inverted(s.nots)...)
		default:
			on = append(on, s.pats...)
			if len(s.nots) > 0 {
				except = append(except, policy.Exception{On: s.nots})
			}
		}
	}
	d.kinds = common(kinds, ofType(types...))
	if restricted || len(o.names) > 0 {
		d.on, d.except = on, append(d.except, except...)
	}
	g.tests(d, o)
}

func (g *grounder) tests(d *deed, o *object) {
	for _, t := range o.tests {
		if !slices.Equal(d.kinds, []act.Kind{act.Install}) {
			g.fail(o.at, "npm packages that are at least two days old", "only the age of packages is known, and whether their names resemble popular ones")
			return
		}
		d.when = append(d.when, policy.Condition{Fact: "resource:" + t.fact, Op: t.op, Value: t.value})
	}
}

// keepApplicable drops the types that a place of o cannot narrow: "anything in
// ./x" is about paths. It reports whether there is nothing left.
func (g *grounder) keepApplicable(types *[]act.ResourceType, o *object, class string) bool {
	if (class == "file" || class == "any") && slices.ContainsFunc(o.names, func(n name) bool { return n.named || !looksPath(n.text) && !strings.Contains(n.text, "/") }) {
		*types = slices.DeleteFunc(*types, func(t act.ResourceType) bool { return t == act.Repo }) // a base name is no repository
	}
	for _, m := range o.mods {
		var kept []act.ResourceType
		problem := ""
		for _, t := range *types {
			_, why := g.selectMod(m, t)
			if why == "" {
				kept = append(kept, t)
			} else if problem == "" || strings.Contains(problem, "says nothing about") {
				problem = why
			}
		}
		if len(kept) == 0 {
			g.fail(m.at, "", "%s", problem)
			return true
		}
		*types = kept
	}
	return false
}

// credentials gives d the places of credentials, and those that o adds.
func (g *grounder) credentials(d *deed, o *object) {
	for _, t := range []act.ResourceType{act.Path, act.Repo} {
		for _, place := range credentialPlaces {
			if len(common(d.kinds, ofType(t))) > 0 {
				d.on = append(d.on, policy.Pattern{Type: t, Beneath: place})
			}
		}
	}
	for _, n := range o.names {
		pat, problem := pathPattern(n, false)
		if problem != "" {
			g.fail(o.at, "", "%q %s", n.text, problem)
			return
		}
		d.on = append(d.on, pat)
	}
	for _, t := range []act.ResourceType{act.Secret, act.URL, act.Recipient} {
		if len(common(d.kinds, ofType(t))) > 0 {
			d.on = append(d.on, policy.Pattern{Type: t})
		}
	}
	for _, m := range o.mods {
		g.fail(m.at, "files in …", "credentials lie in places of their own: %q cannot narrow them", g.text(m.at, m.end))
		return
	}
}

// selectMain returns which resources of type t the object of a verb is about.
func (g *grounder) selectMain(o *object, t act.ResourceType, class string) (selection, string) {
	s, problem := g.selectNames(o, t, class)
	if problem != "" {
		return s, problem
	}
	for _, m := range o.mods {
		by, problem := g.selectMod(m, t)
		if problem != "" {
			return s, problem
		}
		if s, problem = both(s, by); problem != "" {
			if m.prep == "to" || m.prep == "into" {
				problem = "what is moved or copied is judged at both ends: write \"in … and …\""
			}
			return s, fmt.Sprintf("%q: %s", g.text(o.at, o.end), problem)
		}
	}
	return s, ""
}

// selectNames returns what the names of o and its noun select.
func (g *grounder) selectNames(o *object, t act.ResourceType, class string) (selection, string) {
	var s selection
	if o.root != "" && o.root != "/" {
		if t != act.Path && t != act.Repo && t != act.Command {
			return s, g.text(o.at, o.end) + " says nothing about " + typeNoun(t)
		}
		s.pats = append(s.pats, policy.Pattern{Type: t, Beneath: o.root})
	}
	for i, n := range o.names {
		if registry, ok := strings.CutSuffix(o.names[0].text, ":*"); ok && t == act.Package && len(o.names) > 1 && !strings.HasSuffix(o.names[1].text, ":*") { // "npm packages left-pad and lodash"
			if i == 0 {
				continue
			}
			if !strings.Contains(n.text, ":") {
				n.text = registry + ":" + n.text
			}
		}
		pat, problem := g.namePattern(n, t, class)
		if problem != "" {
			return s, "\"" + n.text + "\" " + problem
		}
		s.pats = append(s.pats, pat)
	}
	if t == act.Remote && o.class == "tag" && len(o.names) == 0 {
		s.pats = append(s.pats, policy.Pattern{Type: t, Ref: "refs/tags/*"})
	}
	if len(o.either) > 0 && t == act.Path {
		var e selection
		for _, n := range o.either {
			e.pats = append(e.pats, policy.Pattern{Type: t, Name: n.text})
		}
		return both(s, e)
	}
	return s, ""
}

// namePattern reads one name as a resource of type t.
func (g *grounder) namePattern(n name, t act.ResourceType, class string) (policy.Pattern, string) {
	switch t {
	case act.Path:
		return g.pathOf(n, class)
	case act.Repo:
		if class == "branch" || class == "tag" || class == "commit" {
			return policy.Pattern{}, "cannot be told apart here: branches are known where something is pushed to them"
		}
		pat, problem := pathPattern(n, true)
		if pat.Name != "" {
			problem = "is a file: name a directory"
		}
		pat.Type = act.Repo
		return pat, problem
	case act.Command:
		return commandPattern(n, class)
	case act.Host, act.URL, act.Recipient:
		return hostPattern(n, t)
	case act.Remote:
		return remotePattern(n, class)
	case act.Package:
		return packagePattern(n)
	default:
		if n.tok.kind == list {
			return policy.Pattern{Type: t, List: n.text}, ""
		}
		if strings.Contains(n.text, "*") && (t == act.Model || t == act.Secret) {
			return policy.Pattern{Type: t, Name: n.text}, ""
		}
		return policy.Pattern{Type: t, Exact: n.text}, ""
	}
}

// pathOf reads a name of a file; a bare name in a permission is that file in
// the workspace.
func (g *grounder) pathOf(n name, class string) (policy.Pattern, string) {
	pat, problem := pathPattern(n, class == "folder")
	if problem == "" && g.grant && !n.named && pat.Name != "" && pat.Beneath == "" && !strings.Contains(pat.Name, "*") {
		pat.Beneath = "${workspace}"
	}
	return pat, problem
}

func commandPattern(n name, class string) (policy.Pattern, string) {
	pat := policy.Pattern{Type: act.Command}
	switch {
	case n.tok.kind == list:
		pat.List = n.text
	case looksPath(n.text), class == "folder", strings.Contains(n.text, "/"):
		root, problem := rooted(strings.TrimSuffix(strings.TrimSuffix(n.text, "/*"), "/**"))
		pat.Beneath = root
		return pat, problem
	default:
		pat.Name = n.text
	}
	return pat, ""
}

func packagePattern(n name) (policy.Pattern, string) {
	pat := policy.Pattern{Type: act.Package}
	s := n.text
	switch registry, rest, ok := strings.Cut(s, ":"); {
	case n.tok.kind == list:
		pat.List = s
	case ok && contains(registryWords, registry) && rest != "":
		pat.Package = s
	case ok:
		return pat, "is not a package: write npm:name"
	case contains(registryWords, strings.ToLower(s)):
		pat.Package = strings.ToLower(s) + ":*"
	case strings.LastIndexByte(s, '@') > 0:
		return pat, "names a version: versions cannot be told apart here"
	case strings.HasPrefix(s, "@"):
		pat.Package = "npm:" + s
	default:
		return pat, "may be of any registry: write npm:" + s + ", pypi:" + s + " …"
	}
	return pat, ""
}

// registries reports whether o names registries of packages and nothing else.
func registries(o *object) bool {
	return len(o.names) > 0 && !slices.ContainsFunc(o.names, func(n name) bool { return !contains(registryWords, strings.ToLower(n.text)) })
}

func typeNoun(t act.ResourceType) string {
	return map[act.ResourceType]string{
		act.Path: "files", act.Host: "hosts", act.URL: "sites", act.Package: "packages", act.Repo: "repositories", act.Remote: "remotes",
		act.Command: "programs", act.Recipient: "recipients", act.Secret: "secrets", act.Model: "models", act.Memory: "memory",
		act.Person: "people", act.Tool: "tools",
	}[t]
}

// placeClasses are the nouns that can stand after a preposition, by the type of
// what they narrow.
var placeClasses = map[act.ResourceType]string{
	act.Path: " file folder any ", act.Repo: " folder any repo git history ", act.Command: " folder any ",
	act.Host: " site page network any remote person ", act.URL: " site page network any remote person ", act.Recipient: " person email site any ",
	act.Remote: " branch tag remote repo site any ", act.Package: " any package ", act.Memory: " memory ", act.Person: " person ",
}

// selectMod returns what a place narrows resources of type t to, or why it says
// nothing about them.
func (g *grounder) selectMod(m mod, t act.ResourceType) (selection, string) {
	text := g.text(m.at, m.end)
	var s selection
	if len(m.objects) == 0 { // "anywhere", "elsewhere"
		return s, ""
	}
	all := false
	for i := range m.objects {
		o := &m.objects[i]
		if o.class != "" && o.root == "" && !contains(placeClasses[t], o.class) || t == act.Package && !registries(o) {
			return s, "\"" + text + "\" says nothing about " + typeNoun(t)
		}
		if problem := g.unsaid(o); problem != "" {
			return s, problem
		}
		if problem := g.plainly(o, m.not); problem != "" {
			return s, problem
		}
		class := o.class
		if class == "" && (t == act.Path || t == act.Command) {
			class = "folder"
		}
		one, problem := g.selectMain(o, t, class)
		if problem != "" {
			return s, problem
		}
		if len(one.nots) > 0 && len(m.objects) > 1 {
			return s, "\"" + text + "\": \"outside\" in a list can be read in two ways: write a sentence for each"
		}
		all = all || one.open()
		s.pats, s.nots = append(s.pats, one.pats...), append(s.nots, one.nots...)
	}
	if all && !m.not {
		return selection{}, ""
	}
	if m.not {
		if len(s.nots) > 0 || all {
			return s, "\"" + text + "\" leaves nothing"
		}
		return selection{nots: s.pats}, ""
	}
	return s, ""
}

// plainly returns why a noun after a preposition, or in an exception, says more
// than which resources are meant.
func (g *grounder) plainly(o *object, not bool) string {
	external := contains(" site page network request person ", o.class)
	switch {
	case slices.ContainsFunc(o.quals, func(q string) bool { return q != "external" || !external }), o.group != "":
		return fmt.Sprintf("%q has an adjective that is not understood here", g.text(o.at, o.end))
	case o.rest && (not || len(o.names) > 0 || o.root != ""):
		return fmt.Sprintf("%q leaves open what is meant", g.text(o.at, o.end))
	}
	return ""
}

// both returns what is in a and in b.
func both(a, b selection) (selection, string) {
	out := selection{nots: append(slices.Clone(a.nots), b.nots...)}
	switch {
	case len(a.pats) == 0:
		out.pats = b.pats
	case len(b.pats) == 0:
		out.pats = a.pats
	default:
		for _, p := range a.pats {
			for _, q := range b.pats {
				r, ok := meet(p, q)
				if !ok {
					return out, "two places that are not joined: write \"and\" or \"or\" between them, or two sentences"
				}
				out.pats = append(out.pats, r)
			}
		}
	}
	return out, ""
}

// meet returns the pattern for what both p and q match, if there is one: a name
// and a directory, a branch and a remote.
func meet(p, q policy.Pattern) (policy.Pattern, bool) {
	if p.Not || q.Not || p.List != "" || q.List != "" {
		return p, false
	}
	for _, f := range []struct{ a, b *string }{
		{&p.Exact, &q.Exact},
		{&p.Beneath, &q.Beneath},
		{&p.Name, &q.Name},
		{&p.Site, &q.Site},
		{&p.Prefix, &q.Prefix},
		{&p.Ref, &q.Ref},
		{&p.Package, &q.Package},
	} {
		if *f.a != "" && *f.b != "" {
			return p, false
		}
		if *f.a == "" {
			*f.a = *f.b
		}
	}
	ways := 0
	for _, s := range []string{p.Exact, p.Beneath + p.Name, p.Site, p.Prefix, p.Package} {
		if s != "" {
			ways++
		}
	}
	return p, ways <= 1
}

func inverted(pats []policy.Pattern) []policy.Pattern {
	out := slices.Clone(pats)
	for i := range out {
		out[i].Not = !out[i].Not
	}
	return out
}
