package constitution

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
	p.objects(&a, verb)
	if len(a.verbs) == 0 && len(a.objects) == 0 {
		p.i = a.at
		return a, p.miss(p.i)
	}
	p.tail(&a, verb)
	a.end = p.i
	return a, true
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
		}
		if p.accept("git") {
			git = true
		}
		v, ok := p.verb(git, len(a.verbs) > 0)
		if !ok {
			p.i = start
			return
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

// verb reads one verb, or, after the word git, one operation of git.
func (p *parser) verb(git, later bool) (verbUse, bool) {
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
			return v, true
		}
		if op == "force-push" || op == "rewrite" || op == "amend" {
			v.sense = op
			p.i++
			return v, true
		}
		return v, p.miss(p.i)
	}
	if !known || t.group != 0 {
		return v, p.miss(p.i)
	}
	if later && p.isProgramHere(t) {
		return v, false
	}
	v.sense = entry.sense
	if o, ok := gitOps[v.sense]; ok && !o.whole && v.sense != "add" {
		v.op = v.sense
	}
	p.i++
	if p.peek().is("out") || p.peek().is("off") {
		p.miss(p.i)
	}
	return v, true
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
		if p.peek().is("of") || p.peek().is("to") && !bare && (entry.form == nominal || verb == "write" || verb == "append" || verb == "access" || verb == "contact") {
			p.i++
		}
		p.accept("with", "into")
		if prev := p.toks[p.i-1]; prev.is("with") && verb != "contact" || prev.is("into") {
			p.i--
		}
	}
	for {
		start := p.i
		if len(a.objects) > 0 && (!p.joint() || p.startsVerb() && !p.isProgramHere(p.peek()) || p.startsFrame()) {
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

// tail reads everything that may follow the objects, in any order.
func (p *parser) tail(a *action, verb string) {
	for p.more() {
		start := p.i
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
		p.skip(fillers)
		if p.more() && p.i > start && !p.joinsNext() {
			p.i = start
		}
		return
	}
}

func (p *parser) joinsNext() bool { t := p.peek(); return t.is(",") || t.is("and") || t.is("or") || t.at < 0 }

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
