package constitution

import (
	"slices"

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
	c.known.work = 0
	if u.first && &toks[0] == &u.toks[0] {
		c.known = &surroundings{}
	}
	if len(toks) > maxTokens {
		c.fail(toks[0].at, "", "the sentence has more than %d words: write several, or a list", maxTokens)
		return
	}
	intro, above := c.context(u)
	m := c.read(u, toks, intro, ruleFrom(above))
	if m == nil || c.advice(u, toks, above) {
		return
	}
	whole := compose(intro, toks)
	if m.at < toks[0].at { // the introduction is what is not understood
		c.fail(m.at, m.hint, "%s", c.explain(m, whole))
		return
	}
	c.notUnderstood(m, whole)
}

// context returns what is to be read before a sentence, and the modality it has
// if it says none itself.
func (c *compiler) context(u unit) (intro []token, above policy.Modality) {
	for _, in := range u.intros {
		if h := c.headerOf(in); h != "" {
			above, intro = h, nil
		} else if !isTitle(in) {
			intro = append(slices.Clone(intro), in...)
		}
	}
	if above == "" && len(intro) == 0 {
		above = c.headerOf(u.heading)
		if above == "" && u.heading != nil && c.isContext(u.heading) {
			intro = u.heading
		}
	}
	return intro, above
}

// read compiles a sentence beneath its introduction, or alone where it follows
// another in its item and can stand alone. The result says why neither could be.
func (c *compiler) read(u unit, toks, intro []token, above policy.Modality) *miss {
	alone, m := c.statements(toks, above)
	if len(intro) == 0 || m == nil && !u.first {
		if m == nil {
			c.add(alone, toks, nil)
		}
		return m
	}
	whole := compose(intro, toks)
	together, first := c.statements(whole, above)
	switch {
	case first == nil:
		c.add(together, toks, intro)
		return nil
	case m == nil && hasFrame(intro):
		c.fail(toks[0].at, "", "the sentence says for itself what holds, and so does %q above it: move it out of the list", textOf(intro))
		return nil
	case m == nil:
		c.fail(intro[0].at, "", "%q is not understood, and may change what stands beneath it", clip(textOf(intro)))
		return nil
	}
	return first
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
	for _, f := range []func() []phrase{mayFrames, neverFrames, askFrames, onlyFrames} {
		p.i = 0
		p.subject()
		if p.matchAny(f(), nil) && !p.more() {
			return true
		}
	}
	return contains(" for if when while unless after before until during except outside ", toks[0].low)
}

// compose puts a sentence in its place under its introductions: in place of "the
// following …", or after them.
func compose(intro, toks []token) []token {
	if len(intro) == 0 {
		return toks
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
		return slices.Concat(intro[:from], toks, intro[p.i:])
	}
	whole := slices.Clone(intro)
	if needsComma(intro) {
		whole = append(whole, token{kind: punct, text: ",", low: ",", at: toks[0].at})
	}
	return append(whole, toks...)
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
	if p.accept("for") {
		return true
	}
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
	first := p.err()
	for i := 1; i < len(toks)-1; i++ {
		if !splitsAt(toks, i) {
			continue
		}
		left := &parser{toks: toks[:i], known: c.known}
		s, ok := left.statement(above)
		if !ok {
			continue
		}
		rest, m := c.more(toks[i:], &s)
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
func (c *compiler) more(toks []token, before *statement) ([]statement, *miss) {
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
func (c *compiler) add(statements []statement, toks, intro []token) {
	for i := range statements {
		s := &statements[i]
		if m := c.apart(s); m != nil {
			c.fail(m.at, m.hint, "%s", m.why)
			return
		}
		drafts, m := c.clausesOf(s)
		if m == nil && len(drafts) == 0 {
			m = c.miss(s, 0, "", "this says nothing that could be enforced")
		}
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
