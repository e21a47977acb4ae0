package gate

import (
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/policy"
	"ringfence/internal/session"
)

// A yes can be for the session: for calls that ask for the same consent, by the same tool
// under the same policy, and do the same kinds of thing in one place that the person chose.
// Every such call is judged as any other; only the asking is left out. Nothing that cannot
// be undone is within such a yes, and nothing in a place of a class of its own, such as that
// of credentials; nor is what needs several people, or one of a role.

// A Scope is one way to say yes for the session, for people to choose from.
type Scope struct {
	Form string // one of the forms
	Text string // what is allowed
	Such string // an example of what is within; "" for ScopeExact
	Not  string // an example of what is not; "" for ScopeExact
	at   string
}

// The forms of a [Scope].
const (
	ScopeExact     = "exact"     // this very call, with these arguments
	ScopeDirectory = "directory" // what is in a directory, and not deeper
	ScopeSubtree   = "subtree"   // what is beneath a directory
	ScopeDomain    = "domain"    // one host and port, by one scheme
	ScopeTool      = "tool"      // a tool that touches nothing but itself, whatever its arguments
)

// scopes returns what a person can say yes to for the session, narrowest first; none where
// each call needs a yes of its own.
func (d *draft) scopes() []Scope {
	if !d.lasting() {
		return nil
	}
	all := []Scope{d.exact()}
	first := d.res.Effects[0]
	does := strings.Join(d.kinds(), ", ")
	if dir := base(first); d.all(ScopeSubtree, dir) {
		if d.all(ScopeDirectory, dir) {
			all = append(all, Scope{ScopeDirectory, does + " directly in " + dir, filepath.Join(dir, "another-file"), filepath.Join(dir, "deeper", "file"), dir})
		}
		all = append(all, d.subtree(does, dir))
	}
	if root := d.run.Session.Workspace; root != base(first) && d.all(ScopeSubtree, root) {
		all = append(all, d.subtree(does, root))
	}
	all = d.network(all, does)
	if d.all(ScopeTool, d.req.Tool) {
		all = append(all, Scope{ScopeTool, "calls of " + d.req.Tool + ", whatever their arguments", d.req.Tool + " with other arguments", "any other tool", d.req.Tool})
	}
	return all
}

func (d *draft) subtree(does, dir string) Scope {
	return Scope{ScopeSubtree, does + " anywhere beneath " + dir, filepath.Join(dir, "deeper", "file"), filepath.Join(filepath.Dir(dir), "elsewhere"), dir}
}

// lasting reports whether a yes to d can be for more than d.
func (d *draft) lasting() bool {
	own := func(a policy.Asked) bool {
		return a.Quorum.Count > 1 || a.Quorum.Role != "" || a.Clause == guardClause || a.Clause == grantRule || strings.HasPrefix(a.Clause, "bedrock.")
	}
	final := func(e act.Effect) bool {
		return e.Is(act.Irreversible) || e.Kind == act.UseSecret || e.Tree && e.Is(act.Mutate) || e.Resource.Facts[act.FactClass] != nil
	}
	return len(d.res.Effects) > 0 && !slices.ContainsFunc(d.judged.Ask, own) && !slices.ContainsFunc(d.res.Effects, final)
}

// kinds returns the kinds of the effects of d, each once.
func (d *draft) kinds() []string {
	var all []string
	for _, e := range d.res.Effects {
		all = appendNew(all, string(e.Kind))
	}
	return all
}

// all reports whether every effect of d is within the place of that form.
func (d *draft) all(form, at string) bool {
	return at != "" && !slices.ContainsFunc(d.res.Effects, func(e act.Effect) bool { return !d.in(form, at, e) })
}

func (d *draft) in(form, at string, e act.Effect) bool {
	switch form {
	case ScopeDirectory:
		return base(e) == at && !e.Tree && !d.wide(at)
	case ScopeSubtree:
		return base(e) != "" && beneath(base(e), at) && !d.wide(at)
	case ScopeDomain:
		return site(e) == at
	case ScopeRequest, ScopePath, ScopeSubdomains:
		return d.inNetwork(form, at, e)
	}
	return form == ScopeTool && e.Kind == act.Call && e.Resource.Text == at
}

// base is the directory that e is in, or is on; "" if e is not on a path.
func base(e act.Effect) string {
	switch {
	case e.Resource.Type != act.Path:
		return ""
	case e.Tree || e.Kind == act.List:
		return e.Resource.Text
	}
	return filepath.Dir(e.Resource.Text)
}

func beneath(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+string(filepath.Separator))
}

// wide reports whether dir holds too much to be a limit: the home, what that is in, or a
// directory at the top.
func (d *draft) wide(dir string) bool {
	up := filepath.Dir(dir)
	return up == dir || beneath(d.run.View.Home, dir) || filepath.Dir(up) == up && dir != d.run.Session.Workspace
}

// site is the host and port that e is on, with the scheme if it has one; "" for none.
func site(e act.Effect) string {
	if u, err := weburl.Parse(e.Resource.Text); e.Resource.Type == act.URL && err == nil {
		return u.Scheme + "://" + u.HostPort()
	}
	if e.Resource.Type == act.Host {
		return e.Resource.Text
	}
	return ""
}

// boundTo is what a yes for the session is good for besides its scope: the definition of the
// tool, what is started as its server, and the policy.
func (d *draft) boundTo() string {
	parts := []string{d.run.Policy.Hash()}
	if d.tool != nil {
		parts = append(parts, d.tool.server.Name, d.tool.server.Pin, d.tool.Pin)
	}
	return strings.Join(parts, "\x00")
}

// lasts leaves the asking out where a person has said yes for the session. What the policy
// then says holds.
func (d *draft) lasts(g *Gate) *refusal {
	if d.judged.Verdict != act.Escalate || !d.lasting() {
		return nil
	}
	for _, s := range d.run.Session.Scopes() {
		if !d.within(g, s) {
			continue
		}
		asked, had := d.judged, d.approved
		d.approved = append(slices.Clone(had), clauses(asked.Ask)...)
		if no := d.judge(g); no != nil {
			return no
		}
		if d.judged.Verdict == act.Allow {
			d.lasted = s.ID
			return nil
		}
		d.judged, d.approved = asked, had // something else must be asked: all of it is
	}
	return nil
}

// within reports whether d is what s is for.
func (d *draft) within(g *Gate, s session.Scope) bool {
	if s.Verb != d.req.Verb || s.Tool != d.req.Tool || s.Bound != d.boundTo() {
		return false
	}
	if slices.ContainsFunc(d.judged.Ask, func(a policy.Asked) bool { return !slices.Contains(s.Clauses, a.Clause) }) {
		return false
	}
	if s.Form == ScopeExact {
		return d.same(g) == s.Digest
	}
	return d.all(s.Form, s.Place) && !slices.ContainsFunc(d.kinds(), func(k string) bool { return !slices.Contains(s.Kinds, k) })
}

// keep counts the yes that d passes by, and puts one that a person has just given for the
// session in force.
func (d *draft) keep(g *Gate) *refusal {
	if d.lasted != "" && !d.run.Session.Use(d.lasted) {
		return refuse(act.CodeNoAnswer, "what a person allowed for this session was taken back meanwhile: call again to ask")
	}
	s := d.chosen()
	if s == nil {
		return nil
	}
	kept := d.run.Session.Keep(session.Scope{
		ID: d.answer.ID, Form: s.Form, Place: s.at, Text: s.Text, Verb: d.req.Verb, Tool: d.req.Tool, Bound: d.boundTo(),
		Clauses: clauses(d.judged.Ask), Kinds: d.kinds(), Digest: d.same(g),
	})
	if !kept {
		return refuse(act.CodeInternal, "%v", errTooManyGrants)
	}
	return nil
}

// chosen is the scope of the yes to d; nil if that was for d alone.
func (d *draft) chosen() *Scope {
	if d.answer == nil || !d.answer.Approved || d.answer.Scope < 1 || d.answer.Scope > len(d.choices) {
		return nil
	}
	return &d.choices[d.answer.Scope-1]
}

// unkeep takes back what [draft.keep] put in force, because that is not on record.
func (d *draft) unkeep() {
	if d.chosen() != nil {
		d.run.Session.Withdraw(d.answer.ID)
	}
}
