package policy

import (
	"fmt"
	"strings"
	"unicode"

	"ringfence/internal/act"
	"ringfence/internal/act/display"
	"ringfence/internal/act/popular"
)

// Bounds on what a reason holds, so that a resource or a policy cannot flood the
// one who reads it.
const (
	mostReasonText = 300 // bytes of one quoted text
	mostReasons    = 3   // resources that a summary speaks of
)

// ForAgents ends every reason of a denial. It is for an agent: a person who reads the reason
// can do more than that.
const ForAgents = "Retrying will not help: do without it, or tell the person what stands in the way."

// A saying is what is said of an effect that is not allowed: "needs approval by …".
type saying struct {
	effect act.Effect
	text   string
}

// note keeps what is said of e, and returns it as a sentence.
func (d *decider) note(e act.Effect, text string) string {
	d.said = append(d.said, saying{e, text})
	if text == "" {
		return ""
	}
	return visible(e.String()) + " " + text
}

// reason says why an effect is not allowed; "" if it is.
func reason(e EffectDecision, answers []answer) string {
	if e.Verdict == act.Allow {
		return ""
	}
	if e.Verdict == act.Escalate {
		var asked []string
		for _, a := range e.Ask {
			asked = append(asked, a.String())
		}
		return "needs approval by " + strings.Join(asked, " and ") + resemblance(e.Effect.Resource)
	}
	var parts []string
	for i := range answers {
		a := &answers[i]
		at := ""
		if a.at != "" {
			at = " at " + visible(a.at)
		}
		switch {
		case a.verdict >= act.Escalate:
		case len(a.errs) > 0:
			parts = append(parts, "cannot be judged: "+visible(a.errs[0].Error()))
		case len(a.rules) > 0:
			parts = append(parts, "is forbidden"+at+" by "+a.rules[0].String())
		case a.layer.grants:
			parts = append(parts, "is allowed"+at+" by no rule of the policy ("+Default+")"+a.unlimited())
		default:
			parts = append(parts, fmt.Sprintf("is not%s among what the %s policy leaves allowed (%s)", at, a.layer.name, a.layer.prefix(Default)))
		}
	}
	return strings.Join(parts, ", and ") + resemblance(e.Effect.Resource)
}

// resemblance says which popular package's name a package nearly has.
func resemblance(r act.Resource) string {
	if r.Type != act.Package {
		return ""
	}
	if of := popular.Resembles(r.Text); of != "" {
		return "; its name resembles that of " + of
	}
	return ""
}

// unlimited says that a limit stands in the way of a tree, and what would not.
func (a *answer) unlimited() string {
	if a.once == nil {
		return ""
	}
	return ": " + a.once.String() + " allows a number of times, and all beneath a place is not one of them; ask for one thing at a time, or say “with approval” in that sentence"
}

// summary joins what is said of effects, each thing once, and adds what the agent can
// do. One resource may be read, changed and deleted: it is named once.
func summary(v act.Verdict, said []saying) string {
	if v == act.Allow {
		return ""
	}
	var sentences []string
	left, room := 0, mostReasons
	for len(said) > 0 {
		text := said[0].text
		var same, others []saying
		for _, s := range said {
			if s.text == text {
				same = append(same, s)
			} else {
				others = append(others, s)
			}
		}
		things, n := resources(same, room)
		left += n
		room -= len(things)
		for i, thing := range things {
			if i == 0 {
				sentences = append(sentences, thing+" "+text)
			} else {
				sentences = append(sentences, "likewise "+thing)
			}
		}
		said = others
	}
	if left > 0 {
		sentences = append(sentences, "and "+display.Count(left, "more effect", "more effects"))
	}
	s := strings.Join(sentences, "; ") + "."
	if v == act.Escalate {
		return s
	}
	return "denied: " + s + " " + ForAgents
}

// resources names the effects of said, at most room resources with what is done to
// them, and returns how many effects that leaves out.
func resources(said []saying, room int) (things []string, left int) {
	for len(said) > 0 {
		one := said[0].effect
		var kinds []string
		var others []saying
		for _, s := range said {
			if e := s.effect; e.Tree != one.Tree || e.Resource.Type != one.Resource.Type || e.Resource.Text != one.Resource.Text {
				others = append(others, s)
			} else {
				kinds = appendNew(kinds, string(e.Kind))
			}
		}
		if len(things) == room {
			return things, len(said)
		}
		if last := len(kinds) - 1; last > 0 {
			kinds = []string{strings.Join(kinds[:last], ", ") + " and " + kinds[last]}
		}
		one.Kind = act.Kind(kinds[0])
		things = append(things, visible(one.String()))
		said = others
	}
	return things, 0
}

// String names the rule for a reader: its id, and the sentence it comes from.
func (r *rule) String() string {
	return describe(r.id, r.clause.line, r.clause.text, r.clause.because)
}

// String names the clause for a reader.
func (a Asked) String() string {
	s := describe(a.Clause, a.Line, a.Text, a.Because)
	if a.Quorum.Count > 1 || a.Quorum.Role != "" {
		s += " [" + visible(a.Quorum.String()) + "]"
	}
	return s
}

func describe(id string, line int, text, because string) string {
	s := id
	switch {
	case text != "" && line > 0:
		s += fmt.Sprintf(" (line %d: “%s”)", line, visible(text))
	case text != "":
		s += fmt.Sprintf(" (%s)", visible(text))
	}
	if because != "" {
		s += ", because " + visible(because)
	}
	return s
}

// visible returns s with everything that does not print made visible, and not
// longer than a reason may quote.
func visible(s string) string {
	var b strings.Builder
	for _, c := range s {
		if b.Len() >= mostReasonText {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(c) {
			b.WriteRune(c)
		} else {
			fmt.Fprintf(&b, `\u{%x}`, c)
		}
	}
	return b.String()
}
