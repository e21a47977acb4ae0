package constitution

import (
	"slices"
	"strings"

	"ringfence/internal/policy"
)

// headers are headings and introductions that say by themselves what holds for
// the sentences beneath them.
var headers = []struct {
	phrases  func() []phrase
	modality policy.Modality
}{
	{table(`
always? allowed|permitted|ok|okay|fine|free
allowed without <approval>
without <approval>
<approval> is|are? not needed|required
no <approval> is? needed|required|necessary
permissions|granted
allow
`), policy.May},
	{table(`
never
do not
forbidden|prohibited|denied|disallowed|off-limits|blocked
not allowed|permitted
never allowed|permitted
must never|not
deny|forbid
`), policy.MustNever},
	{table(`
need|needs|require|requires <approval>
<approval> is? needed|required|necessary
with <approval>
allowed with <approval>
only? after|with <approval>
ask|asks
`), policy.MayWithApproval},
	{table(`
always? ask <who>? first|before?
must|should always? ask <who>? first|before?
check with <who> first?
always needs|requires <approval>
ask for <approval>
ask before
`), policy.MustAsk},
	{table(`
advice
guidance
guidelines
style
tone
conventions
preferences
advice|guidance|notes|guidelines for the|any|all? agent|agents
how to? behave|work
coding|code style
good? practice|practices|manners
`), policy.Advice},
}

// headerOf returns the modality that toks give to what stands beneath them.
func (c *compiler) headerOf(toks []token) policy.Modality {
	if len(toks) == 0 {
		return ""
	}
	for _, h := range headers {
		p := &parser{toks: toks, known: c.known}
		p.skip(" the ")
		if p.matchAny(h.phrases(), nil) && !p.more() {
			return h.modality
		}
	}
	return ""
}

// unit compiles one sentence.
func (c *compiler) unit(u unit) {
	for _, part := range semicolons(u.toks) {
		c.part(u, part)
	}
}

func semicolons(toks []token) [][]token {
	var parts [][]token
	from := 0
	for i, t := range toks {
		if t.is(";") {
			if i > from {
				parts = append(parts, toks[from:i])
			}
			from = i + 1
		}
	}
	if from < len(toks) {
		parts = append(parts, toks[from:])
	}
	return parts
}

// part compiles a sentence, or what stands between two semicolons.
func (c *compiler) part(u unit, toks []token) {
	if c.definition(toks) {
		return
	}
	var intro []token
	above := policy.Modality("")
	for _, in := range u.intros {
		if h := c.headerOf(in); h != "" {
			above, intro = h, nil
		} else if !isTitle(in) {
			intro = append(slices.Clone(intro), in...)
		}
	}
	if above == "" && len(intro) == 0 {
		above = c.headerOf(u.heading)
	}
	if above == "" && len(intro) == 0 && u.heading != nil && c.isContext(u.heading) {
		intro = u.heading
	}
	c.known.work = 0
	if u.first && &toks[0] == &u.toks[0] {
		c.known = &surroundings{}
	}
	if len(toks) > maxTokens {
		c.fail(toks[0].at, "", "the sentence has more than %d words: write several, or a list", maxTokens)
		return
	}
	whole, lead := compose(intro, toks)
	var first *miss
	if len(intro) > 0 && !u.first {
		if statements, m := c.statements(toks, ruleFrom(above)); m == nil {
			c.add(statements, u, toks, nil)
			return
		}
	}
	if len(intro) > 0 {
		statements, m := c.statements(whole, ruleFrom(above))
		if m == nil {
			c.add(statements, u, toks, intro)
			return
		}
		first = m
	}
	statements, m := c.statements(toks, ruleFrom(above))
	switch {
	case m == nil && len(intro) == 0:
		c.add(statements, u, toks, nil)
		return
	case m == nil:
		c.fail(toks[0].at, "", "the sentence says for itself what holds, and so does %q above it: move it out of the list", textOf(intro))
		return
	case first != nil && m != nil:
		m = first
	}
	if c.advice(u, toks, above) {
		return
	}
	if lead && m.at < toks[0].at {
		c.fail(m.at, m.hint, "%s", c.explain(m, whole))
		return
	}
	c.notUnderstood(m, whole)
}

func ruleFrom(above policy.Modality) policy.Modality {
	if above == policy.Advice {
		return ""
	}
	return above
}

// isTitle reports whether an introduction says nothing: "Rules:", "Git:".
func isTitle(toks []token) bool {
	return !slices.ContainsFunc(toks, func(t token) bool { return t.group != 0 || !contains(titleWords, t.low) })
}

// isContext reports whether a heading says when or for whom the sentences
// beneath it hold, so that leaving it out would change them.
func (c *compiler) isContext(toks []token) bool {
	if isTitle(toks) {
		return false
	}
	p := &parser{toks: toks, known: c.known}
	var cond conditions
	if p.condition(&cond) && !p.more() {
		return true
	}
	p.i = 0
	if _, ok := p.mod("", 0); ok && !p.more() {
		return true
	}
	p.i = 0
	s := &statement{}
	for _, f := range []func() []phrase{mayFrames, neverFrames, askFrames, onlyFrames} {
		p.i = 0
		p.subject()
		if p.matchAny(f(), nil) && !p.more() {
			return true
		}
	}
	_ = s
	return contains(" if when while unless after before until during except outside ", toks[0].low)
}

// compose puts a sentence in its place under its introductions: in place of "the
// following …", or after them. Lead reports whether the introduction comes first.
func compose(intro, toks []token) (whole []token, lead bool) {
	if len(intro) == 0 {
		return toks, false
	}
	p := &parser{toks: intro, known: &surroundings{}}
	for i := range intro {
		p.i = i
		if !p.matchAny(placeholders(), nil) {
			continue
		}
		if _, noun := words().nouns[p.peek().low]; noun || p.peek().is("things") {
			p.i++
		}
		from := i
		if from > 0 && contains(" do perform take doing ", intro[from-1].low) {
			from--
		}
		whole = append(slices.Clone(intro[:from]), toks...)
		return append(whole, intro[p.i:]...), true
	}
	whole = slices.Clone(intro)
	if needsComma(intro) {
		whole = append(whole, token{kind: punct, text: ",", low: ",", at: toks[0].at})
	}
	return append(whole, toks...), true
}

var placeholders = table(`
any|all|each|one of the|these following?
the following
the|these things|actions|operations below
these
any|all of the|these following|things|actions|operations
`)

// needsComma reports whether an introduction is a place or condition, which a
// comma sets off from the sentence.
func needsComma(intro []token) bool {
	p := &parser{toks: intro, known: &surroundings{}}
	var cond conditions
	if p.condition(&cond) && !p.more() {
		return true
	}
	p.i = 0
	_, ok := p.mod("", 0)
	return ok && !p.more()
}

// maxParts bounds how many statements one sentence may hold.
const maxParts = 16

// statements reads a sentence as one statement, or as several that are joined.
func (c *compiler) statements(toks []token, above policy.Modality) ([]statement, *miss) {
	p := &parser{toks: toks, known: c.known}
	s, ok := p.statement(above)
	if ok {
		return []statement{s}, nil
	}
	first := p.err().(*miss)
	for i := 1; i < len(toks)-1; i++ {
		if !splitsAt(toks, i) {
			continue
		}
		left := &parser{toks: toks[:i], known: c.known}
		s, ok := left.statement(above)
		if !ok {
			continue
		}
		rest, m := c.more(toks[i:], above, &s)
		if m == nil && len(rest) < maxParts {
			return append([]statement{s}, rest...), nil
		}
		if m != nil && m.at > first.at {
			first = m
		}
		break
	}
	return nil, first
}

// splitsAt reports whether a new statement may begin with the joint at i.
func splitsAt(toks []token, i int) bool {
	t := toks[i]
	return t.group == 0 && (t.is(",") || t.is("and") || t.is("but") || t.is("or") || t.is("—") || t.is(":"))
}

// more reads the statements after the first one of a sentence.
func (c *compiler) more(toks []token, above policy.Modality, before *statement) ([]statement, *miss) {
	i := 0
	for i < len(toks) && (toks[i].kind == punct || contains(" and but or however so then ", toks[i].low)) && toks[i].group == 0 {
		i++
	}
	if i == len(toks) {
		return nil, &miss{at: toks[0].at, why: "the sentence breaks off"}
	}
	outer := c.known
	c.known = &surroundings{inside: true, work: outer.work}
	if n := len(before.actions); n > 0 {
		c.known.last = before.actions[n-1].objects
	}
	rest, m := c.statements(toks[i:], "")
	outer.work, c.known = c.known.work, outer
	if m == nil && rest[0].modal && len(rest[0].who) == 0 && !startsWithSubject(rest[0].toks) {
		rest[0].who = before.who
	}
	return rest, m
}

func startsWithSubject(toks []token) bool {
	p := &parser{toks: toks, known: &surroundings{}}
	_, _, ok := p.subject()
	return ok && !toks[0].is("it") && !toks[0].is("they")
}

// add turns statements into drafts.
func (c *compiler) add(statements []statement, u unit, toks, intro []token) {
	for i := range statements {
		s := &statements[i]
		if m := c.apart(s); m != nil {
			c.fail(m.at, m.hint, "%s", m.why)
			return
		}
		drafts, m := c.clausesOf(s)
		if m != nil {
			c.fail(m.at, m.hint, "%s", m.why)
			return
		}
		at, text := s.toks[0].at, textOf(s.toks)
		if len(intro) > 0 {
			at = toks[0].at
		}
		for j := range drafts {
			d := &drafts[j]
			if d.ID == "" {
				if j == 0 || drafts[j-1].Modality != d.Modality {
					c.ordinal++
				}
				d.ID = "c" + itoa(c.ordinal)
			}
			d.Line, d.Column = c.position(at)
			d.Text = text
			d.at = at
			c.drafts = append(c.drafts, *d)
		}
		c.personas(s)
		if n := len(s.actions); n > 0 && len(s.actions[n-1].objects) > 0 {
			c.known = &surroundings{last: s.actions[n-1].objects}
		}
	}
}

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
	lists := map[string]policy.List{}
	for k, v := range c.opts.Lists {
		lists[k] = v
	}
	lists[name] = l
	c.opts.Lists = lists
	return true
}
