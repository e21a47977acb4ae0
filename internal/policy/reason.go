package policy

import (
	"fmt"
	"strings"
	"unicode"

	"ringfence/internal/act"
)

// Bounds on what a reason holds, so that a resource or a policy cannot flood the
// one who reads it.
const (
	mostReasonText = 300 // bytes of one quoted text
	mostReasons    = 3   // effects that a summary speaks of
)

// reason says why an effect is not allowed and what to do next; "" if it is.
func reason(e EffectDecision, answers []answer) string {
	if e.Verdict == act.Allow {
		return ""
	}
	what := visible(e.Effect.String())
	if e.Verdict == act.Escalate {
		var asked []string
		for _, a := range e.Ask {
			asked = append(asked, a.String())
		}
		return fmt.Sprintf("%s needs approval by %s", what, strings.Join(asked, " and "))
	}
	var parts []string
	for i := range answers {
		a := &answers[i]
		switch {
		case a.verdict >= act.Escalate:
		case len(a.errs) > 0:
			parts = append(parts, "cannot be judged: "+visible(a.errs[0].Error()))
		case len(a.rules) > 0:
			parts = append(parts, "is forbidden by "+a.rules[0].String())
		case a.layer.grants:
			parts = append(parts, "is allowed by no rule of the policy ("+Default+")")
		default:
			parts = append(parts, fmt.Sprintf("is not among what the %s policy leaves allowed (%s)", a.layer.name, a.layer.prefix(Default)))
		}
	}
	return what + " " + strings.Join(parts, ", and ")
}

// summary joins the reasons of effects and adds what the agent can do.
func summary(v act.Verdict, reasons []string) string {
	if v == act.Allow {
		return ""
	}
	if more := len(reasons) - mostReasons; more > 0 {
		reasons = append(reasons[:mostReasons:mostReasons], fmt.Sprintf("and %d more effects", more))
	}
	s := strings.Join(reasons, "; ")
	if v == act.Escalate {
		return "approval needed: " + s + "."
	}
	return "denied: " + s + ". Retrying will not help: do without it, or tell the person which rule stands in the way."
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
