package constitution

import (
	"slices"

	"ringfence/internal/act"
)

// An object is a noun phrase: what is done to, or where.
type object struct {
	at, end int    // tokens
	class   string // of the noun, see [nounWords]; "" when only names are given
	rest    bool   // "any other …"
	quals   []string
	whose   string    // "my", "those": which are meant is not said
	example string    // "such as": the first word of examples that were left out
	group   act.Group // "destructive", "that only read"
	gitOnly bool      // the group is about git
	names   []name
	either  []name // names that are alternatives of kind of file: "Python files"
	mods    []mod
	tests   []packageTest
	root    string // "${workspace}" when the noun is the place itself
}

// A name is an explicit resource: a path, host, tool, branch or pattern.
type name struct {
	tok   token
	text  string // the pattern: "*.pem" for "files ending in .pem"
	named bool   // introduced by "named", "ending": a base name, never a path
}

// A mod is a place, host or direction: a preposition and what follows it.
type mod struct {
	at, end int
	prep    string
	not     bool // outside
	rest    bool // elsewhere
	objects []object
}

// A packageTest is "at least two days old", or "that resemble popular ones".
type packageTest struct {
	fact, op string
	value    any
}

// maxNesting bounds how deep noun phrases contain each other.
const maxNesting = 4

var rests = table(`
any|all|every|each other
any|all others
other|others
all the? other|others
`)

var restAlone = table(`
anything|everything|something|all else
the? rest
any|all others
others
anything|everything|all not explicitly? mentioned|listed|named|covered|allowed|permitted above|here|below|elsewhere?
anything|everything|all that|which is|are not explicitly? mentioned|listed|named|covered|allowed|permitted above|here|below|elsewhere?
`)

var qualWords = map[string]string{
	"read-only": "observe", "readonly": "observe", "non-destructive": "observe", "destructive": "irreversible", "irreversible": "irreversible", "remote": "remote", "local": "local",
	"published": "published", "new": "new", "existing": "existing", "external": "external", "public": "external", "mutating": "mutate", "mcp": "",
	"observing": "observe", "individual": "", "single": "", "unpublished": "unpublished", "harmful": "?", "web": "external",
	"entire": "", "whole": "", "git": "git", "shell": "", "third-party": "external", "network": "network", "remote-contacting": "remote", "network-contacting": "network", "regular": "", "ordinary": "",
}

// object reads a noun phrase in the light of the verb before it.
func (p *parser) object(verb string, nesting int) (object, bool) {
	o := object{at: p.i}
	if nesting > maxNesting {
		return o, p.wrong(p.i, "", "the sentence is too deeply nested: write several")
	}
	if p.pronoun(&o) {
		return o, true
	}
	if !p.matchRestAlone(&o) {
		o.rest = p.matchAny(rests(), nil)
		for p.peek().group == 0 && contains(determiners, p.peek().low) {
			if contains(possessives, p.peek().low) {
				o.whose = p.peek().text
			}
			p.i++
		}
		if p.server(&o, verb) {
			o.end = p.i
			return o, true
		}
		if !p.programs(verb) {
			p.qualifiers(&o)
		}
		p.names(&o, verb)
		p.qualifiers(&o)
		p.noun(&o, verb)
	}
	if o.class == "" && len(o.names) == 0 && len(o.either) == 0 {
		if !o.rest || p.toks[p.i-1].low == "other" {
			p.i = o.at
			return o, p.miss(p.i)
		}
		o.class = "any"
	}
	p.relative(&o)
	p.parenthesis(&o)
	for {
		m, ok := p.mod(verb, nesting)
		if !ok {
			break
		}
		o.mods = append(o.mods, m)
	}
	p.relative(&o)
	o.end = p.i
	return o, true
}

// pronoun reads "them" and "it": what the statement before was about.
func (p *parser) pronoun(o *object) bool {
	t, next := p.peek(), p.peekAt(1)
	if t.group != 0 || !contains(" them it they these those ", t.low) || len(p.known.last) == 0 {
		return false
	}
	if _, noun := words().nouns[next.low]; noun || p.isName(next, p.verb, "") || contains(" may can must is are has have ", next.low) {
		return false
	}
	*o = p.known.last[len(p.known.last)-1].moved(p.i)
	p.i++
	return true
}

// moved returns o as if all of it stood at token i of another statement.
func (o object) moved(i int) object {
	o.at, o.end = i, i+1
	mods := make([]mod, len(o.mods))
	for j, m := range o.mods {
		m.at, m.end = i, i+1
		objects := make([]object, len(m.objects))
		for k, inner := range m.objects {
			objects[k] = inner.moved(i)
		}
		m.objects = objects
		mods[j] = m
	}
	o.mods = mods
	return o
}

// server reads "the memory server" and "github tools": all tools of a server.
func (p *parser) server(o *object, verb string) bool {
	t, next := p.peek(), p.peekAt(1)
	n := 2
	if next.is("mcp") {
		next, n = p.peekAt(2), 3
	}
	ends := next.is("server") && (verb == "use" || verb == "call" || verb == "") || next.is("tools") && n == 2
	_, adjective := qualWords[t.low]
	if !ends || next.group != 0 || t.kind != word || adjective && t.group == 0 && t.low != "git" || t.group == 0 && contains(determiners+stopWords+" other mcp local remote ", t.low) {
		return false
	}
	o.class, o.names = "tool", []name{{tok: t, text: t.low + ".*"}}
	p.i += n
	return true
}

func (p *parser) matchRestAlone(o *object) bool {
	start := p.i
	if !p.matchAny(restAlone(), nil) {
		return false
	}
	if t := p.peek(); t.group == 0 && p.toks[p.i-1].low != "rest" && words().nouns[t.low] != "" { // "others" is not "other files"
		p.i = start
		return false
	}
	o.rest, o.class = true, "any"
	return true
}

// qualifiers reads adjectives and the words that stand like them: languages,
// registries.
func (p *parser) qualifiers(o *object) {
	for p.more() {
		t := p.peek()
		if t.group != 0 {
			return
		}
		if patterns, ok := words().languages[t.low]; ok && p.nounFollows("file", "folder", "code") {
			for _, pat := range patterns {
				o.either = append(o.either, name{tok: t, text: pat, named: true})
			}
			p.i++
			p.jointBefore("file", "folder", "code")
			continue
		}
		if contains(registryWords, t.low) && p.nounFollows("package") {
			o.names = append(o.names, name{tok: t, text: t.low + ":*"})
			p.i++
			p.jointBefore("package")
			continue
		}
		if isMethod(t.text) && words().nouns[p.peekAt(1).low] == "request" {
			method := "post"
			if t.text == "GET" || t.text == "HEAD" {
				method = "get"
			}
			o.quals = append(o.quals, method)
			p.i++
			continue
		}
		q, ok := qualWords[t.low]
		if !ok || !p.nounAhead() {
			return
		}
		p.i++
		switch q {
		case "observe", "irreversible", "mutate":
			if o.group != "" {
				p.i--
				p.wrong(p.i, "write a sentence for each", "two adjectives that say what is done")
				return
			}
			o.group = act.Group(q)
		case "":
		default:
			o.quals = append(o.quals, q)
		}
		if p.accept("and", "or", ",") {
			if _, more := qualWords[p.peek().low]; !more {
				p.i--
				return
			}
			p.wrong(p.i, "write a sentence for each", "two adjectives are joined, which can be read in two ways")
			p.i--
			return
		}
	}
}

// programs reports whether the next word begins a list of programs, as in "run git, make
// and ls", where git is no adjective.
func (p *parser) programs(verb string) bool {
	if verb != "run" || p.peek().group != 0 || !contains(programWords, p.peek().low) {
		return false
	}
	start := p.i
	p.i++
	list := p.joint() && p.isName(p.peek(), verb, "")
	p.i = start
	return list
}

// isMethod reports whether s is a method of HTTP, written as one.
func isMethod(s string) bool { return contains(" GET HEAD POST PUT PATCH DELETE ", s) }

// jointBefore moves over a joint between two words that stand before one noun:
// "npm and pypi packages".
func (p *parser) jointBefore(classes ...string) {
	start := p.i
	if p.joint() && (contains(registryWords, p.peek().low) || words().languages[p.peek().low] != nil) && p.nounFollows(classes...) {
		return
	}
	p.i = start
}

// nounAhead reports whether a noun, or another adjective, follows the next word.
func (p *parser) nounAhead() bool {
	t := p.peekAt(1)
	_, noun := words().nouns[t.low]
	_, adjective := qualWords[t.low]
	_, language := words().languages[t.low]
	return noun || adjective || language || t.is(",") || t.is("and") || contains(registryWords, t.low)
}

func (p *parser) nounFollows(classes ...string) bool {
	for n := 1; n < 4; n++ {
		t := p.peekAt(n)
		class := words().nouns[t.low]
		if slices.Contains(classes, class) {
			return true
		}
		if _, ok := qualWords[t.low]; !ok && !t.is("and") && !t.is("or") && !t.is(",") && words().languages[t.low] == nil && !contains(registryWords, t.low) {
			return false
		}
	}
	return false
}

// noun reads the noun itself and the names after it: "branches named agent/*",
// "packages left-pad and lodash".
func (p *parser) noun(o *object, verb string) {
	t := p.peek()
	class, ok := words().nouns[t.low]
	if !ok || t.group != 0 {
		if len(o.names) == 0 && len(o.either) == 0 {
			p.place(o)
		}
		return
	}
	o.class = class
	p.i++
	if class == "person" && p.accept("else") {
		o.rest = true
	}
	if (class == "network" || class == "memory" || class == "site" || class == "file" || class == "tool") && p.peek().group == 0 {
		p.accept("access", "names")
		if next := words().nouns[p.peek().low]; class == "network" && (next == "request" || next == "page" || next == "site") {
			o.class = next
			p.i++
		}
	}
	if p.peek().is(":") {
		return
	}
	if !p.peek().is("named") {
		p.names(o, verb)
	}
	p.plainName(o)
}

// plainName says how a name is written that is an ordinary word, where one stands behind its
// noun: "the secret tracker".
func (p *parser) plainName(o *object) {
	t := p.peek()
	if len(o.names) > 0 || o.class != "secret" && o.class != "model" && o.class != "memory" || t.kind != word || t.group != 0 ||
		known(t.low) || contains(grammarWords, t.low) || contains(stopWords, t.low) || qualWords[t.low] != "" {
		return
	}
	noun := p.toks[p.i-1].low
	p.wrong(p.i, "the "+noun+" `"+t.text+"`", "%q is an ordinary word: as the name of a %s it stands in backticks", t.text, o.class)
}

var placeNouns = map[string]string{
	"workspace": "${workspace}", "sandbox": "${workspace}", "project": "${workspace}", "codebase": "${workspace}", "home": "${home}",
	"filesystem": "/", "machine": "/", "computer": "/", "disk": "/",
}

// place reads nouns that are places themselves.
func (p *parser) place(o *object) {
	t := p.peek()
	root, ok := placeNouns[t.low]
	if !ok || t.group != 0 {
		return
	}
	o.root, o.class = root, "folder"
	p.i++
	p.accept("folder", "directory", "root", "tree")
}
