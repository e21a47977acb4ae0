package constitution

import "strings"

// An action is one verb phrase, or a noun phrase that implies a verb.
type action struct {
	at, end int
	verbs   []verbUse
	objects []object
	mods    []mod // places and hosts of verbs without an object
	cond    conditions
}

// A verbUse is one verb of an action.
type verbUse struct {
	at    int
	sense string
	op    string // the operation of git, when it is one
	hard  bool   // reset --hard
}

var accessPhrases = map[string][]string{
	"read": {"read"}, "read-only": {"read"}, "readonly": {"read"}, "write": {"write"}, "read-write": {"read", "write"},
	"full": {"do"}, "complete": {"do"}, "unrestricted": {"do"},
}

// actions reads verb phrases joined by "and" and "or", up to what no verb phrase
// can hold.
func (p *parser) actions() ([]action, bool) {
	var all []action
	for {
		start := p.i
		if len(all) > 0 && (!p.joint() || p.startsFrame()) {
			p.i = start
			break
		}
		p.skip(fillers)
		p.accept("to")
		p.skip(fillers)
		a, ok := p.action()
		if !ok {
			p.i = start
			break
		}
		all = append(all, a)
	}
	return all, len(all) > 0
}

func (p *parser) action() (action, bool) {
	a := action{at: p.i}
	p.verbs(&a)
	verb := ""
	if len(a.verbs) > 0 {
		verb = a.verbs[len(a.verbs)-1].sense
	}
	p.verb = verb
	p.most(&a)
	p.objects(&a, verb)
	if len(a.verbs) == 0 && len(a.objects) == 0 {
		p.i = a.at
		return a, p.miss(p.i)
	}
	p.tail(&a, verb)
	if a.cond.most > 0 {
		p.i = a.at
		return a, p.wrong(a.cond.mostAt, "at most 20 times an hour", "a limit needs a span of time: an hour, a day, a session")
	}
	a.end = p.i
	return a, true
}

// most reads "at most 20" before a noun: the span of time comes after it.
func (p *parser) most(a *action) {
	start := p.i
	if p.peek().is("more-than") {
		p.wrong(p.i, "may … at most 20 times an hour", "a limit belongs to what is allowed")
		return
	}
	if len(a.verbs) == 0 || !p.accept("at-most") {
		p.i = start
		return
	}
	if p.peekAt(1).kind == number {
		p.accept("a") // "at most a hundred"
	}
	n := p.peek().n
	if p.peek().kind != number || n < 1 {
		p.i = start
		return
	}
	p.i++
	if _, noun := words().nouns[p.peek().low]; !noun && qualWords[p.peek().low] == "" {
		p.i = start
		return
	}
	a.cond.most, a.cond.mostAt = n, start
}

// verbs reads verbs joined by "and" and "or": "create, edit and delete".
func (p *parser) verbs(a *action) {
	if p.accessTo(a) {
		return
	}
	git := false
	for {
		start := p.i
		if len(a.verbs) > 0 && (!p.joint() || p.startsFrame()) {
			p.i = start
			return
		}
		p.skip(fillers)
		if len(a.verbs) > 0 {
			p.accept("to")
		} else if n := p.skipTo(determiners); n > 0 && p.peekAt(n).is("git") {
			p.i += n
			if !p.gitAhead() {
				p.i -= n
			}
		} else if words().verbs[p.peekAt(n).low].sense != "" && p.nominalAt(n) {
			p.i += n
		}
		if p.gitWord() {
			git = true
		}
		v, ok := p.oneVerb(git, len(a.verbs) > 0)
		if !ok {
			p.i = start
			return
		}
		if len(a.verbs) == 0 && contains(" use run do call ", v.sense) && p.gitAhead() { // "use git status"
			p.gitWord()
			git = true
			if v, ok = p.oneVerb(git, false); !ok {
				p.i = start
				return
			}
		}
		a.verbs = append(a.verbs, v)
	}
}

// accessTo reads "read access to", "full access to".
func (p *parser) accessTo(a *action) bool {
	start := p.i
	p.skip(determiners)
	senses, ok := accessPhrases[p.peek().low]
	if !ok || !p.peekAt(1).is("access") {
		p.i = start
		return false
	}
	p.i += 2
	p.accept("to", "in", "of")
	for _, s := range senses {
		a.verbs = append(a.verbs, verbUse{at: start, sense: s})
	}
	return true
}

// oneVerb reads one verb, or, after the word git, one operation of git.
func (p *parser) oneVerb(git, later bool) (verbUse, bool) {
	t := p.peek()
	v := verbUse{at: p.i}
	entry, known := words().verbs[t.low]
	op := t.low
	if known {
		op = entry.sense
	}
	if git {
		if _, ok := gitOps[t.low]; ok {
			op = t.low
		}
		if _, ok := gitOps[op]; ok {
			v.sense, v.op = op, op
			p.i++
			return v, p.flags(&v)
		}
		if op == "force-push" || op == "rewrite" || op == "amend" {
			v.sense = op
			p.i++
			return v, true
		}
		return v, p.miss(p.i)
	}
	if !known || t.group != 0 || isMethod(t.text) && words().nouns[p.peekAt(1).low] == "request" {
		return v, p.miss(p.i)
	}
	if later && p.isProgramHere(t) {
		return v, false
	}
	v.sense = entry.sense
	if v.sense == "stage" {
		v.sense, v.op = "add", "add"
	}
	if o, ok := gitOps[v.sense]; ok && !o.whole && v.sense != "add" {
		v.op = v.sense
	}
	p.i++
	if p.peek().is("out") || p.peek().is("off") {
		p.miss(p.i)
	}
	return v, true
}

// skipTo returns how many words of the table stand here.
func (p *parser) skipTo(table string) int {
	n := 0
	for p.peekAt(n).group == 0 && contains(table, p.peekAt(n).low) {
		n++
	}
	return n
}

// nominalAt reports whether the verb n words ahead is used as a noun: "every
// push", "the deletion of files".
func (p *parser) nominalAt(n int) bool {
	t := p.peekAt(n)
	_, noun := words().nouns[t.low]
	form := words().verbs[t.low].form
	if next := p.peekAt(n + 1); n > 0 && next.is("of") {
		return true
	} else if n > 0 && (t.low == "change" || t.low == "changes") && (next.is("to") || next.is("of")) {
		return true
	}
	return n > 0 && !noun && (form == nominal || form == plain && contains(" push pull merge rebase force-push reset ", t.low))
}

// gitWord moves over the word git, in a code span too.
func (p *parser) gitWord() bool {
	if p.peek().low == "git" && (p.peek().group == 0 || p.peekAt(1).group == p.peek().group) {
		p.i++
		return true
	}
	return p.miss(p.i)
}

// gitAhead reports whether the word git and an operation of git follow.
func (p *parser) gitAhead() bool {
	t := p.peekAt(1)
	_, op := gitOps[t.low]
	v, verb := words().verbs[t.low]
	if verb {
		_, verb = gitOps[v.sense]
	}
	return p.peek().low == "git" && (op || verb || t.low == "force-push")
}

// flags reads the flags of an operation of git that change what it does:
// "push --force", "reset --hard".
func (p *parser) flags(v *verbUse) bool {
	t := p.peek()
	if !strings.HasPrefix(t.text, "-") || t.kind != atom {
		return true
	}
	switch {
	case v.op == "push" && (t.text == "--force" || t.text == "-f" || t.text == "--force-with-lease"):
		v.sense, v.op = "force-push", ""
	case v.op == "reset" && t.text == "--hard":
		v.hard = true
	default:
		return p.wrong(p.i, "leave the flag out", "the flag %s is not understood", t.text)
	}
	p.i++
	return true
}

// isProgramHere reports whether a word that is also a verb is a program in this
// place: nothing that it could be done to follows.
func (p *parser) isProgramHere(t token) bool {
	return contains(programWords, t.low) && t.low != "find" && !p.startsVerb()
}

// objects reads what is done to: noun phrases joined by "and" and "or".
func (p *parser) objects(a *action, verb string) {
	if len(a.verbs) > 0 {
		p.skip(fillers)
		entry := words().verbs[p.toks[p.i-1].low]
		_, bare := senses()[verb]["-"]
		if p.peek().is("of") || p.peek().is("to") && !bare && (entry.form == nominal || p.toks[p.i-1].low == "change" || verb == "write" || verb == "append" || verb == "access" || verb == "contact") {
			p.i++
		}
		if t := p.peek(); (t.is("operation") || t.is("operations")) && entry.form == plain && !contains(" use do run call ", verb) {
			p.i++ // "delete operations outside …"
		}
		p.accept("with", "into")
		if prev := p.toks[p.i-1]; prev.is("with") && verb != "contact" || prev.is("into") {
			p.i--
		}
	}
	if verb == "ask" && p.questions(a) {
		return
	}
	for {
		start := p.i
		if len(a.objects) > 0 && (!p.joint() || p.startsVerb() && !p.isProgramHere(p.peek()) || p.startsFrame() || p.gitVerbFor(verb)) {
			p.i = start
			return
		}
		o, ok := p.object(verb, 0)
		if !ok {
			p.i = start
			return
		}
		a.objects = append(a.objects, o)
	}
}

// gitVerbFor reports whether the next word is a verb of git and not something
// that can be done to: "use read-only git operations and commit".
func (p *parser) gitVerbFor(verb string) bool {
	t := p.peek()
	e, ok := words().verbs[t.low]
	if !ok || t.group != 0 || !barely(e.sense) || verb == "" {
		return false
	}
	_, fits := senses()[verb][words().nouns[t.low]]
	return !fits
}

// questions reads whom the agent asks, and what: "ask the user questions".
func (p *parser) questions(a *action) bool {
	start := p.i
	who := p.approvers(nil)
	what := p.accept("for") && p.accept("help", "clarification", "input", "advice", "details")
	if !what {
		what = p.accept("questions", "clarification", "anything")
	}
	if who || what {
		a.objects = []object{{at: start, end: p.i, class: "question"}}
	}
	return who || what
}

// tail reads everything that may follow the objects, in any order.
func (p *parser) tail(a *action, verb string) {
	for p.more() {
		start := p.i
		if next := p.peekAt(1); p.peek().is("directly") && contains(" in under beneath inside within ", next.low) {
			p.wrong(p.i, "leave \"directly\" out", "a place is what is in it and everything beneath")
			return
		}
		p.accept(barrier)
		p.skip(fillers)
		if p.condition(&a.cond) {
			continue
		}
		only := p.accept("only")
		if m, ok := p.mod(verb, 0); ok {
			if only {
				a.cond.only, a.cond.onlyAt = true, start
			}
			p.attach(a, m)
			continue
		}
		if len(a.objects) > 0 && !only {
			before := a.objects[len(a.objects)-1]
			p.relative(&before)
			p.parenthesis(&before)
			if p.i > start {
				a.objects[len(a.objects)-1] = before
				continue
			}
		}
		if p.accept("(") {
			if p.inParentheses(a) {
				continue
			}
		}
		p.i = start
		return
	}
}

// attach adds a place to the last object, or to the verb if there is none.
func (p *parser) attach(a *action, m mod) {
	if n := len(a.objects); n > 0 {
		a.objects[n-1].mods = append(a.objects[n-1].mods, m)
		a.objects[n-1].end = p.i
		return
	}
	a.mods = append(a.mods, m)
}

// inParentheses reads a condition or reason in parentheses.
func (p *parser) inParentheses(a *action) bool {
	for p.more() && !p.peek().is(")") {
		if !p.condition(&a.cond) {
			return false
		}
		p.accept(",", "and")
	}
	return p.accept(")")
}
