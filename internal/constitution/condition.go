package constitution

import (
	"slices"
	"strings"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// conditions are the parts of a sentence that say when it holds.
type conditions struct {
	when    []policy.Condition
	unless  []policy.Condition // "without force": all together leave an effect out
	tools   []string           // "using git.*"
	hours   [][2]int64         // "between 22 and 6": hours that leave an effect out
	limit   *policy.Limit
	expires *time.Time
	because string
	most    int64 // "at most 20 pages": the span of time comes later
	mostAt  int
	except  []exception
	assent  assent
	quorum  quorum
	only    bool // "only in …"
	onlyAt  int
}

// An exception is one thing that "except" leaves out.
type exception struct {
	at, end int
	objects []object
	mods    []mod
	action  *action
	when    []policy.Condition
	hours   [][2]int64
}

func (c *conditions) empty() bool {
	return len(c.when) == 0 && len(c.unless) == 0 && len(c.hours) == 0 && len(c.tools) == 0 && c.limit == nil && c.expires == nil && len(c.except) == 0 && !c.only
}

// condition reads one condition, exception, limit, end, reason or phrase about
// approval.
func (p *parser) condition(c *conditions) bool {
	start := p.i
	if a := p.assent(&c.quorum); a != notSaid {
		if c.assent != notSaid && c.assent != a {
			p.i = start
			return p.wrong(start, "", "the sentence speaks of approval twice")
		}
		c.assent = a
		return true
	}
	if p.peek().is(",") || p.peek().is("and") || p.peek().is("but") {
		p.i++
		p.accept("but", "and")
	}
	if p.reason(c) || p.exceptions(c) || p.touched(c) || p.limit(c) || p.until(c) || p.hoursOfDay(c) || p.using(c) || p.argument(c) {
		return true
	}
	p.i = start
	return false
}

func (p *parser) reason(c *conditions) bool {
	start := p.i
	if !p.accept("because", "—") || p.toks[start].is("—") && !p.accept("because") {
		p.i = start
		return false
	}
	from := p.i
	for p.more() && !p.peek().is(")") {
		p.i++
	}
	if p.i == from {
		return p.wrong(p.i, "", "a reason should follow")
	}
	c.because = textOf(p.toks[from:p.i])
	return true
}

var labelLeads = table(`
after|once|when|if|while it|you|the_agent|they|this_session|the_session|a_session? has|have|had? read|seen|fetched|touched|opened|visited|received|loaded|handled|viewed|encountered
after|once reading|seeing|fetching|touching|opening|visiting|receiving|loading|handling|viewing|encountering
in|within a|any? session|sessions that|which has|have read|seen|fetched|touched|opened|visited
once|after|when|if it|the_session|this_session|the_agent|you? is|has_been tainted|touched by
`)

var labelLacks = table(`
before|until it|you|the_agent|they? has|have|had? read|seen|fetched|touched|opened|visited|received|reads|fetches|opens|visits
before|until reading|seeing|fetching|touching|opening|visiting
unless|except_when|except_after|except_if it|you|the_agent|they|the_session|this_session? has|have read|seen|fetched|touched|opened|visited
if|while|when|as_long_as it|you|the_agent|they|the_session|this_session has|have not yet? read|seen|fetched|touched|opened|visited
as_long_as|while|if no|none
`)

var labelObjects = map[act.Label]func() []phrase{
	act.LabelUntrusted: table(`
a|any|the? web|external? content|text|data|material from the? web|internet|strangers|outside
a|any|the? page|pages|site|sites from|on the? web|internet
untrusted-content
a|any|the? page|site
external|untrusted|foreign|unknown|third-party|web content|text|data|material|pages|input|sources|sites
content|text|data|anything from the web|internet|outside
anything|something|content untrusted
the web|internet
`),
	act.LabelPrivate: table(`
private|personal|confidential|sensitive|private-data data|information|files|content?
anything|something private|confidential|personal
`),
	act.LabelSecret: table(`
a|any|the? secret|secrets|credential|credentials|password|passwords|token|tokens|api-key|private-key
`),
}

// touched reads what the session has touched: "after reading a web page".
func (p *parser) touched(c *conditions) bool {
	start := p.i
	op := "has"
	if !p.matchAny(labelLeads(), nil) {
		if !p.matchAny(labelLacks(), nil) {
			return false
		}
		op = "lacks"
	}
	labels := p.labels()
	if len(labels) == 0 {
		p.i = start
		return false
	}
	if len(labels) > 1 && op == "has" {
		return p.wrong(start, "write a sentence for each", "one of several conditions is more than one sentence can hold")
	}
	for _, l := range labels {
		c.when = append(c.when, policy.Condition{Fact: policy.FactLabel, Op: op, Value: string(l)})
	}
	return true
}

func (p *parser) labels() []act.Label {
	var found []act.Label
	for {
		start := p.i
		if len(found) > 0 && !p.joint() {
			return found
		}
		ok := false
		for _, l := range []act.Label{act.LabelUntrusted, act.LabelPrivate, act.LabelSecret} {
			if p.matchAny(labelObjects[l](), nil) {
				if !slices.Contains(found, l) {
					found = append(found, l)
				}
				ok = true
				break
			}
		}
		if !ok {
			p.i = start
			return found
		}
	}
}

// argument reads a test of an argument of the call: "with force", "without
// dryRun", "with method set to merge".
func (p *parser) argument(c *conditions) bool {
	start := p.i
	if !p.accept("with", "without", "when", "where", "if") {
		return false
	}
	lead := p.toks[start].low
	p.accept("the", "an", "a")
	argued := p.accept("argument", "flag", "option", "parameter")
	t := p.peek()
	if t.at < 0 || t.kind == punct || t.kind == number || t.group == 0 && (contains(stopWords, t.low) || contains(grammarWords, t.low) || contains(approvalWords, t.low) || t.kind == list) {
		p.miss(p.i)
		p.i = start
		return false
	}
	value, assigned := any(true), false
	name := strings.TrimLeft(t.text, "-")
	if n, v, ok := strings.Cut(name, "="); ok {
		name, value, assigned = n, literal(v), true
		p.i++
	} else {
		p.i++
		sure := lead == "with" || lead == "without" || argued || t.group != 0 || identifier(name) || name == "method"
		if sure && (p.accept("=", "is", "equals") || p.match(parsePhrase("set to"), nil) || p.match(parsePhrase("equal to"), nil)) {
			assigned = true
			v := p.peek()
			if v.at < 0 || v.kind == punct {
				return p.wrong(p.i, "", "a value should follow")
			}
			value = literal(v.text)
			p.i++
		} else if lead == "when" || lead == "where" || lead == "if" {
			p.miss(p.i)
			p.i = start
			return false
		}
	}
	marked := argued || t.group != 0 || strings.HasPrefix(t.text, "-") || strings.Contains(t.text, "/") || identifier(name)
	if !marked && name != "force" && !assigned {
		p.i = start
		return p.wrong(start+1, "with `"+name+"`", "%q is read as an argument of a tool only in backquotes", name)
	}
	test := policy.Condition{Fact: "arg:/" + strings.TrimPrefix(name, "/"), Op: "==", Value: value}
	if lead == "without" {
		c.unless = append(c.unless, test)
	} else {
		c.when = append(c.when, test)
	}
	return true
}

// identifier reports whether name can be nothing but the name of an argument:
// dryRun, max_results.
func identifier(name string) bool {
	return strings.ContainsAny(name, "_0123456789") || len(name) > 1 && strings.ToLower(name[1:]) != name[1:]
}

// using reads the tools that a clause is limited to: "using git.*".
func (p *parser) using(c *conditions) bool {
	start := p.i
	if !p.accept("using", "via", "through", "with") {
		return false
	}
	p.accept("the")
	p.accept("tool", "tools")
	n := len(c.tools)
	for toolName(p.peek().text) && p.peek().kind == atom && !looksPath(p.peek().text) {
		c.tools = append(c.tools, p.peek().text)
		p.i++
		joint := p.i
		if !p.joint() || !toolName(p.peek().text) {
			p.i = joint
			break
		}
	}
	if len(c.tools) == n {
		p.i = start
		return p.miss(start + 1)
	}
	return true
}

// literal reads a value: true, false, a number, or text.
func literal(s string) any {
	switch s {
	case "true":
		return true
	case "false":
		return false
	}
	if n, ok := numberOf(s); ok && strings.Trim(s, "0123456789") == "" {
		return n
	}
	return s
}

// exceptions reads "except …", "but not …", "unless it is in …".
func (p *parser) exceptions(c *conditions) bool {
	start := p.i
	unless := p.accept("unless")
	if !unless && !p.accept("except") {
		p.i = start
		return false
	}
	p.accept("for")
	if unless && !p.match(parsePhrase("it|they|that|this|the_file|the_site|the_host|the_path|the_branch|the_recipient|the_program is|are"), nil) {
		p.miss(p.i)
		p.i = start
		return false
	}
	n := len(c.except)
	for {
		joint := p.i
		if len(c.except) > n && (!p.joint() || p.startsFrame()) {
			p.i = joint
			break
		}
		e, ok := p.exception()
		if !ok {
			p.i = joint
			break
		}
		c.except = append(c.except, e)
	}
	if len(c.except) == n {
		p.miss(p.i)
		p.i = start
		return false
	}
	return true
}

func (p *parser) exception() (exception, bool) {
	e := exception{at: p.i}
	p.skip(" to the ")
	var c conditions
	if p.touched(&c) || p.hoursOfDay(&c) || p.argument(&c) {
		e.when, e.hours, e.end = c.when, c.hours, p.i
		return e, len(c.unless) == 0
	}
	if m, ok := p.mod(p.verb, 1); ok {
		e.mods, e.end = []mod{m}, p.i
		return e, true
	}
	start := p.i
	a := action{at: start}
	if !p.namedNoun() {
		p.verbs(&a)
	}
	if len(a.verbs) > 0 {
		verb := a.verbs[len(a.verbs)-1].sense
		p.objects(&a, verb)
		for m, ok := p.mod(verb, 1); ok; m, ok = p.mod(verb, 1) {
			p.attach(&a, m)
		}
		a.end = p.i
		e.action, e.end = &a, p.i
		return e, true
	}
	p.i = start
	o, ok := p.object(p.verb, 1)
	if !ok {
		return e, false
	}
	e.objects, e.end = []object{o}, p.i
	return e, true
}
