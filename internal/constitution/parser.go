package constitution

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// grammarWords are the words of the grammar that are neither verbs nor nouns.
const grammarWords = ` agent agents may can must shall should could never not without with approval permission consent confirmation before after
until unless except because forbidden prohibited allowed permitted denied required requires needs require need only under beneath below inside
within outside anywhere elsewhere into from destructive irreversible read-only read-write remote local published existing hidden untrusted-content
workspace project home named ending starting between times hour day minute session week owner owners approve approved off-limits other else rest
nobody at-least at-most old older newer days hours utc `

// A parser reads one sentence. It moves forward only over what it understands,
// and remembers the furthest word that it did not.
type parser struct {
	toks  []token
	i     int
	far   int    // index of the furthest token that was not understood
	bad   int    // index of the token that why is about
	why   string // what is wrong, if more is known than that a word is not understood
	hint  string // what to write instead
	verb  string // the sense of the verb that is read
	known *surroundings

	bySubject bool // a subject after "by", which no modal word follows
}

// maxWork bounds the steps for one sentence, over all ways to read it. Ordinary
// ones take a few thousand; after the bound nothing more is understood.
const maxWork = 2_000_000

// maxTokens bounds the words and marks of one sentence.
const maxTokens = 400

// A miss is a sentence that was not understood, and where.
type miss struct {
	at   int // offset in the source
	word string
	why  string
	hint string
}

func (p *parser) more() bool { return p.i < len(p.toks) }

func (p *parser) peek() token { return p.peekAt(0) }

func (p *parser) peekAt(n int) token {
	p.known.work++
	if p.known.work > maxWork || p.i+n >= len(p.toks) || p.i+n < 0 {
		return token{kind: punct, at: -1}
	}
	return p.toks[p.i+n]
}

// miss notes that the token at i is not understood.
func (p *parser) miss(i int) bool {
	p.far = max(p.far, i)
	return false
}

// wrong notes that what stands at i is understood, but not possible, and why.
func (p *parser) wrong(i int, hint, format string, args ...any) bool {
	if i >= p.bad {
		p.bad, p.why, p.hint = i, fmt.Sprintf(format, args...), hint
	}
	p.far = max(p.far, i)
	return false
}

// err returns what was noted.
func (p *parser) err() *miss {
	i := p.far
	if p.why != "" {
		i = p.bad
	}
	i = min(i, len(p.toks)-1)
	m := &miss{at: p.toks[i].at, word: p.toks[i].text, why: p.why, hint: p.hint}
	if p.far >= len(p.toks) {
		m.word = ""
	}
	return m
}

// accept moves over one of words.
func (p *parser) accept(words ...string) bool {
	if t := p.peek(); t.group == 0 && slices.Contains(words, t.low) {
		p.i++
		return true
	}
	return p.miss(p.i)
}

// skip moves over any words of the table.
func (p *parser) skip(table string) {
	for p.peek().group == 0 && contains(table, p.peek().low) {
		p.i++
	}
}

// joint moves over what joins two things, and reports whether there was any.
func (p *parser) joint() bool {
	start := p.i
	for p.accept(",", "/") {
	}
	if !p.accept("and", "or", "nor", "&") && p.i == start {
		return false
	}
	p.accept("/", "or")
	return true
}

// A phrase is a sequence of words with choices, as phrases are written in the
// tables: "may|can not|never", "ask first? before", "has_been approved". Words
// joined by an underscore follow each other; "?" makes an element optional;
// <who> stands for people who approve, <approval> for their approval.
type phrase []phraseElement

type phraseElement struct {
	choices  [][]string
	optional bool
}

func parsePhrase(s string) phrase {
	var ph phrase
	for f := range strings.FieldsSeq(s) {
		f, optional := strings.CutSuffix(f, "?")
		e := phraseElement{optional: optional}
		for c := range strings.SplitSeq(f, "|") {
			e.choices = append(e.choices, strings.Split(c, "_"))
		}
		ph = append(ph, e)
	}
	return ph
}

// match moves over ph; where it does not match, the parser stays where it is.
// What the slots hold goes into q.
func (p *parser) match(ph phrase, q *quorum) bool {
	start := p.i
	if p.matchFrom(ph, q) {
		return true
	}
	p.i = start
	return false
}

func (p *parser) matchFrom(ph phrase, q *quorum) bool {
	if len(ph) == 0 {
		return true
	}
	start := p.i
	for _, words := range ph[0].choices {
		if p.choice(words, q) && p.matchFrom(ph[1:], q) {
			return true
		}
		p.i = start
	}
	return ph[0].optional && p.matchFrom(ph[1:], q)
}

func (p *parser) choice(words []string, q *quorum) bool {
	for _, w := range words {
		switch w {
		case "<who>":
			if !p.approvers(q) {
				return false
			}
		case "<approval>":
			if !p.approval(q) {
				return false
			}
		default:
			if t := p.peek(); t.group != 0 || t.low != w {
				return p.miss(p.i)
			}
			p.i++
		}
	}
	return true
}

// table makes phrases of lines, on first use.
func table(lines string) func() []phrase {
	return sync.OnceValue(func() []phrase {
		var all []phrase
		for line := range strings.Lines(lines) {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, parsePhrase(line))
			}
		}
		return all
	})
}

// matchAny moves over the longest phrase of the table that matches, and reports
// whether one does.
func (p *parser) matchAny(phrases []phrase, q *quorum) bool {
	start, best := p.i, -1
	var found quorum
	for _, ph := range phrases {
		var this quorum
		if p.match(ph, &this) && p.i > best {
			best, found = p.i, this
		}
		p.i = start
	}
	if best < 0 {
		return false
	}
	p.i = best
	if q != nil && found.set {
		*q = found
	}
	return true
}
