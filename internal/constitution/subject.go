package constitution

import (
	"strings"
)

// startsFrame reports whether a new statement begins here: a modal word, or a
// subject and a modal word.
func (p *parser) startsFrame() bool {
	saved := *p
	defer func() { *p = saved }()
	p.subject()
	if t := p.peek(); t.group == 0 && contains(" may can must should shall cannot never needs requires ", t.low) {
		return true
	}
	for _, frames := range []func() []phrase{askFrames, freeFrames, approveFrames} {
		if p.matchAny(frames(), nil) {
			return true
		}
	}
	return p.peek().is("do") && p.peekAt(1).is("not") || p.peek().is("does") && p.peekAt(1).is("not")
}

// subject reads who a sentence is about. Who is empty for every agent; nobody
// is set for "nobody", "no agent".
func (p *parser) subject() (who []string, nobody, ok bool) {
	start := p.i
	for {
		joint := p.i
		if len(who) > 0 && !p.accept("and", "or", ",") {
			return who, false, true
		}
		name, isNobody, found := p.oneSubject()
		if !found {
			p.i = joint
			break
		}
		if isNobody || name == "" {
			return nil, isNobody, true
		}
		who = append(who, name)
	}
	if len(who) == 0 {
		p.i = start
	}
	return who, false, len(who) > 0
}

func (p *parser) oneSubject() (name string, nobody, ok bool) {
	if p.accept("nobody") {
		return "", true, true
	}
	start := p.i
	no := p.accept("no")
	article := p.accept("the", "an", "a", "any", "all", "every", "each", "this", "my", "our", "your", "of")
	p.accept("of")
	p.accept("the", "ai", "coding", "persona", "autonomous")
	t := p.peek()
	switch {
	case contains(agentWords, t.low) && t.group == 0 && t.kind == word:
		p.i++
		if t.low == "ai" {
			p.accept("agent", "agents", "assistant", "assistants", "model")
		}
		return "", no, true
	case no:
	case p.isPersona(t, article):
		p.i++
		p.accept("agent", "agents", "persona")
		return t.text, false, true
	}
	p.i = start
	return "", false, false
}

// isPersona reports whether t can be the name of a persona, or persona/agent: a
// word that means nothing else, after an article, before a modal word.
func (p *parser) isPersona(t token, article bool) bool {
	if t.at < 0 || t.kind == punct || t.kind == number || t.kind == list {
		return false
	}
	next := p.peekAt(1)
	if contains(" agent agents persona ", next.low) && next.group == 0 {
		next = p.peekAt(2)
	}
	if !p.bySubject && !contains(" may can must should shall could never needs and or will always is has ", next.low) && !next.is(",") {
		return false
	}
	if t.kind == atom {
		persona, agent, ok := strings.Cut(t.text, "/")
		return ok && persona != "" && agent != "" && !strings.ContainsAny(t.text, ".*~:") && !strings.Contains(agent, "/")
	}
	if unenforceable[t.low] != "" || contains(" many few several other another only no not than unused both either neither ", t.low) {
		return false
	}
	return (article || t.group != 0) && !contains(everyoneWords+" owner admin owners ", t.low) && !known(t.low) && placeNouns[t.low] == "" && !contains(grammarWords, t.low)
}

// forWhom reads whom a sentence is about, before it: "for the reviewer, …".
func (p *parser) forWhom(s *statement) bool {
	p.bySubject = true
	who, nobody, ok := p.subject()
	p.bySubject = false
	if !ok || nobody || !p.accept(",") {
		return false
	}
	s.frontWho = who
	return true
}

// agentBy reads "by the agent" after a passive verb.
func (p *parser) agentBy(s *statement, after []token) ([]token, bool) {
	q := parser{toks: after[1:], known: p.known, bySubject: true}
	who, nobody, ok := q.subject()
	if !ok || nobody {
		return after, p.miss(p.i + 1)
	}
	s.who = who
	p.i += 1 + q.i
	return after[1+q.i:], true
}
