package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/desk"
)

// summaryWidth is how many bytes of a text from elsewhere a line shows.
const summaryWidth = 200

// summary says in a few words what the body of an entry says. An entry whose
// type it does not know is shown as it is. Everything that an agent or a server
// could have written is made visible first.
func summary(kind string, body json.RawMessage) string {
	var b struct {
		Principal string       `json:"principal"`
		Workspace string       `json:"workspace"`
		Source    string       `json:"source"`
		Tool      string       `json:"tool"`
		Server    string       `json:"server"`
		Verb      string       `json:"verb"`
		Effects   []act.Effect `json:"effects"`
		Verdict   string       `json:"verdict"`
		Code      string       `json:"code"`
		Rules     []string     `json:"rules"`
		Reason    string       `json:"reason"`
		Box       any          `json:"box"`
		Approved  any          `json:"approved"`
		By        any          `json:"by"`
		Clauses   []struct {
			Clause string `json:"clause"`
			Text   string `json:"text"`
		} `json:"clauses"`
		Note   string   `json:"note"`
		Ticket string   `json:"ticket"`
		Size   int      `json:"size"`
		Error  string   `json:"error"`
		Labels []string `json:"labels"`
		Why    string   `json:"why"`
	}
	if json.Unmarshal(body, &b) != nil {
		return show(string(body))
	}
	switch kind {
	case "session-start":
		return fmt.Sprintf("%s in %s, policy %s, box: %s", show(b.Principal), show(b.Workspace), show(b.Source), shortBox(b.Box))
	case "session-end":
		return show(b.Why)
	case "box":
		return show(words(b.Server, b.Ticket, strings.TrimPrefix(fmt.Sprint(b.Box), "box: ")))
	case "request":
		return show(words(b.Tool, effectsText(b.Effects)))
	case "question":
		var asked []string
		for _, c := range b.Clauses {
			asked = append(asked, c.Clause+" “"+c.Text+"”")
		}
		return "asks a person: " + show(strings.Join(asked, "; "))
	case "answer":
		return show(words(fmt.Sprintf("approved: %v", b.Approved), b.Code, list(b.By), b.Note))
	case "decision":
		return show(words(b.Verdict, b.Code, strings.Join(b.Rules, " "), "box: "+shortBox(b.Box), b.Reason))
	case "grips":
		return show(gripsText(body))
	case "result":
		return show(words("of "+b.Ticket+":", fmt.Sprintf("%d bytes", b.Size), strings.Join(b.Labels, " "), b.Error))
	}
	return show(string(body))
}

// shortBox is the tier of a box, and what it lacks, out of the line that is on
// record; the entry "box" has the whole.
func shortBox(box any) string {
	text := strings.TrimPrefix(fmt.Sprint(box), "box: ")
	parts := strings.Split(text, "; ")
	short, _, _ := strings.Cut(parts[0], ":")
	for _, p := range parts[1:] {
		if strings.HasPrefix(p, "missing: ") || p == "permissive" {
			short += "; " + p
		}
	}
	return short
}

// words joins what is not empty.
func words(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func list(v any) string {
	all, _ := v.([]any)
	var out []string
	for _, x := range all {
		out = append(out, fmt.Sprint(x))
	}
	return strings.Join(out, ", ")
}

func effectsText(effects []act.Effect) string {
	var out []string
	for _, e := range effects {
		out = append(out, e.String())
	}
	return strings.Join(out, ", ")
}

func show(s string) string { return desk.Visible(s, summaryWidth) }
