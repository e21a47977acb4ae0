package constitution

import (
	"slices"

	"ringfence/internal/policy"
)

// A statement is one sentence, or one part of it that has a verb of its own.
type statement struct {
	toks     []token // as written
	words    []token // as the actions count them: without what frames the sentence
	modality policy.Modality
	who      []string
	actions  []action
	front    conditions // what stands before the subject; holds for all actions
	places   []mod      // the same
	frontWho []string   // the same
	quorum   quorum
	only     bool     // "may only …"
	readOnly bool     // "is read-only"
	last     []object // what the statement before was about, in the same sentence
	modal    bool     // a modal word stands before the verb, so that a subject is understood
}

// statement reads toks as one statement. With a modality from above, the
// sentence may have none of its own.
func (p *parser) statement(above policy.Modality) (statement, bool) {
	s := p.newStatement()
	if p.peek().is("note") && p.peekAt(1).is(":") {
		p.i += 2
	}
	p.skip(" please also however then additionally furthermore finally moreover ")
	p.accept(",")
	if p.askFirst(&s) {
		return s, true
	}
	p.fronts(&s)
	start := p.i
	for _, try := range []func(*statement) bool{p.active, p.predicate, p.passive} {
		if try(&s) && p.finish(&s) {
			return s, true
		}
		p.i = start
		front, places, frontWho := s.front, s.places, s.frontWho
		s = p.newStatement()
		s.front, s.places, s.frontWho = front, places, frontWho
	}
	if above == "" {
		return p.onlySo(s)
	}
	s.modality = above
	if acts, ok := p.actions(); ok {
		s.actions = acts
		if p.finish(&s) {
			return s, true
		}
	}
	return s, false
}

func (p *parser) newStatement() statement {
	s := statement{toks: p.toks, words: p.toks}
	if p.known.inside {
		s.last = p.known.last
	}
	return s
}

// onlySo reads an imperative that says what is allowed by "only": "commit only
// when asked", "create files only in ./out".
func (p *parser) onlySo(s statement) (statement, bool) {
	acts, ok := p.actions()
	s.actions = acts
	if !ok || !p.finish(&s) {
		return s, false
	}
	for _, a := range acts {
		switch {
		case a.cond.assent == onlyNeeded:
			s.modality = policy.MustNever
		case a.cond.only && s.modality == "":
			s.modality = policy.May
		}
	}
	if s.modality == "" {
		return s, p.miss(0)
	}
	return s, true
}

// finish moves over what may still follow, and reports whether that is all.
func (p *parser) finish(s *statement) bool {
	p.accept(barrier)
	p.skip(fillers)
	if len(s.actions) > 0 {
		last := &s.actions[len(s.actions)-1]
		for p.more() && p.condition(&last.cond) {
			p.skip(fillers)
		}
	}
	for p.accept(",") {
		p.skip(fillers)
	}
	if p.more() {
		return p.miss(p.i)
	}
	return len(s.actions) > 0
}

// fronts reads conditions and places before the subject: "After reading a web
// page, …", "In the workspace, …".
func (p *parser) fronts(s *statement) {
	for p.more() {
		start := p.i
		before := s.front
		if p.condition(&s.front) && (p.accept(",") || p.startsFrame()) {
			continue
		}
		s.front = before
		p.i = start
		if p.accept("for") && p.forWhom(s) {
			continue
		}
		p.i = start
		if m, ok := p.mod("", 0); ok && (p.accept(",") || p.startsFrame() || contains(" everything anything nothing ", p.peek().low)) {
			s.places = append(s.places, m)
			continue
		}
		p.i = start
		return
	}
}

// askFirst reads "before pushing, ask me".
func (p *parser) askFirst(s *statement) bool {
	start := p.i
	if !p.accept("before") {
		return false
	}
	comma := start
	for comma < len(p.toks) && !p.toks[comma].is(",") {
		comma++
	}
	p.accept("you", "it", "they")
	before := &parser{toks: p.toks[:comma], i: p.i, known: p.known}
	acts, ok := before.actions()
	if ok = ok && !before.more(); ok {
		p.i = comma
		p.accept(",")
		who, nobody, _ := p.subject()
		var q quorum
		ok = !nobody && p.matchAny(askTails(), &q) && !p.more()
		s.modality, s.actions, s.quorum, s.who = policy.MustAsk, acts, q, who
	}
	if !ok {
		p.i = start
		*s = p.newStatement()
	}
	return ok
}

// active reads sentences whose verb follows a modal word: "the agent may read".
func (p *parser) active(s *statement) bool {
	if p.match(parsePhrase("no-circumstances may|can|should|must|shall"), nil) {
		who, nobody, _ := p.subject()
		if nobody {
			return p.wrong(p.i-1, "", "two negations")
		}
		s.who, s.modality = who, policy.MustNever
		return p.rest(s)
	}
	var q quorum
	if p.matchAny(approveFrames(), &q) {
		s.modality, s.quorum = policy.MustAsk, q
		return p.rest(s)
	}
	who, nobody, subject := p.subject()
	s.who = who
	p.skip(fillers)
	if p.access(s, subject) {
		if nobody && s.modality == policy.MustNever {
			return p.wrong(p.i-1, "", "two negations")
		}
		if nobody {
			s.modality = policy.MustNever
		}
		return true
	}
	if !nobody && p.stay(s) {
		return true
	}
	if !subject && p.accept("only") {
		if who, _, ok := p.subject(); ok && len(who) > 0 {
			return p.wrong(p.i-1, "the reviewer may …", "what only one may do is what nobody else is allowed to: say what is allowed to whom")
		}
		s.modality, s.only = policy.May, true
		return p.rest(s)
	}
	return p.modal(s, subject, nobody)
}

// A modalFrame is a set of modal phrases, and what they make of a sentence.
type modalFrame struct {
	phrases  func() []phrase
	modality policy.Modality
	only     bool // "may only"
	bare     bool // without a subject
}

// modalFrames returns the frames in the order in which they are tried.
func modalFrames() []modalFrame {
	return []modalFrame{
		{freeFrames, policy.May, false, false},
		{askFrames, policy.MustAsk, false, false},
		{onlyFrames, policy.May, true, false},
		{neverFrames, policy.MustNever, false, false},
		{mayFrames, policy.May, false, false},
		{needFrames, policy.MayWithApproval, false, false},
		{allowFrames, policy.May, false, true},
		{denyFrames, policy.MustNever, false, true},
	}
}

// modal reads a modal phrase and the actions after it.
func (p *parser) modal(s *statement, subject, nobody bool) bool {
	for _, f := range modalFrames() {
		start := p.i
		var q quorum
		if f.bare && subject || !p.matchAny(f.phrases(), &q) {
			continue
		}
		s.modality, s.quorum, s.only, s.modal = f.modality, q, f.only, true
		if nobody {
			if f.modality != policy.May || s.only {
				return p.wrong(start, "nobody may …", "two negations")
			}
			s.modality = policy.MustNever
		}
		if p.rest(s) {
			return true
		}
		p.i = start
	}
	return false
}

// access reads "has read access to …", "has no access to …".
func (p *parser) access(s *statement, subject bool) bool {
	start := p.i
	if !subject || !p.accept("has", "have", "gets", "get") {
		return false
	}
	s.modality = policy.May
	if p.match(parsePhrase("no access to"), nil) {
		s.modality = policy.MustNever
		o, ok := p.object("access", 0)
		if ok {
			s.actions = []action{{at: start, end: p.i, verbs: []verbUse{{at: start, sense: "access"}}, objects: []object{o}}}
			return true
		}
	}
	if accessPhrases[p.peek().low] != nil && p.rest(s) {
		return true
	}
	p.i = start
	return false
}

// stay reads "stay inside the workspace": nothing outside is touched.
func (p *parser) stay(s *statement) bool {
	start := p.i
	if p.matchAny(stayFrames(), nil) {
		m := mod{at: p.i - 1, prep: "outside", not: true}
		o, ok := p.target(&m, "access", 0)
		if m.end = p.i; ok && (o.root != "" || len(o.names) > 0) {
			m.objects = []object{o}
			s.modality, s.modal = policy.MustNever, true
			s.actions = []action{{at: start, end: p.i, verbs: []verbUse{{at: start, sense: "access"}}, objects: []object{{at: start, end: p.i, class: "any", mods: []mod{m}}}}}
			return true
		}
	}
	p.i = start
	return false
}

func (p *parser) rest(s *statement) bool {
	if p.i > 0 && p.toks[p.i-1].is("before") {
		p.accept("you", "it", "they")
	}
	acts, ok := p.actions()
	s.actions = acts
	return ok
}

// predicate reads sentences that speak about what is done: "pushing to main
// needs approval".
func (p *parser) predicate(s *statement) bool {
	start := p.i
	no := p.accept("no") || p.peek().is("nothing")
	from := p.i
	for j := from + 1; j < len(p.toks); j++ {
		if prev := p.toks[j-1].low; prev == "that" || prev == "which" || p.toks[j].group != 0 {
			continue
		}
		for _, f := range []predicateFrame{
			{neverPredicates, policy.MustNever, false},
			{askPredicates, policy.MustAsk, false},
			{mayPredicates, policy.May, false},
			{needPredicates, policy.MayWithApproval, false},
			{readOnlyPredicates, policy.MustNever, false},
			{limitPredicates, policy.May, true},
			{onlyPredicates, policy.May, false},
		} {
			p.i = j
			var q quorum
			far := p.far
			if !p.matchAny(f.phrases(), &q) {
				p.far = far
				continue
			}
			p.far = far
			s.modality, s.quorum = f.modality, q
			if no && (f.limits || p.toks[j+1].is("only")) {
				return p.wrong(start, "", "two negations")
			}
			if f.limits {
				only := []token{{kind: word, text: "only", low: "only", at: p.toks[j].at}, p.toks[p.i-1]}
				return p.about(s, p.toks[from:j], append(only, p.toks[p.i:]...))
			}
			s.only = p.toks[j+1].is("only")
			s.readOnly = p.toks[p.i-1].is("read-only")
			if no && f.modality == policy.May {
				s.modality = policy.MustNever
			} else if no {
				return p.wrong(start, "", "two negations")
			}
			before := slices.Clone(p.toks[from:j])
			if before[0].is("nothing") {
				before[0].text, before[0].low = "anything", "anything"
			}
			return p.about(s, before, p.toks[p.i:])
		}
	}
	p.i = start
	return false
}

// barrier stands where a predicate was taken out of a sentence.
const barrier = "|"

// about reads the actions of a sentence whose predicate has been taken out.
func (p *parser) about(s *statement, before, after []token) bool {
	q := parser{toks: slices.Clone(before), known: p.known}
	if len(after) > 0 { // nothing before the predicate goes on after it
		q.toks = append(append(q.toks, token{kind: punct, low: barrier, at: after[0].at}), after...)
	}
	q.skip(" please ")
	acts, ok := q.actions()
	s.actions, s.words = acts, q.toks
	if ok && q.finish(s) {
		p.i = len(p.toks)
		return true
	}
	p.far = max(p.far, p.same(q.far, before, after))
	if q.why != "" {
		p.bad, p.why, p.hint = p.same(q.bad, before, after), q.why, q.hint
	}
	return false
}

// same returns the index in p of the token at index i of before and after.
func (p *parser) same(i int, before, after []token) int {
	all := slices.Clone(before)
	if len(after) > 0 {
		all = append(append(all, after[0]), after...)
	}
	if i >= len(all) {
		return len(p.toks)
	}
	return max(0, slices.IndexFunc(p.toks, func(t token) bool { return t.at == all[i].at }))
}

// passive reads "files in /etc must never be changed".
func (p *parser) passive(s *statement) bool {
	start := p.i
	no := p.accept("no") || p.accept("nothing")
	from := p.i
	var nothing []token
	if no && p.toks[start].is("nothing") {
		nothing = []token{{kind: word, text: "anything", low: "anything", at: p.toks[start].at}}
	}
	for j := from; j < len(p.toks); j++ {
		p.i = j
		far := p.far
		switch {
		case p.matchAny(passiveNever(), nil):
			s.modality = policy.MustNever
		case p.matchAny(passiveOnly(), nil):
			s.modality, s.only = policy.May, true
		case p.toks[j].low != "must" && p.toks[j].low != "should" && p.matchAny(passives(), nil):
			s.modality = policy.May
		default:
			p.far = far
			continue
		}
		if no {
			if s.modality != policy.May || s.only {
				return p.wrong(start, "", "two negations")
			}
			s.modality = policy.MustNever
		}
		p.far = far
		verbs := p.i
		for p.more() && p.participle() {
		}
		if p.i == verbs {
			p.miss(p.i)
			break
		}
		p.backOverJoint(p.i)
		verbsEnd, after := p.i, p.toks[p.i:]
		object := append(nothing, p.toks[from:j]...)
		if len(after) > 1 && after[0].is("by") {
			var ok bool
			if after, ok = p.agentBy(s, after); !ok {
				return false
			}
		}
		before := append(slices.Clone(p.toks[verbs:verbsEnd]), object...)
		p.far = far
		return p.about(s, before, after)
	}
	p.i = start
	return false
}

// participle reads one verb of a list: "changed", ", moved", "or deleted".
func (p *parser) participle() bool {
	start := p.i
	p.joint()
	if e, ok := words().verbs[p.peek().low]; ok && p.peek().group == 0 && (e.form == participle || e.form == plain) {
		p.i++
		return true
	}
	p.i = start
	return false
}
