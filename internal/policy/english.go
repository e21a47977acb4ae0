package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/act"
)

// English returns c as a sentence of the controlled English (docs/constitution.md)
// that means the same: what is enforced, for a person to compare with what was
// written. For parts that the grammar has no words for it names the kinds of
// effect and the facts themselves.
func English(c Clause) string {
	if c.Modality == Advice {
		return c.Text
	}
	var s string
	switch c.Rest {
	case RestAll:
		s = c.complement("everything else")
	case RestSame:
		s = c.complement("any other " + c.restNoun())
	default:
		s = c.sentence()
	}
	s += c.qualifications()
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// complement says what becomes of what is left over.
func (c Clause) complement(subject string) string {
	switch c.Modality {
	case May:
		return subject + " is allowed"
	case MustNever:
		return subject + " is forbidden"
	default:
		return subject + " needs approval" + c.approvers(" of ")
	}
}

// restNouns are the nouns of "any other …", by the type of resource.
var restNouns = map[act.ResourceType]string{
	act.Path: "file", act.Repo: "repository", act.Command: "program", act.Host: "site", act.URL: "site", act.Remote: "remote",
	act.Package: "package", act.Recipient: "person", act.Secret: "secret", act.Model: "model", act.Memory: "memory",
	act.Person: "person", act.Tool: "tool",
}

func (c Clause) restNoun() string {
	for _, e := range c.Except {
		if len(e.On) > 0 {
			return restNouns[e.On[0].Type]
		}
	}
	if len(c.Kinds) > 0 {
		return restNouns[c.Kinds[0].On()]
	}
	return "tool"
}

func (c Clause) sentence() string {
	who := "the agent"
	if len(c.Who) > 0 {
		who = join("the ", c.Who, " and ")
	}
	doing := c.actions()
	var base, gerund []string
	for _, a := range doing {
		base, gerund = append(base, a.base), append(gerund, a.gerund)
	}
	switch c.Modality {
	case May:
		return who + " may " + strings.Join(base, " and ")
	case MayWithApproval:
		if len(gerund) > 1 && len(c.Who) == 0 {
			return list(gerund) + " need approval" + c.approvers(" of ")
		}
		return who + " may " + strings.Join(base, " and ") + " with approval" + c.approvers(" of ")
	case MustNever:
		return who + " must never " + strings.Join(base, " or ")
	default:
		if c.Quorum != nil && len(c.Who) == 0 {
			return c.approvers("") + " must approve " + strings.Join(gerund, " or ")
		}
		return who + " must ask before " + strings.Join(gerund, " or ")
	}
}

// approvers says who must approve, after lead; "" if anyone may.
func (c Clause) approvers(lead string) string {
	if c.Quorum == nil {
		return ""
	}
	role := c.Quorum.Role
	if role == "" {
		role = "human"
	}
	if c.Quorum.Count > 1 {
		role += "s"
	}
	return fmt.Sprintf("%s%d %s", lead, c.Quorum.Count, role)
}

// An action is a verb phrase, as in "may …" and as in "before …".
type action struct{ base, gerund string }

// actions returns the verb phrases of the clause.
func (c Clause) actions() []action {
	if len(c.Tools) > 0 && len(c.Kinds) == 0 {
		return []action{toolAction(c.Tools)}
	}
	if names, ok := c.gitTools(); ok {
		if slices.Equal(names, []string{"branch"}) && slices.Equal(c.Kinds, []act.Kind{act.GitRewrite}) {
			return []action{verb("delete", "branches")}
		}
		return []action{verb("use", "git operations ("+strings.Join(names, ", ")+")")}
	}
	rest := slices.Clone(c.Kinds)
	var all []action
	for _, v := range verbs {
		if v.kinds[0] == act.Call && len(c.Groups) > 0 || len(c.On) > 0 && v.bare || !containsAll(rest, v.kinds) {
			continue
		}
		object, ok := c.object(v)
		if !ok {
			continue
		}
		all = append(all, verb(v.verb, object))
		rest = slices.DeleteFunc(rest, func(k act.Kind) bool { return slices.Contains(v.kinds, k) })
	}
	for _, g := range c.Groups {
		all = append(all, verb("use", c.groupTools(g)))
	}
	for _, k := range rest { // no verb means this kind alone, or not here
		if k != act.Call || len(c.Groups) == 0 {
			all = append(all, verb("do", strings.TrimSpace(string(k)+" "+c.where("", "at", k))))
		}
	}
	if len(all) == 0 {
		all = append(all, verb("do", cmp.Or(c.where("anything", "from", allKinds...), "anything")))
	}
	return all
}

var groupTools = map[act.Group]string{
	act.Observe: "tools that only read", act.Mutate: "tools that change something",
	act.Irreversible: "destructive tools", act.RemoteGroup: "remote tools",
}

// groupTools names the tools of a group, of those servers that the clause names.
func (c Clause) groupTools(g act.Group) string {
	if !c.ofServers() {
		return groupTools[g]
	}
	var servers []string
	for _, t := range c.Tools {
		servers = append(servers, strings.TrimSuffix(t, ".*")+" "+groupTools[g])
	}
	return list(servers)
}

// ofServers reports whether the clause is about calls of all tools of some
// servers.
func (c Clause) ofServers() bool {
	return len(c.Tools) > 0 && slices.Equal(c.Kinds, []act.Kind{act.Call}) &&
		!slices.ContainsFunc(c.Tools, func(t string) bool { return !strings.HasSuffix(t, ".*") })
}

func toolAction(tools []string) action { return verb("use", list(tools)) }

// gitTools returns the operations that the clause names, if they are all it is
// about.
func (c Clause) gitTools() (names []string, ok bool) {
	for _, t := range c.Tools {
		name, isGit := strings.CutPrefix(t, "git.git_")
		if !isGit {
			return nil, false
		}
		names = append(names, name)
	}
	return names, len(names) > 0 && len(c.On) == 0
}

// A verbRow is a verb with the kinds of effect that it means, most kinds first.
type verbRow struct {
	verb   string
	object string // what it is done to, before the places
	kinds  []act.Kind
	bare   bool   // only without named resources
	prep   string // before sites and people
}

var (
	readKinds   = []act.Kind{act.Read, act.List, act.Stat}
	writeKinds  = []act.Kind{act.Create, act.Overwrite, act.Append}
	fileKinds   = slices.Concat(readKinds, writeKinds, []act.Kind{act.Delete, act.Move})
	repoKinds   = []act.Kind{act.GitRead, act.GitCommit, act.GitBranch, act.GitRewrite}
	webKinds    = []act.Kind{act.Resolve, act.Connect, act.Fetch, act.Send}
	remoteKinds = []act.Kind{act.GitFetch, act.GitPush, act.GitForce}
)

var verbs = []verbRow{
	{"do", "anything", slices.Concat(fileKinds, repoKinds), false, ""},
	{"use", "the network", slices.Concat(webKinds, remoteKinds, []act.Kind{act.Install, act.Message}), true, ""},
	{"contact", "", slices.Concat(webKinds, remoteKinds), false, ""},
	{"contact", "", webKinds, false, ""},
	{"do", "anything that contacts a remote", remoteKinds, true, ""},
	{"do", "anything", fileKinds, false, ""},
	{"read", "anything", append(slices.Clone(readKinds), act.GitRead), true, ""},
	{"send", "anything", []act.Kind{act.Send, act.Message}, true, "to"},
	{"delete", "anything", []act.Kind{act.Delete}, true, ""},
	{"move", "anything", []act.Kind{act.Move}, true, ""},
	{"read", "files", readKinds, false, ""},
	{"list", "files", []act.Kind{act.List, act.Stat}, false, ""},
	{"write", "files", writeKinds, false, ""},
	{"create", "files", []act.Kind{act.Create}, false, ""},
	{"overwrite", "files", []act.Kind{act.Overwrite}, false, ""},
	{"append", "files", []act.Kind{act.Append}, false, ""},
	{"delete", "files", []act.Kind{act.Delete}, false, ""},
	{"move", "files", []act.Kind{act.Move}, false, ""},
	{"run", "", []act.Kind{act.Execute}, false, ""},
	{"fetch", "pages", []act.Kind{act.Fetch}, false, "from"},
	{"send", "requests", []act.Kind{act.Send}, false, "to"},
	{"resolve", "", []act.Kind{act.Resolve}, false, ""},
	{"install", "packages", []act.Kind{act.Install}, false, ""},
	{"use", "read-only git operations", []act.Kind{act.GitRead}, false, ""},
	{"commit", "", []act.Kind{act.GitCommit}, false, ""},
	{"create", "branches", []act.Kind{act.GitBranch}, false, ""},
	{"rewrite", "history", []act.Kind{act.GitRewrite}, false, ""},
	{"push", "", []act.Kind{act.GitPush, act.GitForce}, false, "to"},
	{"push", "", []act.Kind{act.GitPush}, false, "to"},
	{"force-push", "", []act.Kind{act.GitForce}, false, "to"},
	{"pull", "", []act.Kind{act.GitFetch}, false, "from"},
	{"send", "email", []act.Kind{act.Message}, false, "to"},
	{"use", "secrets", []act.Kind{act.UseSecret}, false, ""},
	{"use", "any model", []act.Kind{act.Infer}, false, ""},
	{"recall", "", []act.Kind{act.Recall}, false, ""},
	{"remember", "", []act.Kind{act.Remember}, false, ""},
	{"ask", "anyone", []act.Kind{act.Ask}, false, ""},
	{"use", "any tool", []act.Kind{act.Call}, true, ""},
}

func containsAll(kinds, want []act.Kind) bool {
	return !slices.ContainsFunc(want, func(k act.Kind) bool { return !slices.Contains(kinds, k) })
}

// verb returns the forms of a verb with its object.
func verb(base, object string) action {
	gerund := base
	switch {
	case base == "run":
		gerund = "running"
	case base == "commit":
		gerund = "committing"
	case strings.HasSuffix(base, "e"):
		gerund = base[:len(base)-1] + "ing"
	default:
		gerund += "ing"
	}
	if object != "" {
		object = " " + object
	}
	return action{base + object, gerund + object}
}

// object returns what a verb is done to; ok is false if the clause names
// resources, and none that the verb could be done to.
func (c Clause) object(v verbRow) (string, bool) {
	where := c.where(v.object, v.prep, v.kinds...)
	if where == "" && len(c.On) > 0 {
		return "", false
	}
	on := v.kinds[0].On()
	switch {
	case v.verb == "run" || v.verb == "contact" || v.verb == "resolve":
		if where == "" {
			where = "any " + restNouns[on]
		}
		return where, true
	case v.verb == "fetch" && where == "":
		return "pages from any site", true
	case where == "":
		return v.object, true
	}
	return where, true
}

// where returns the things that the clause names, of the types that kinds are on,
// "files in ./src and files named .env", "" for none.
func (c Clause) where(noun, prep string, kinds ...act.Kind) string {
	var types []act.ResourceType
	for _, k := range kinds {
		if !slices.Contains(types, k.On()) {
			types = append(types, k.On())
		}
	}
	return places(noun, prep, c.On, types)
}

// qualifications are conditions, exceptions, limit, end and reason.
func (c Clause) qualifications() string {
	var b strings.Builder
	if _, ok := c.gitTools(); len(c.Tools) > 0 && len(c.Kinds) > 0 && !ok && !c.ofServers() {
		b.WriteString(" with " + list(c.Tools))
	}
	b.WriteString(conditions(c.When))
	if c.Rest == "" {
		for i, e := range c.Except {
			b.WriteString(map[bool]string{true: " except ", false: " and "}[i == 0] + e.english())
		}
	}
	if c.Limit != nil {
		b.WriteString(c.Limit.english())
	}
	if c.Expires != nil {
		b.WriteString(" until " + lastDay(*c.Expires))
	}
	if c.Because != "" {
		b.WriteString(" because " + c.Because)
	}
	return b.String()
}

func (e Exception) english() string {
	var parts []string
	if len(e.Kinds) > 0 {
		inner := Clause{Kinds: e.Kinds, On: e.On}
		for _, a := range inner.actions() {
			parts = append(parts, a.gerund)
		}
	} else if len(e.On) > 0 {
		var types []act.ResourceType
		for _, p := range e.On {
			types = append(types, p.Type)
		}
		parts = append(parts, places("", "", e.On, types))
	}
	if len(e.Tools) > 0 {
		parts = append(parts, list(e.Tools))
	}
	return strings.TrimSpace(strings.Join(parts, " with ") + conditions(e.When))
}

var labelWords = map[any]string{
	string(act.LabelUntrusted): "reading a web page", string(act.LabelPrivate): "reading private data",
	string(act.LabelSecret): "reading a secret",
}

// conditions says what must hold besides.
func conditions(when []Condition) string {
	var b strings.Builder
	for i, c := range when {
		pointer, isArg := strings.CutPrefix(c.Fact, "arg:/")
		switch {
		case c.Fact == FactLabel && c.Op == "has":
			b.WriteString(" after " + labelWords[c.Value])
		case c.Fact == FactLabel:
			b.WriteString(" before " + labelWords[c.Value])
		case c.Fact == FactHour && c.Op == ">=" && i+1 < len(when) && when[i+1].Fact == FactHour && when[i+1].Op == "<":
			fmt.Fprintf(&b, " between %v and %v UTC", c.Value, when[i+1].Value)
		case c.Fact == FactHour && c.Op == "<" && i > 0 && when[i-1].Fact == FactHour && when[i-1].Op == ">=":
		case isArg && c.Op == "==" && c.Value == true:
			b.WriteString(" with " + pointer)
		case isArg && c.Op == "==":
			fmt.Fprintf(&b, " with %s set to %v", pointer, c.Value)
		case c.Fact == "resource:"+act.FactAgeHours && c.Op == ">=":
			fmt.Fprintf(&b, " that are at least %v hours old", c.Value)
		case c.Fact == "resource:"+act.FactAgeHours && c.Op == "<":
			fmt.Fprintf(&b, " younger than %v hours", c.Value)
		case c.Fact == "resource:"+act.FactResembles && c.Op == "!=" && c.Value == "":
			b.WriteString(joint(when[:i]) + " that resemble popular ones")
		case c.Fact == "resource:"+act.FactResembles && c.Op == "==" && c.Value == "":
			b.WriteString(joint(when[:i]) + " that do not resemble popular ones")
		case c.Value == nil:
			fmt.Fprintf(&b, " where it %s %s", c.Op, c.Fact)
		default:
			fmt.Fprintf(&b, " where %s %s %v", c.Fact, c.Op, c.Value)
		}
	}
	return b.String()
}

// joint joins a condition on a package with one before it.
func joint(before []Condition) string {
	if len(before) > 0 && before[len(before)-1].Fact == "resource:"+act.FactAgeHours {
		return " and"
	}
	return ""
}

var spans = []struct {
	length time.Duration
	name   string
}{{7 * 24 * time.Hour, "week"}, {24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}}

func (l Limit) english() string {
	s := " at most " + strconv.FormatInt(l.Count, 10) + " times"
	if l.Count == 1 {
		s = " at most once"
	}
	if l.Window == 0 {
		return s + " per session"
	}
	for _, span := range spans {
		if n := l.Window / span.length; n > 0 && l.Window%span.length == 0 {
			if n == 1 {
				return s + " per " + span.name
			}
			return fmt.Sprintf("%s in %d %ss", s, n, span.name)
		}
	}
	return s + " in " + l.Window.String()
}

// lastDay writes the end of a clause as the last day that it holds, or as the
// moment it ends.
func lastDay(t time.Time) string {
	if t = t.UTC(); t.Equal(t.Truncate(24 * time.Hour)) {
		return t.AddDate(0, 0, -1).Format(time.DateOnly)
	}
	return t.Format(time.RFC3339)
}
