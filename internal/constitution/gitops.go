package constitution

import (
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// toolName reports whether s is server.tool or server.*.
func toolName(s string) bool {
	server, tool, ok := strings.Cut(s, ".")
	if ok && policy.IsMethod(tool) {
		_, known := (&policy.Annotation{}).Method(tool)
		return known && toolName(server+".x")
	}
	return ok && server != "" && tool != "" && !strings.Contains(tool, ".") && strings.Trim(strings.ToLower(server+strings.TrimSuffix(tool, "*")), "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// special returns what a few pairs of verb and noun mean, which no row of the
// table can say.
func (g *grounder) special(v verbUse, o *object, class string) ([]deed, bool) {
	switch {
	case v.sense == "delete" && (class == "branch" || class == "tag") && len(o.quals) == 0 && len(o.names) == 0:
		return []deed{{tools: []string{"git.git_" + class}, kinds: []act.Kind{act.GitRewrite}}}, true
	case v.sense == "create" && class == "tag":
		return g.operation(verbUse{at: v.at, sense: "tag", op: "tag"}, o), true
	case class == "memory" || class == "op" && v.sense == "remember":
		return g.memory(v, o, class)
	}
	return nil, false
}

// memoryGroups are the groups of the calls by which the tools of the server
// called memory do what a verb says.
var memoryGroups = map[string][]act.Group{
	"recall": {act.Observe}, "read": {act.Observe}, "search": {act.Observe}, "list": {act.Observe},
	"remember": {act.Mutate}, "write": {act.Mutate}, "edit": {act.Mutate}, "create": {act.Mutate}, "add": {act.Mutate},
	"forget": {act.Irreversible}, "delete": {act.Irreversible},
	"use": {act.Observe, act.Mutate, act.Irreversible}, "access": {act.Observe, act.Mutate, act.Irreversible},
}

// memory returns what is done to memory: the effects, and the calls of the
// server called memory.
func (g *grounder) memory(v verbUse, o *object, class string) ([]deed, bool) {
	kinds, ok := g.kinds(v, o, class)
	if !ok || len(o.names) > 0 {
		return nil, !ok
	}
	calls := deed{tools: []string{"memory.*"}, kinds: []act.Kind{act.Call}, groups: memoryGroups[v.sense]}
	if v.sense == "use" || v.sense == "access" {
		calls = deed{tools: []string{"memory.*"}}
	}
	return []deed{{kinds: kinds, rest: o.rest}, calls}, len(calls.groups) > 0 || calls.kinds == nil
}

// githubTools returns the tools of the server called github that do what a verb
// says to pull requests and issues.
func githubTools(verb, class string) []string {
	names := map[string]string{
		"create pull-request": "create_pull_request", "open pull-request": "create_pull_request",
		"merge pull-request":   "merge_pull_request",
		"edit pull-request":    "update_pull_request update_pull_request_branch",
		"close pull-request":   "update_pull_request",
		"review pull-request":  "pull_request_review_write add_comment_to_pending_review add_reply_to_pull_request_comment",
		"comment pull-request": "add_issue_comment add_comment_to_pending_review add_reply_to_pull_request_comment",
		"read pull-request":    "pull_request_read list_pull_requests search_pull_requests",
		"list pull-request":    "list_pull_requests search_pull_requests",
		"search pull-request":  "search_pull_requests",
		"create issue":         "issue_write", "open issue": "issue_write", "edit issue": "issue_write sub_issue_write", "close issue": "issue_write",
		"comment issue": "add_issue_comment", "read issue": "issue_read list_issues search_issues",
		"list issue": "list_issues search_issues", "search issue": "search_issues",
	}[verb+" "+class]
	var tools []string
	for name := range strings.FieldsSeq(names) {
		tools = append(tools, "github."+name)
	}
	return tools
}

// grouped returns what "destructive operations", "tools that only read" and
// "anything that contacts a remote" mean.
func (g *grounder) grouped(o *object, class string) []deed {
	kinds := inGroup(o.group)
	git := class == "git" || o.gitOnly || slices.Contains(o.quals, "git")
	if slices.Contains(o.quals, "local") {
		kinds = common(kinds, ofType(act.Path, act.Repo, act.Command))
	}
	if slices.Contains(o.quals, "remote") {
		kinds = common(kinds, inGroup(act.RemoteGroup))
	}
	d := deed{}
	switch {
	case class == "tool" && len(o.mods) > 0:
		g.fail(o.mods[0].at, "the tools memory.*", "%q says nothing about tools", g.text(o.mods[0].at, o.mods[0].end))
		return nil
	case class == "tool" && !g.wide:
		d.kinds, d.groups = []act.Kind{act.Call}, []act.Group{o.group}
		if servers := g.toolNames(o); len(servers) > 0 {
			d.tools = servers
		}
		return []deed{d}
	case git && class == "git" && len(o.names) > 0:
		return g.gitOperations(o, class)
	case git:
		d.kinds = common(kinds, ofType(act.Repo, act.Remote))
	default:
		d.kinds, d.groups = ordered(append(kinds, act.Call)), []act.Group{o.group}
	}
	d.rest = o.rest && !o.gitOnly
	d.byKind = d.rest && class == "git"
	g.patterns(&d, o, class)
	more := common(kinds, ofType(act.Path))
	if git && o.group != act.Observe && len(more) > 0 {
		tree := deed{tools: []string{"git.*"}, kinds: more}
		g.patterns(&tree, o, class)
		return []deed{d, tree}
	}
	return []deed{d}
}

// gitOperations returns what "git operations" and "read-only git operations
// (status, diff)" mean.
func (g *grounder) gitOperations(o *object, class string) []deed {
	if len(o.names) > 0 {
		var all []deed
		for _, n := range o.names {
			n.text = strings.ReplaceAll(n.text, "_", "-")
			if _, ok := gitOps[n.text]; !ok {
				g.fail(o.at, "status, diff, log, show, blame, add, commit, branch, push …", "%q is not an operation of git", n.text)
				return nil
			}
			all = append(all, g.operation(verbUse{at: o.at, sense: n.text, op: n.text}, &object{at: o.at, end: o.end, mods: o.mods})...)
		}
		return all
	}
	d := deed{rest: o.rest, byKind: o.rest}
	remote, local := slices.Contains(o.quals, "remote"), slices.Contains(o.quals, "local")
	switch network := slices.Contains(o.quals, "network"); {
	case class == "op" && network, class == "op" && remote && !slices.Contains(o.quals, "git"):
		d.kinds, d.groups = ordered(append(inGroup(act.RemoteGroup), act.Call)), []act.Group{act.RemoteGroup}
	case remote:
		d.kinds = ofType(act.Remote)
	case local:
		d.kinds = ofType(act.Repo)
	default:
		d.kinds = ofType(act.Repo, act.Remote)
	}
	g.patterns(&d, o, class)
	return []deed{d}
}

// operation returns what one operation of git means.
func (g *grounder) operation(v verbUse, o *object) []deed {
	op := gitOps[v.op]
	d := deed{kinds: op.kinds}
	if !op.whole {
		d.tools = []string{"git.git_" + strings.ReplaceAll(v.op, "-", "_")}
		if g.wide {
			d.kinds = nil
		}
		if v.hard {
			d.when = []policy.Condition{{Fact: "arg:/mode", Op: "==", Value: "hard"}}
		}
	} else if s, ok := senses()[v.op]["-"]; ok && g.wide {
		d.kinds = s.wide
	}
	if v.op == "fetch" {
		d.kinds = []act.Kind{act.GitFetch}
	}
	if d.kinds == nil {
		if len(o.mods) > 0 || len(o.names) > 0 {
			d.kinds = ofType(act.Repo, act.Path)
		}
	}
	if len(d.kinds) > 0 {
		g.patterns(&d, o, "-")
	}
	return []deed{d}
}

// tools returns what "the tools memory.* and everything.echo" means: every
// effect of these tools.
func (g *grounder) tools(o *object) []deed {
	names := g.toolNames(o)
	if len(names) == 0 && len(o.mods) == 1 && !o.mods[0].not { // "the tools of the github server"
		for i := range o.mods[0].objects {
			if of := &o.mods[0].objects[i]; of.class == "tool" {
				names = append(names, g.toolNames(of)...)
			}
		}
		if len(names) > 0 {
			return []deed{{tools: names}}
		}
	}
	if len(names) == 0 {
		if len(o.mods) > 0 {
			g.fail(o.mods[0].at, "the tools memory.*", "name tools as server.tool or server.*")
			return nil
		}
		d := deed{kinds: []act.Kind{act.Call}, rest: o.rest, byKind: o.rest}
		if g.wide && o.rest {
			d.kinds = nil // "never use any other tool" is about all that it could do
		}
		return []deed{d}
	}
	d := deed{tools: names}
	for _, m := range o.mods {
		g.fail(m.at, "", "%q says nothing about tools", g.text(m.at, m.end))
	}
	return []deed{d}
}

func (g *grounder) toolNames(o *object) []string {
	var names []string
	for _, n := range o.names {
		if !toolName(n.text) {
			g.fail(o.at, "memory.* or everything.echo", "%q is not a tool: write server.tool, or server.*", n.text)
			return nil
		}
		names = append(names, n.text)
	}
	return names
}
