package constitution

import (
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// A deed is what an action means: a clause without its modality.
type deed struct {
	tools  []string
	kinds  []act.Kind
	groups []act.Group
	on     []policy.Pattern
	except []policy.Exception
	when   []policy.Condition
	rest   bool // "any other": the complement of earlier clauses is still to be taken
	all    bool // "everything else"
	byKind bool // "all other git operations": the complement is of effects and tools, not of resources
	bare   bool // "any other site": no verb, so the kinds are those of earlier clauses
}

// A grounder turns actions into deeds.
type grounder struct {
	toks  []token
	wide  bool     // the sentence restricts: words are read in their wide sense
	grant bool     // the sentence only grants, without approval
	last  []object // what the statement before was about, in the same sentence
	err   *miss
}

func (g *grounder) fail(i int, hint, format string, args ...any) {
	if g.err != nil {
		return
	}
	i = min(max(i, 0), len(g.toks)-1)
	g.err = &miss{at: g.toks[i].at, why: fmt.Sprintf(format, args...), hint: hint}
}

func (g *grounder) text(from, to int) string {
	to = min(to, len(g.toks))
	return textOf(g.toks[min(max(0, from), to):to])
}

// deeds returns what a means.
func (g *grounder) deeds(a action) []deed {
	var all []deed
	verbs, objects := a.verbs, a.objects
	if len(verbs) == 0 {
		verbs = []verbUse{{at: a.at}}
	}
	if len(objects) == 0 {
		objects = []object{{at: a.at, end: a.end, mods: a.mods}}
		if last := verbs[len(verbs)-1]; len(a.mods) == 0 && len(g.last) > 0 && g.fits(last, &g.last[0]) {
			objects = nil
			for _, o := range g.last { // "reading files is allowed, writing is not"
				objects = append(objects, o.moved(last.at))
			}
		}
		a.mods = nil
	}
	g.distribute(objects)
	for _, v := range verbs {
		done := false
		for i := range objects {
			o := &objects[i]
			if v.sense != "" && len(verbs) > 1 && !g.fits(v, o) && barely(v.sense) {
				mods := o.mods
				if g.grant && len(mods) > 0 && len(common(senses()[v.sense]["-"].narrow, ofType(act.Repo))) == 0 {
					g.fail(v.at, "write a sentence for each", "what is said of %q may belong to %q too", g.text(o.at, o.end), g.toks[v.at].text)
				}
				if !g.grant {
					mods = nil
				}
				o = &object{at: v.at, end: v.at + 1, mods: mods}
				if done {
					continue
				}
			}
			done = true
			all = append(all, g.pair(v, o, &a)...)
		}
	}
	if g.err != nil {
		return nil
	}
	for i := range all {
		g.conditions(&all[i], a)
	}
	return all
}

// distribute gives the places of the last noun to the bare nouns before it:
// "files and folders in ./x". Where a part of the last noun may or may not belong
// to those before it, the sentence is refused.
func (g *grounder) distribute(objects []object) {
	last := objects[len(objects)-1]
	for i := range objects[:len(objects)-1] {
		o := &objects[i]
		family := o.class == last.class || contains(" file folder any ", o.class) && contains(" file folder any ", last.class)
		if !family || len(o.mods) > 0 || o.root != "" {
			continue
		}
		bare := len(o.names)+len(o.either)+len(o.tests) == 0 && o.group == ""
		apart := len(o.names) > 0 && len(last.names) == 0
		switch {
		case bare && (len(last.names)+len(last.either) > 0 || last.group != ""),
			len(last.tests) > 0 && len(o.tests) == 0,
			!bare && !apart && len(last.mods) > 0 && !slices.ContainsFunc(o.names, func(n name) bool { return looksPath(n.text) }):
			g.fail(last.at, "write a sentence for each", "what is said of %q may belong to %q too", g.text(last.at, last.end), g.text(o.at, o.end))
		case bare:
			o.mods = last.mods
		}
	}
}

// barely reports whether a verb of git stands alone among verbs with an object:
// "commit, push and delete files".
func barely(verb string) bool {
	s, ok := senses()[verb]["-"]
	return ok && len(common(s.narrow, ofType(act.Repo, act.Remote))) > 0
}

// fits reports whether the verb can be done to the object.
func (g *grounder) fits(v verbUse, o *object) bool {
	class := g.class(v, o)
	if o.group != "" || class == "git" || class == "op" || class == "tool" {
		return v.sense == "" || v.sense == "use" || v.sense == "do" || v.sense == "run" || v.sense == "call" || v.sense == "create"
	}
	_, ok := senses()[v.sense][class]
	return ok
}

// class returns the class of noun of o, from its names where it has no noun.
func (g *grounder) class(v verbUse, o *object) string {
	if o.class == "keys" { // these are some of the credentials
		if !g.wide {
			g.fail(o.at, "read files in ~/.ssh", "%q are kept in many places: name the files", g.text(o.at, o.end))
		}
		return "credential"
	}
	if o.class != "" {
		return o.class
	}
	if len(o.names) == 0 {
		return g.classOfPlace(v, o)
	}
	n := o.names[0]
	switch v.sense {
	case "run":
		return "program"
	case "use":
		switch {
		case toolName(n.text):
			return "tool"
		case !looksPath(n.text) && !contains(programWords, n.text):
			g.fail(o.at, "run "+n.text+"; use the model "+n.text, "%q may be a program, a tool or a model: say which", n.text)
		}
		return "program"
	case "call":
		return "tool"
	case "install", "add":
		if v.sense == "add" && (looksPath(n.text) || n.tok.kind == atom && strings.Contains(n.text, ".")) {
			return "file"
		}
		return "package"
	case "fetch", "browse":
		return "page"
	case "contact", "resolve":
		return "site"
	case "email":
		return "person"
	case "push", "force-push", "checkout", "merge", "rebase":
		return "branch"
	case "clone", "pull":
		return "repo"
	case "send":
		return "file"
	}
	return g.classOfName(v, o, n)
}

// classOfPlace is the class of a verb without an object: "write in ./x" is
// about files, "push to main" needs none.
func (g *grounder) classOfPlace(v verbUse, o *object) string {
	_, bare := senses()[v.sense]["-"]
	if e := words().verbs[g.toks[min(max(v.at, 0), len(g.toks)-1)].low]; !bare && len(o.mods) == 0 && e.form == nominal && contains(" read write edit create ", v.sense) {
		return "any" // "reads are free"
	}
	if bare || len(o.mods) == 0 || v.op != "" {
		return "-"
	}
	switch v.sense {
	case "fetch", "browse":
		return "page"
	case "do":
		return "any"
	case "contact":
		return "site"
	case "run", "install":
		return "any"
	}
	for _, m := range o.mods {
		for _, t := range m.objects {
			for _, n := range t.names {
				if v.sense == "read" && !looksPath(n.text) && looksHost(n.text) && n.tok.kind == atom {
					return "page"
				}
			}
		}
	}
	return "file"
}

func (g *grounder) classOfName(v verbUse, o *object, n name) string {
	switch {
	case strings.Contains(n.text, "://"):
		return "page"
	case n.tok.kind == list && v.sense != "":
		g.fail(o.at, "read files in "+n.text+"; fetch pages from "+n.text, "%s may hold files or sites: say which", n.text)
		return "file"
	case v.sense == "" && toolName(n.text) && !looksPath(n.text):
		g.fail(o.at, "", "%q may be a file, a site or a tool: say which", n.text)
		return "file"
	}
	if last := n.text[strings.LastIndexByte(n.text, '.')+1:]; n.tok.kind == atom && !looksPath(n.text) && looksHost(n.text) && contains(siteSuffixes, last) {
		g.fail(o.at, "fetch pages from "+n.text+"; read the file "+n.text, "%q may be a site or a file: say which", n.text)
	}
	return "file"
}

// pair returns what doing v to o means.
func (g *grounder) pair(v verbUse, o *object, a *action) []deed {
	class := g.class(v, o)
	g.check(v, o, class)
	if g.err != nil {
		return nil
	}
	if ds, ok := g.direct(v, o, class, a); ok {
		return ds
	}
	if ds, ok := g.special(v, o, class); ok {
		return ds
	}
	kinds, ok := g.kinds(v, o, class)
	if !ok {
		return nil
	}
	d := deed{kinds: kinds, rest: o.rest, bare: v.sense == "" && o.rest && class != "any"}
	for _, m := range o.mods {
		d.rest = d.rest || m.rest
	}
	g.patterns(&d, o, class)
	return []deed{d}
}

// unsaid returns why a permission cannot be about o: it narrows a noun by what is
// not said, as in "our sites", or only by examples. A restriction is then about
// all that the noun means.
func (g *grounder) unsaid(o *object) string {
	named := len(o.names)+len(o.either)+len(o.mods) > 0 || o.root != "" || o.group != ""
	switch {
	case g.grant && o.whose != "" && !named:
		return fmt.Sprintf("%q does not say which are meant", g.text(o.at, o.end))
	case g.grant && o.example != "" && o.group == "" && !contains(" op git credential ", o.class):
		return "examples do not say what else is allowed"
	}
	return ""
}

// kinds returns the kinds that v means on o.
func (g *grounder) kinds(v verbUse, o *object, class string) ([]act.Kind, bool) {
	if v.sense == "" {
		return g.implied(o, class)
	}
	s, ok := senses()[v.sense][class]
	if !ok {
		g.cannot(v, o, class)
		return nil, false
	}
	kinds := s.narrow
	if g.wide {
		kinds = s.wide
	}
	if v.sense == "force-push" && g.grant { // a forced push is a push too
		kinds = []act.Kind{act.GitPush, act.GitForce}
	}
	for _, q := range o.quals {
		switch {
		case q == "new" && contains(" file folder any code data ", class):
			kinds = common(kinds, []act.Kind{act.Create})
		case q == "existing":
			kinds = slices.DeleteFunc(slices.Clone(kinds), func(k act.Kind) bool { return k == act.Create })
		case q == "published" && (class == "history" || class == "commit" || class == "branch"), q == "remote" && class == "branch" && v.sense == "delete":
			kinds = []act.Kind{act.GitForce}
		case q == "unpublished" && class == "history", q == "local" && class == "branch":
			kinds = common(kinds, ofType(act.Repo))
		case q == "git" && (class == "remote" || class == "history" || class == "commit" || class == "branch" || class == "tag" || class == "repo"):
		case q == "local" && contains(" file folder code any repo history commit program ", class):
		case q == "external" && contains(" site page network request person ", class), q == "remote" && (class == "site" || class == "page"):
		case q == "network" && class == "request", q == "new" && contains(" commit branch tag package ", class):
		case (q == "get" || q == "post") && class == "request":
			kinds = []act.Kind{map[string]act.Kind{"get": act.Fetch, "post": act.Send}[q]}
		default:
			g.fail(o.at, "", "%q is not understood of this noun", q)
			return nil, false
		}
	}
	if len(kinds) == 0 {
		g.fail(v.at, g.sayMore(v, o), "%q does not say what may be done", g.text(v.at, o.end))
		return nil, false
	}
	return kinds, true
}

func (g *grounder) sayMore(v verbUse, o *object) string {
	of := g.text(o.at, o.end)
	switch v.sense {
	case "access":
		return "read " + of + "; read, create and edit " + of + "; do anything in …"
	case "read":
		return "use secrets; read files in …"
	}
	return ""
}

// cannot reports a verb and a noun that do not go together.
func (g *grounder) cannot(v verbUse, o *object, class string) {
	var nouns []string
	for c := range senses()[v.sense] {
		if c != "-" && c != "any" && c != "op" {
			nouns = append(nouns, manyOf(c))
		}
	}
	slices.Sort(nouns)
	word := g.toks[v.at].text
	if class == "-" || len(o.names) == 0 && o.class == "" {
		g.fail(v.at, word+" "+strings.Join(nouns, ", "+word+" "), "%q needs an object: what?", word)
		return
	}
	g.fail(o.at, word+" "+strings.Join(nouns, ", "+word+" "), "%q cannot be done to %q", word, g.text(o.at, o.end))
}

// manyOf returns a class of nouns as it is written after a verb.
func manyOf(class string) string {
	switch class {
	case "data", "code", "memory", "history", "network":
		return class
	case "git":
		return "git operations"
	case "person":
		return "people"
	}
	return plural(class)
}

// implied returns the kinds of a noun without a verb.
func (g *grounder) implied(o *object, class string) ([]act.Kind, bool) {
	verb := map[string]string{
		"program": "run", "package": "install", "email": "send", "person": "email", "model": "use", "secret": "use", "memory": "use",
		"network": "contact", "site": "contact", "page": "contact", "request": "create", "question": "ask", "remote": "contact",
	}[class]
	switch {
	case (class == "site" || class == "page") && g.grant && !o.rest:
		g.fail(o.at, "fetch pages from …; send requests to …", "%q does not say what may be done", g.text(o.at, o.end))
		return nil, false
	case verb != "":
		return g.kinds(verbUse{at: o.at, sense: verb}, o, class)
	case contains(" file folder any code credential ", class) && slices.ContainsFunc(o.quals, func(q string) bool { return q != "local" }):
		g.fail(o.at, "", "%q has an adjective that is not understood here", g.text(o.at, o.end))
		return nil, false
	case class == "file", class == "folder", class == "any", class == "code", class == "credential":
		if g.grant && !o.rest {
			g.fail(o.at, "read files in …; create and edit files in …", "%q does not say what may be done", g.text(o.at, o.end))
			return nil, false
		}
		kinds := ofType(act.Path)
		if class == "folder" || class == "any" || class == "credential" || class == "file" && o.class == "" {
			kinds = ofType(act.Path, act.Repo)
		}
		return kinds, true
	case class == "branch":
		return []act.Kind{act.GitPush, act.GitForce}, true
	case class == "commit":
		return []act.Kind{act.GitCommit}, true
	}
	g.fail(o.at, "", "%q does not say what is done", g.text(o.at, o.end))
	return nil, false
}

// conditions adds the conditions of a to d.
func (g *grounder) conditions(d *deed, a action) {
	c := a.cond
	if len(c.tools) > 0 {
		if len(d.tools) > 0 {
			g.fail(a.at, "", "the sentence names tools twice")
		}
		d.tools = c.tools
	}
	d.when = append(d.when, c.when...)
	if i := slices.IndexFunc(c.when, func(w policy.Condition) bool { return w.Fact == "arg:/force" && w.Value == true }); i >= 0 && slices.Contains(d.kinds, act.GitPush) {
		d.kinds, d.when = []act.Kind{act.GitForce}, slices.Delete(d.when, i, i+1)
	}
	for i := range d.when {
		g.pointer(d, &d.when[i], a)
	}
	if len(c.unless) > 0 {
		u := slices.Clone(c.unless)
		for i := range u {
			g.pointer(d, &u[i], a)
		}
		d.except = append(d.except, policy.Exception{When: u})
	}
	for _, h := range c.hours {
		d.except = append(d.except, policy.Exception{When: hoursTest(h)})
	}
	for _, e := range c.except {
		d.except = append(d.except, g.exception(d, e)...)
	}
}

func hoursTest(h [2]int64) []policy.Condition {
	return []policy.Condition{{Fact: policy.FactHour, Op: ">=", Value: h[0]}, {Fact: policy.FactHour, Op: "<", Value: h[1]}}
}

// ofRequests reports whether fact is of a request over the network: its method, as it is
// written ("PUT"), and of a message of a WebSocket what it is and which way it goes.
func ofRequests(fact string) bool {
	return fact == "arg:/method" || fact == "arg:/message" || fact == "arg:/direction"
}

// pointer makes the name of an argument a JSON pointer, and refuses one where no
// tool is named.
func (g *grounder) pointer(d *deed, c *policy.Condition, a action) {
	name, ok := strings.CutPrefix(c.Fact, "arg:/")
	if !ok {
		return
	}
	if len(d.tools) == 0 && ofRequests(c.Fact) && len(d.kinds) > 0 && !slices.ContainsFunc(d.kinds, func(k act.Kind) bool { return k != act.Fetch && k != act.Send }) {
		return // of any request over the network
	}
	if len(d.tools) == 0 {
		g.fail(a.end-1, "must ask before using git.git_push with force", "an argument (%s) belongs to a tool: name the tool", name)
		return
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = strictjson.Escape(p)
	}
	c.Fact = "arg:/" + strings.Join(parts, "/")
}
