package desk

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"ringfence/internal/act"
)

const (
	maxLine   = 4096 // bytes shown of one effect or clause
	maxName   = 256  // bytes shown of a name
	argsWidth = 96   // bytes on one line of quoted arguments
)

// quoteMark starts every line that holds text of the agent's.
const quoteMark = "  | "

// maxPreview is how many bytes of the arguments are shown where there can be many questions.
const maxPreview = 4096

// Preview returns q with the beginning of its arguments only.
func Preview(q Question) Question {
	if len(q.Args) <= maxPreview {
		return q
	}
	cut := maxPreview
	for cut > 0 && !utf8.RuneStart(q.Args[cut]) {
		cut--
	}
	q.ArgsBytes, q.Args = max(q.ArgsBytes, len(q.Args)), q.Args[:cut]
	return q
}

// Render returns q as people read it: what would happen, why they are asked,
// and the agent's own words on marked lines. Lines end in "\n"; no other
// character of the result is a control, whatever q holds.
func Render(q Question) string {
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }

	line("Question %s: may the agent do this?", Visible(q.ID, maxName))
	line("")
	line("  agent    %s, session %s", Visible(q.Principal, maxName), Visible(q.Session, maxName))
	if q.Tool != "" {
		line("  tool     %s", Visible(q.Tool, maxName))
	}
	line("  would    %s", counted(len(q.Effects), "effect"))
	for _, d := range deeds(q.Effects) {
		beneath := ""
		if d.tree {
			beneath = "everything beneath " // before the agent's words, so that they cannot claim or deny it
		}
		line("           %-10s %s%s", strings.Join(d.kinds, ", "), beneath, Visible(d.text, maxLine))
	}
	if slices.ContainsFunc(q.Effects, func(e act.Effect) bool { return e.Tree && e.Is(act.Mutate) }) {
		line("           a yes is for all of this, however often, until it has ended")
	}
	line("  asked by")
	for _, c := range q.Clauses {
		line("           %s  %s", Visible(c.ID, maxName), Visible(c.Text, maxLine))
		line("               %s", quorum(c))
	}
	if q.Calls > 1 {
		line("  calls    %d identical calls wait", q.Calls)
	}
	renderArgs(&b, q)
	line("  until    %s; no answer by then is a no", q.Deadline.Format("15:04:05 MST"))
	return b.String()
}

// A deed is everything that would be done to one resource.
type deed struct {
	kinds []string
	resource
}

type resource struct {
	on   act.ResourceType
	text string
	tree bool
}

// deeds returns what effects come to, each resource once.
func deeds(effects []act.Effect) []deed {
	var all []deed
	at := map[resource]int{}
	for _, e := range effects {
		r := resource{e.Resource.Type, e.Resource.Text, e.Tree}
		i, known := at[r]
		if !known {
			i = len(all)
			at[r], all = i, append(all, deed{resource: r})
		}
		if kind := Visible(string(e.Kind), maxName); !slices.Contains(all[i].kinds, kind) {
			all[i].kinds = append(all[i].kinds, kind)
		}
	}
	return all
}

// RenderScopes returns how q can be answered for the session, as lines like those of
// [Render]; "" if it cannot.
func RenderScopes(q Question) string {
	if len(q.Scopes) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  for this session: \"approve %s --for session --scope N\"\n", Visible(q.ID, maxName))
	for i, s := range q.Scopes {
		fmt.Fprintf(&b, "        %d  %-10s %s\n", i+1, Visible(s.Form, maxName), Visible(s.Text, maxLine))
		if s.Such != "" {
			fmt.Fprintf(&b, "           such as    %s\n           but not    %s\n", Visible(s.Such, maxLine), Visible(s.Not, maxLine))
		}
	}
	return b.String()
}

func quorum(c Clause) string {
	who := "one person"
	if n := max(c.Count, 1); n > 1 {
		who = fmt.Sprintf("%d different people (users of this machine, each counts once)", n)
	}
	if c.Role != "" {
		who += " of role " + Visible(c.Role, maxName)
	}
	if c.Have > 0 {
		who += fmt.Sprintf("; %d so far", c.Have)
	}
	return "needs " + who
}

func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// renderArgs quotes the arguments. They are broken into lines by us alone: a
// line feed of the agent's is shown, not obeyed.
func renderArgs(b *strings.Builder, q Question) {
	if q.Args == "" {
		return
	}
	cut := ""
	if q.ArgsBytes > len(q.Args) {
		cut = fmt.Sprintf(", the first %d of %d bytes", len(q.Args), q.ArgsBytes)
	}
	fmt.Fprintf(b, "  arguments, in which words of the agent can be; none of them is ours%s:\n", cut)
	text, _ := visible(q.Args, 16*len(q.Args)) // no character takes more
	for len(text) > 0 {
		n := min(argsWidth, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		b.WriteString(quoteMark + text[:n] + "\n")
		text = text[n:]
	}
}
