package constitution

import (
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// check refuses objects with parts that the reading of this verb and class would
// pass over.
func (g *grounder) check(v verbUse, o *object, class string) {
	if o.rest && len(o.names) > 0 {
		g.fail(o.at, "any other site", "%q: what is named is not \"other\"", g.text(o.at, o.end))
	}
	if problem := g.unsaid(o); problem != "" {
		g.fail(o.at, "name them, or use a list such as @my-sites", "%s", problem)
	}
	github := githubTools(v.sense, class) != nil
	if github && (len(o.names)+len(o.mods) > 0 || o.group != "" || o.rest) {
		g.fail(o.at, "", "%q: only all of them can be meant", g.text(o.at, o.end))
	}
	if o.group != "" && !contains(" op any tool git change ", class) {
		g.fail(o.at, "name them, or say \"destructive operations\"", "what is %q about %s cannot be told", g.text(o.at, o.end), manyOf(class))
	}
	allowed := ""
	switch {
	case github:
	case class == "tool":
		allowed = " remote "
	case o.group != "", class == "git":
		allowed = " git local remote "
	case class == "op":
		allowed = " git network remote "
	case v.op != "", v.sense == "amend":
		allowed = " git published "
	case class == "any", class == "commit" && v.sense == "", class == "folder" && v.sense == "":
		allowed = " git local "
	default:
		return // the adjectives are looked at with the kinds
	}
	if slices.ContainsFunc(o.quals, func(q string) bool { return !contains(allowed, q) }) {
		g.fail(o.at, "", "%q has an adjective that is not understood here", g.text(o.at, o.end))
	}
}

// direct returns what pairs of verb and noun mean of which the table of senses
// says nothing.
func (g *grounder) direct(v verbUse, o *object, class string, a *action) ([]deed, bool) {
	switch {
	case githubTools(v.sense, class) != nil:
		return []deed{{tools: githubTools(v.sense, class)}}, true
	case class == "tool" && slices.Contains(o.quals, "remote") && o.group == "":
		o.group, o.quals = act.RemoteGroup, nil
		return g.grouped(o, class), true
	case o.group != "":
		return g.grouped(o, class), true
	case class == "git", class == "op" && len(o.quals) > 0:
		return g.gitOperations(o, class), true
	case class == "tool":
		return g.tools(o), true
	case v.sense == "fetch" && class == "-" && slices.ContainsFunc(a.verbs, func(u verbUse) bool { return contains(" pull push clone commit merge ", u.sense) }):
		return []deed{{kinds: []act.Kind{act.GitFetch}}}, true // "pull and fetch"
	case v.op != "" || v.sense == "amend":
		return g.gitVerb(v, o, class)
	case v.sense == "use" && class == "program" && slices.ContainsFunc(o.names, func(n name) bool { return n.text == "git" }):
		g.fail(o.at, "use read-only git operations; git commit and git branch; run git", "\"use git\" does not say what may be done")
		return nil, true
	case class == "any" && o.rest && (v.sense == "" || v.sense == "do") && len(o.mods) == 0:
		return []deed{{all: true, rest: true}}, true
	case class == "any" && (v.sense == "do" || v.sense == "") && len(o.mods)+len(o.names) == 0 && !o.rest:
		return []deed{{}}, true
	}
	return nil, false
}

// gitVerb returns what a verb of git means that is an operation, or rewrites.
func (g *grounder) gitVerb(v verbUse, o *object, class string) ([]deed, bool) {
	published := slices.Contains(o.quals, "published")
	switch {
	case (v.sense == "amend" || published) && len(o.mods)+len(o.names) > 0:
		g.fail(o.at, "", "%q: only all commits can be meant", g.text(o.at, o.end))
		return nil, true
	case published:
		return []deed{{kinds: []act.Kind{act.GitForce}}}, true
	case v.op != "":
		return g.operation(v, o), true
	case class == "-" || class == "commit":
		amend := policy.Condition{Fact: "arg:/amend", Op: "==", Value: true}
		return []deed{{tools: []string{"git.git_commit"}, kinds: []act.Kind{act.GitRewrite}, when: []policy.Condition{amend}}}, true
	}
	return nil, false
}
