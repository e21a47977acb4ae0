package constitution

import (
	"strings"

	"ringfence/internal/act"
)

// names reads explicit names, joined by "and" and "or".
func (p *parser) names(o *object, verb string) {
	for {
		t := p.peek()
		if !p.isName(t, verb, o.class) {
			return
		}
		o.names = append(o.names, name{tok: t, text: t.text})
		p.i++
		p.skipTail(t.group)
		start := p.i
		if !p.joint() {
			return
		}
		p.skip(determiners)
		if next := p.peek(); !p.isName(next, verb, o.class) || p.startsVerb() {
			p.i = start
			return
		}
	}
}

// skipTail refuses what follows the first word of a code span or quotation.
func (p *parser) skipTail(group int) {
	if t := p.peek(); group == 0 && t.kind == atom && strings.HasPrefix(t.text, "-") {
		p.wrong(p.i, "name the program alone", "the arguments of programs are not looked at")
	}
	if group != 0 && p.peek().group == group {
		p.wrong(p.i, "name the program alone, or a path or pattern without spaces", "%q is more than a name: the arguments of programs are not looked at", p.peek().text)
	}
}

// isName reports whether t can be the name of something for this verb.
func (p *parser) isName(t token, verb, class string) bool {
	if t.at < 0 {
		return false
	}
	switch {
	case t.group != 0:
		return t.kind == word || t.kind == atom || t.kind == list || t.kind == number
	case t.kind == list:
		return true
	case t.kind == atom:
		return !strings.HasPrefix(t.text, "$") || strings.HasPrefix(t.text, "${")
	case t.kind != word:
		return false
	case t.low == "localhost":
		return true
	}
	switch {
	case class == "package", class == "secret", class == "model", class == "memory":
		return unmistakable(t.low)
	case (verb == "install" || verb == "add") && contains(registryWords, t.low):
		return true
	case verb == "push" || verb == "force-push" || class == "branch":
		return contains(branchWords, t.low) || class == "branch" && unmistakable(t.low)
	case contains(fileWords, t.low) && (verb != "run" && verb != "push" || class == "file"):
		return true
	case verb == "run" || class == "program" || verb == "use" && !known(t.low):
		return contains(programWords, t.low)
	}
	return false
}

// unmistakable reports whether a word can only be a name: it has a hyphen, and
// the grammar does not know it. An adverb after a noun is no name.
func unmistakable(w string) bool {
	return strings.Contains(w, "-") && !known(w) && !contains(grammarWords, w) && !contains(stopWords, w) && qualWords[w] == ""
}

// stopWords cannot be names of packages and branches without quotation marks.
const stopWords = ` in on at to of for by that which who older newer younger published if when while because so from with and or but except
unless until as is are be it they them not no only than this these those at-least at-most more-than via using first again about per once twice
every each starting ending named whose where whenever during between `

// startsVerb reports whether the next word begins another verb phrase: it is a
// verb, and what follows is not the end or a joint.
func (p *parser) startsVerb() bool {
	t := p.peek()
	if _, ok := words().verbs[t.low]; !ok || t.group != 0 {
		return false
	}
	next := p.peekAt(1)
	return next.at >= 0 && next.kind != punct && !next.is("and") && !next.is("or") && !p.namedNoun()
}

// namedNoun reports whether a noun with a name of its own stands here, which may
// look like a verb: "branches named agent/*".
func (p *parser) namedNoun() bool {
	t := p.peek()
	_, noun := words().nouns[t.low]
	return noun && t.group == 0 && contains(" named starting ending ", p.peekAt(1).low)
}

// relative reads what follows a noun and narrows it: "named .env", "ending in
// .pem", "that are at least two days old", "that only read".
func (p *parser) relative(o *object) {
	for p.more() {
		start := p.i
		found := true
		switch {
		case p.accept("named"):
			found = p.namesAfter(o, func(s string) string { return s })
		case p.accept("ending"):
			found = p.namesAfter(o, func(s string) string { return "*" + s })
		case p.accept("starting"):
			found = p.namesAfter(o, func(s string) string { return s + "*" })
		case p.test(o), len(o.tests) > 0 && p.accept("and") && p.test(o), p.grouping(o):
		case o.group == "" && o.class == "any" && !o.rest && contains(" observe irreversible mutate ", qualWords[p.peek().low]):
			o.group = act.Group(qualWords[p.peek().low])
			p.i++
		case o.group == "" && o.class == "any" && !o.rest && p.peek().is("remote"):
			o.group = act.RemoteGroup
			p.i++
		default:
			found = false
		}
		if !found {
			p.i = start
			return
		}
	}
}

func (p *parser) namesAfter(o *object, pattern func(string) string) bool {
	found := false
	for {
		t := p.peek()
		if t.at < 0 || t.kind == punct || t.kind == word && t.group == 0 && (known(t.low) || contains(stopWords, t.low) || contains(grammarWords, t.low)) {
			break
		}
		found = true
		o.names = append(o.names, name{tok: t, text: pattern(t.text), named: o.class != "branch" && o.class != "tag"})
		p.i++
		start := p.i
		if !p.joint() {
			return true
		}
		p.skip(determiners)
		next := p.peek()
		if next.group == 0 && next.kind != atom || next.at < 0 || p.startsVerb() {
			p.i = start
			return true
		}
	}
	return found || p.wrong(p.i, "files named .env", "a name should follow")
}

var ageLeads = table(`
that|which are|is|were? at-least
that|which have|has been published for? at-least
that|which were|was published at-least
published at-least
at-least
that|which are|is older than
older than
that|which are|is not younger|newer than
not younger|newer than
`)

var ageYoung = table(`
that|which are|is younger|newer than
younger|newer than
that|which are|is less than
published less than
published within the? last|past
`)

// ages reads the age of packages.
func (p *parser) ages(o *object) bool {
	start := p.i
	op := ">="
	if !p.matchAny(ageLeads(), nil) {
		if !p.matchAny(ageYoung(), nil) {
			return false
		}
		op = "<"
	}
	t := p.peek()
	if t.kind != number {
		p.miss(p.i)
		p.i = start
		return false
	}
	p.i++
	unit, ok := map[string]int64{"hour": 1, "hours": 1, "day": 24, "days": 24, "week": 168, "weeks": 168, "month": 720, "months": 720}[p.peek().low]
	if !ok {
		p.i = start
		return p.miss(p.i + 1)
	}
	p.i++
	p.accept("old", "ago", "of")
	p.accept("age")
	o.tests = append(o.tests, packageTest{fact: act.FactAgeHours, op: op, value: t.n * unit})
	return true
}

// test reads what is known of packages.
func (p *parser) test(o *object) bool { return p.ages(o) || p.resembling(o) }

var resembling = table(`
that|which resemble|imitate the? popular|well-known ones|packages
that|which resemble|imitate the? names of the? popular|well-known ones|packages
that|which look like the? popular|well-known ones|packages
whose names resemble|imitate those of the? popular|well-known ones|packages
`)

var unlike = table(`
that|which do not resemble|imitate the? popular|well-known ones|packages
that|which do not resemble|imitate the? names of the? popular|well-known ones|packages
that|which do not look like the? popular|well-known ones|packages
whose names do not resemble|imitate those of the? popular|well-known ones|packages
`)

// resembling reads that names of packages are nearly those of others.
func (p *parser) resembling(o *object) bool {
	op := "!="
	if !p.matchAny(resembling(), nil) {
		if !p.matchAny(unlike(), nil) {
			return false
		}
		op = "=="
	}
	o.tests = append(o.tests, packageTest{fact: act.FactResembles, op: op, value: ""})
	return true
}

// groupPhrases say in a clause of their own what group of effects is meant.
var groupPhrases = map[act.Group]func() []phrase{
	act.Observe: table(`
that|which only read|reads|observe|observes|look|view data|files|things|information?
that|which do|does not change|modify|write|alter|affect anything|files|data|state|things?
that|which are|is read-only
`),
	act.RemoteGroup: table(`
that|which contact|contacts|reach|reaches|touch|touches|use|uses|need|needs|access|accesses|require|requires the|a|any? network|internet|web access?
that|which contact|contacts|reach|reaches|touch|touches|access|accesses a|any|another? remote|other? site|server|host|service|machine|system|api|endpoint
that|which go|goes over|through|to the network|internet|web
that|which leave|leaves the|this|my machine|computer
that|which are|is remote
`),
	act.Mutate: table(`
that|which change|changes|modify|modifies|mutate|mutates|alter|alters|write|writes anything|something|files|data|state|things?
that|which are|is mutating
`),
	act.Irreversible: table(`
that|which delete|deletes|destroy|destroys|remove|removes anything|something|files|data|things?
that|which can not|never be undone|reversed|reverted|recovered
that|which are|is irreversible|destructive
`),
}

var gitRemote = table(`
that|which contact|contacts|reach|reaches|touch|touches|use|uses|access|accesses a|any|the? remote|remotes
`)

func (p *parser) grouping(o *object) bool {
	if o.group != "" {
		return false
	}
	for _, g := range []act.Group{act.Observe, act.RemoteGroup, act.Mutate, act.Irreversible} {
		if p.matchAny(groupPhrases[g](), nil) {
			o.group = g
			return true
		}
	}
	if p.matchAny(gitRemote(), nil) {
		o.group, o.gitOnly = act.RemoteGroup, true
		return true
	}
	return false
}

// parenthesis reads what refines a noun in parentheses: "(status, diff, log)".
// Examples ("e.g. …") are read and say nothing.
func (p *parser) parenthesis(o *object) {
	start := p.i
	var example bool
	switch {
	case p.accept("("):
		example = p.accept("e.g.", "like") || p.match(parsePhrase("for example|instance"), nil) || p.match(parsePhrase("such as"), nil)
		p.accept(",")
	case p.match(parsePhrase("such as"), nil), p.accept("like"), p.match(parsePhrase("for example|instance"), nil):
		example = true
	case p.accept("including"):
		example = len(o.names) == 0
	default:
		return
	}
	example = example && o.class != "credential" && o.class != "secret"
	inside := p.toks[start].is("(")
	p.accept("i.e.", "namely", "including", ":")
	if inside {
		p.accept("only")
	}
	from, before := p.i, len(o.names)
	for p.more() && !p.peek().is(")") {
		t := p.peek()
		if _, op := gitOps[strings.ReplaceAll(t.low, "_", "-")]; (op || t.is("git")) && (o.class == "git" || o.class == "op") {
			if !t.is("git") {
				o.names = append(o.names, name{tok: t, text: t.low})
			}
			p.i++
		} else if p.isName(t, "", o.class) {
			o.names = append(o.names, name{tok: t, text: t.text})
			p.i++
			if words().nouns[p.peek().low] == "file" {
				p.i++
			}
		} else if !p.joint() {
			break
		}
		if !inside && !p.peek().is(",") && !p.peek().is("and") && !p.peek().is("or") && !p.peek().is("git") {
			break
		}
	}
	if p.i == from || inside && !p.accept(")") {
		p.i, o.names = start, o.names[:before]
		return
	}
	if example {
		o.names, o.example = o.names[:before], p.toks[start].text
	}
}
