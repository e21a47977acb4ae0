package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/desk"
	"ringfence/internal/policy"
	"ringfence/internal/policy/draft"
)

// maxShown bounds how much of a name is shown, in bytes.
const maxShown = 160

// annotationText shows an annotation for people, a tool at a time, with the doubts
// where they belong. Names are shown as package desk shows what strangers wrote.
func annotationText(a policy.Annotation, doubts []draft.Doubt) string {
	var b strings.Builder
	of := map[string][]draft.Doubt{}
	for _, d := range doubts {
		of[d.Tool] = append(of[d.Tool], d)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Tools)) {
		toolText(&b, name, a.Tools[name], of[name])
		delete(of, name)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for _, d := range of[name] {
			fmt.Fprintf(&b, "%s is left out\n  ? %s\n", desk.Visible(name, maxShown), desk.Visible(d.Why, maxShown))
		}
	}
	return b.String()
}

func toolText(b *strings.Builder, name string, t policy.ToolAnnotation, doubts []draft.Doubt) {
	fmt.Fprintf(b, "%s%s\n", desk.Visible(name, maxShown), groupText(t))
	tell := func(pointer string) {
		for _, d := range doubts {
			if d.Argument == pointer {
				fmt.Fprintf(b, "  ? %s\n", desk.Visible(d.Why, maxShown))
			}
		}
	}
	tell("")
	for _, pointer := range slices.Sorted(maps.Keys(t.Args)) {
		fmt.Fprintf(b, "    %-18s %s\n", desk.Visible(pointer, maxShown), argText(t.Args[pointer]))
		tell(pointer)
	}
	for _, e := range t.Effects {
		where := desk.Visible(e.On, maxShown)
		if e.On == draft.Somewhere {
			where += ", which stands for anywhere"
		}
		when := "and always"
		if len(e.When) > 0 {
			when = "and sometimes"
		}
		fmt.Fprintf(b, "    %-18s %s %s\n", when, e.Kind, where)
	}
	for _, d := range doubts {
		if _, ok := t.Args[d.Argument]; !ok && d.Argument != "" {
			fmt.Fprintf(b, "    %s\n  ? %s\n", desk.Visible(d.Argument, maxShown), desk.Visible(d.Why, maxShown))
		}
	}
}

// groupText says what a call of t counts as if nothing it is given has an effect.
func groupText(t policy.ToolAnnotation) string {
	for _, a := range t.Args {
		if len(a.Effects) > 0 {
			return ""
		}
	}
	switch {
	case len(t.Effects) > 0:
		return ""
	case t.Group == "":
		return " (may do anything)"
	case t.Group == act.Observe:
		return " (only looks)"
	}
	return fmt.Sprintf(" (%s)", t.Group)
}

func argText(a policy.Arg) string {
	text := string(a.Role)
	var kinds []string
	for _, k := range a.Effects {
		kinds = append(kinds, string(k))
	}
	if len(kinds) > 0 {
		text += ": " + strings.Join(kinds, " ")
	}
	if len(a.When) > 0 {
		text += ", or as other arguments say"
	}
	if a.Tree {
		text += ", and everything beneath"
	}
	return text
}

// count returns "1 tool", "2 tools".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
