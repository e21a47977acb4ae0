package constitution

import "strings"

// A quorum is who must approve, as far as a sentence says so.
type quorum struct {
	set   bool // the sentence names people, or says a number
	count int
	role  string // "" is anyone who may approve
}

// everyoneWords name whoever may approve.
const everyoneWords = ` me us i we human humans user users person people someone somebody operator supervisor boss anyone you admin-user `

// roleWords are roles that approvers may have.
const roleWords = ` owner maintainer admin administrator reviewer lead manager teammate developer colleague engineer auditor expert member approver `

const approvalWords = ` approval approvals permission consent confirmation confirmations authorization authorisation sign-off signoff go-ahead ok okay
asking confirming checking consultation clearance review reviews say-so `

const approvalAdjectives = ` human explicit prior written express manual user my our your a an any the their its owner's user's human's clear
advance informed direct specific further additional preceding his her `

// approval moves over words for someone's approval: "my explicit approval",
// "approval of two owners", "two owners' approval", "asking me first".
func (p *parser) approval(q *quorum) bool {
	start := p.i
	if p.approvers(q) {
		p.accept("'s", "'")
	}
	p.skip(approvalAdjectives)
	p.approvers(q)
	p.skip(approvalAdjectives)
	if t := p.peek(); t.group != 0 || !contains(approvalWords, t.low) {
		p.miss(p.i)
		p.i = start
		return false
	}
	p.i++
	p.accept("with", "of", "by", "from")
	if !p.approvers(q) {
		if prev := p.toks[p.i-1].low; prev == "with" || prev == "of" || prev == "by" || prev == "from" {
			p.i--
		}
	}
	p.accept("first", "beforehand")
	return true
}

// approvers moves over people who may approve: "me", "a human", "two owners",
// "at least 2 of the owners", "an owner".
func (p *parser) approvers(q *quorum) bool {
	start := p.i
	p.accept("at-least")
	count := 0
	if t := p.peek(); t.kind == number && t.group == 0 {
		count = int(t.n)
		p.i++
		p.accept("of")
	}
	p.accept("a", "an", "the", "any", "our", "my", "different", "other", "another")
	p.accept("human", "different", "other", "independent")
	role, ok := roleOf(p.peek())
	if !ok {
		if p.i > start && p.toks[p.i-1].is("human") { // "a human approves"
			p.set(q, count, "")
			return true
		}
		p.miss(p.i)
		p.i = start
		return false
	}
	p.i++
	p.set(q, count, role)
	return true
}

func (p *parser) set(q *quorum, count int, role string) {
	if q == nil || count == 0 && role == "" {
		return
	}
	*q = quorum{set: true, count: max(count, 1), role: role}
}

// roleOf returns the role that t names in the singular; "" is anyone.
func roleOf(t token) (string, bool) {
	if t.group != 0 {
		return "", false
	}
	w := strings.TrimSuffix(strings.TrimSuffix(t.low, "'"), "'s")
	if contains(everyoneWords, w) {
		return "", true
	}
	for _, form := range []string{w, strings.TrimSuffix(w, "s")} {
		if contains(roleWords, form) {
			return form, true
		}
	}
	return "", false
}

// An assent is what a sentence says about approval beside its main verb.
type assent uint8

const (
	notSaid assent = iota
	noneNeeded
	needed     // "with approval"
	onlyNeeded // "only with approval", "unless approved"
)

var noApproval = table(`
without first? <approval>
without first? asking|consulting|checking_with|confirming_with|telling|notifying <who>? first?
without being explicitly? approved|asked|confirmed|told
without <who> approving|confirming|knowing|agreeing
unprompted
`)

var withApproval = table(`
with|after|upon|on|given|pending|following|under <approval>
subject_to <approval>
if|when|once|after|provided|as_long_as <who> has|have? explicitly? approve|approves|approved|agree|agrees|agreed|confirm|confirms|confirmed|allow|allows|allowed it|this|them?
if|when|once|after it|they|this? is|are|has_been|have_been|being? explicitly? approved|confirmed|authorized by? <who>?
`)

var unlessApproved = table(`
only with|after|upon|on|given|following|under <approval>
only if|when|once|after <who> has|have? explicitly? approve|approves|approved|agree|agrees|agreed|confirm|confirms|confirmed|allow|allows|allowed it|this|them?
only if|when|once|after it|they|this? is|are|has_been|have_been|being? explicitly? approved|confirmed|authorized|asked|told|requested by? <who>?
only if|when <who> explicitly? ask|asks|asked|request|requests|requested for? it|this|that?
unless|until <who> has|have|had? explicitly? approve|approves|approved|agree|agrees|agreed|confirm|confirms|confirmed|allow|allows|allowed|say|says|said|ask|asks|asked|request|requests|requested|tell|tells|told so|it|this|them|you|for? so|it|this|that? to?
unless|until it|they|this|you? is|are|has_been|have_been|being|been? explicitly|first? approved|confirmed|authorized|asked|told|requested|instructed to|by? <who>? to|otherwise?
unless|until with|after? <approval> has_been|is|was? given|granted|obtained|received?
unless|until you|it|the_agent have|has|get|gets|got|received|receive|receives <approval>
`)

// assent moves over a phrase about approval.
func (p *parser) assent(q *quorum) assent {
	start := p.i
	p.accept(",")
	p.accept("but", "and")
	for _, c := range []struct {
		phrases func() []phrase
		is      assent
	}{{noApproval, noneNeeded}, {unlessApproved, onlyNeeded}, {withApproval, needed}} {
		if p.matchAny(c.phrases(), q) {
			return c.is
		}
	}
	p.i = start
	return notSaid
}
