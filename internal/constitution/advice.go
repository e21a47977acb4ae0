package constitution

import (
	"maps"
	"slices"
	"strings"

	"ringfence/internal/policy"
)

// apart refuses a sentence of several actions of which only the last has a place
// or condition that could as well belong to all.
func (c *compiler) apart(s *statement) *miss {
	n := len(s.actions)
	if n < 2 || s.modality == policy.MustNever && s.actions[n-1].cond.empty() && len(lastMods(s.actions[n-1])) == 0 {
		return nil
	}
	last := s.actions[n-1]
	if !last.cond.empty() && last.cond.because == "" {
		for _, a := range s.actions[:n-1] {
			if a.cond.empty() {
				return c.miss(s, last.at, "write a sentence for each", "the condition may belong to %q alone or to %q too", textOf(s.words[last.at:last.end]), textOf(s.words[a.at:a.end]))
			}
		}
	}
	for _, m := range lastMods(last) {
		for _, a := range s.actions[:n-1] {
			if len(lastMods(a)) == 0 && takesPlace(a) && isPlace(m) && takesPlace(last) {
				return c.miss(s, m.at, "write a sentence for each", "%q may belong to %q alone or to %q too", textOf(s.words[m.at:m.end]), textOf(s.words[last.at:m.at]), textOf(s.words[a.at:a.end]))
			}
		}
	}
	return nil
}

func lastMods(a action) []mod {
	if len(a.objects) == 0 {
		return a.mods
	}
	return a.objects[len(a.objects)-1].mods
}

func isPlace(m mod) bool {
	return contains(" in under beneath below inside within outside ", m.prep)
}

// takesPlace reports whether an action is about files that it does not name.
func takesPlace(a action) bool {
	for _, o := range a.objects {
		if len(o.names) > 0 || o.root != "" {
			return false
		}
		if o.class == "file" || o.class == "folder" || o.class == "any" || o.class == "code" {
			return true
		}
	}
	if len(a.objects) == 0 && len(a.verbs) > 0 {
		_, file := senses()[a.verbs[0].sense]["file"]
		return file
	}
	return false
}

// personas checks the subjects of a statement.
func (c *compiler) personas(s *statement) {
	for _, who := range s.who {
		persona, _, _ := strings.Cut(who, "/")
		if c.opts.Personas != nil && !slices.Contains(c.opts.Personas, persona) {
			c.fail(s.toks[0].at, nearest(persona, c.opts.Personas), "there is no persona %q", persona)
		} else if near := nearest(persona, strings.Fields(agentWords)); near != "" && c.opts.Personas == nil {
			c.fail(s.toks[0].at, near, "%q is read as a persona", persona)
		}
	}
}

// adviceLeads begin sentences that no gate can enforce.
const adviceLeads = ` try prefer be keep consider remember explain think make ensure strive aim follow respect document comment format test
write use run work stay focus start begin note when always should must this the it you we please summarize report describe name choose read add
update avoid `

// softVerbs are verbs that more often tell the agent how to work than name an
// effect, when a sentence begins with them.
const softVerbs = " use run write read create add edit do commit search list open append make review comment "

// restrictions are words, beside the names of places, that make a sentence a rule: such a sentence is never
// taken for advice by itself.
const restrictions = ` not never no nor none nothing nobody only except unless without until forbidden prohibited allowed permitted denied may can
cannot approval permission consent ask asking outside limit at-most more-than restrict restricted block blocked deny refuse avoid off-limits need needs require requires
out away inside within off under beneath private confidential sensitive network internet approve approves approved asked agreed confirmed
read-only readonly destructive irreversible production public internal leave refrain
allow permit confirm confirmation secret secrets credentials `

var softLeads = table(`
try to?
prefer
please? be
avoid
keep|consider|remember|explain|think|ensure|strive|aim|follow|respect|document|comment|format|summarize|report|describe|stay|focus
make sure
this document|constitution|file|policy|page|section|list
you|the_agent|it|this|the_workspace|the_project|we works|work|belongs|contains|holds|uses
the? agent|agents|assistant|you|it? must|should|will|always
`)

// obligations begin sentences about what the agent has to do.
var obligations = table(`
the? agent|agents|assistant|you|it? must|should|will|always
`)

// descriptions say what something is, which is neither rule nor advice.
var descriptions = table(`
you|the_agent|it|this|the_workspace|the_project|we are|is a|an
the_workspace|the_project|the_repository|this_repository contains|holds|uses
the? agent|it|you works|work in|on|with
`)

// advice takes a sentence as advice, if it is that.
func (c *compiler) advice(u unit, toks []token, above policy.Modality) bool {
	said := above == policy.Advice || c.headerOf(u.heading) == policy.Advice
	if i := slices.IndexFunc(toks, func(t token) bool { return t.is(":") }); i == 1 && contains(" advice guidance hint tip note ", toks[0].low) {
		said = said || !toks[0].is("note")
	}
	if !said {
		p := &parser{toks: toks, known: c.known}
		p.skip(" please and but note : ")
		soft := p.peek().is("avoid") && possible(toks)
		document := p.match(parsePhrase("this document|constitution|file|policy|page|section|list"), nil)
		describes := p.matchAny(descriptions(), nil)
		if !soft && !document && !describes && (restricted(toks) || !p.matchAny(softLeads(), nil) && !c.imperative(toks)) {
			return false
		}
	}
	line, column := c.position(toks[0].at)
	d := draft{Clause: policy.Clause{ID: c.nextID(), Line: line, Column: column, Text: textOf(toks), Modality: policy.Advice}}
	c.drafts = append(c.drafts, d)
	severity, why := Info, "advice: shown to the agent, enforced by nothing"
	if p := (&parser{toks: toks, known: c.known}); !said && p.matchAny(obligations(), nil) {
		severity, why = Warning, "a duty to do something cannot be enforced: it is advice, shown to the agent"
	}
	c.report(severity, toks[0].at, d.ID, "%s", why)
	return true
}

// imperative reports whether a sentence tells the agent to do something that is
// not an effect: "use tabs for indentation". One that names an effect needs a
// modal word.
func (c *compiler) imperative(toks []token) bool {
	p := &parser{toks: toks, known: c.known}
	p.skip(" please and but also ")
	t := p.peek()
	e, verb := words().verbs[t.low]
	if t.group != 0 || !(verb && e.form == plain && contains(softVerbs, e.sense) || contains(adviceLeads, t.low)) {
		return false
	}
	if slices.ContainsFunc(toks, func(t token) bool { return contains(" must should shall will is are ", t.low) }) {
		return false
	}
	_, whole := p.statement(policy.May)
	return !whole
}

// possible reports whether a sentence ends in "where possible".
func possible(toks []token) bool {
	return slices.ContainsFunc(toks, func(t token) bool { return t.is("possible") || t.is("practical") || t.is("feasible") })
}

func restricted(toks []token) bool {
	return slices.ContainsFunc(toks, func(t token) bool {
		return t.group == 0 && contains(restrictions, t.low) || placeNouns[t.low] != "" || t.kind == list ||
			t.kind == atom && (looksPath(t.text) || looksHost(t.text) || toolName(t.text))
	})
}

// definition reads "@name: docs.python.org and pkg.go.dev" as the members of a
// list.
func (c *compiler) definition(toks []token) bool {
	if len(toks) < 3 || toks[0].kind != list || !(toks[1].is(":") || toks[1].is("is") || toks[1].is("are") || toks[1].is("means")) {
		return false
	}
	var members []string
	for _, t := range toks[2:] {
		switch {
		case t.kind == punct, t.is("and"), t.is("or"), t.is("the"), t.is("sites"), t.is("hosts"):
		case t.kind == atom, t.group != 0, t.low == "localhost":
			members = append(members, t.text)
		default:
			c.fail(t.at, "@docs-sites: docs.python.org, pkg.go.dev", "%q cannot be a member of a list", t.text)
			return true
		}
	}
	if c.opts.Lists == nil {
		c.opts.Lists = map[string]policy.List{}
	}
	name := toks[0].text[1:]
	l := c.opts.Lists[name]
	l.Members = append(slices.Clone(l.Members), members...)
	l.From = "constitution"
	lists := maps.Clone(c.opts.Lists)
	lists[name] = l
	c.opts.Lists = lists
	return true
}
