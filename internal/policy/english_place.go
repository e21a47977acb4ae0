package policy

import (
	"slices"
	"strings"

	"ringfence/internal/act"
)

// places says what on names, of resources of the given types. The noun stands
// before each kind of place, sites and people come after prep.
func places(noun, prep string, on []Pattern, types []act.ResourceType) string {
	var leads []string
	groups := map[string][]string{} // by the word that leads to what is named
	for _, p := range on {
		if !slices.Contains(types, p.Type) {
			continue
		}
		lead, what := p.place(prep)
		if !slices.Contains(leads, lead) {
			leads = append(leads, lead)
		}
		if !slices.Contains(groups[lead], what) {
			groups[lead] = append(groups[lead], what)
		}
	}
	var said []string
	for _, lead := range leads {
		if lead == "" && noun != "anything" { // it has its own noun
			said = append(said, things(groups[lead]))
		} else {
			said = append(said, strings.TrimSpace(strings.TrimSpace(noun+" "+lead)+" "+list(groups[lead])))
		}
	}
	return strings.Join(said, " and ")
}

// things lists what has a noun of its own, "npm and pypi packages".
func things(words []string) string {
	const noun = " packages"
	var short []string
	for _, w := range words {
		if s, ok := strings.CutSuffix(w, noun); ok {
			short = append(short, s)
		}
	}
	if len(short) == len(words) {
		return list(short) + noun
	}
	return list(words)
}

// list joins with commas and "and".
func list(words []string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

func join(lead string, words []string, with string) string {
	var all []string
	for _, w := range words {
		all = append(all, lead+w)
	}
	return strings.Join(all, with)
}

// place says what a pattern matches, and the word that leads to it: prep for
// sites and people, none for what has a noun of its own.
func (p Pattern) place(prep string) (lead, what string) {
	switch p.Type {
	case act.Path, act.Repo:
		return p.file()
	case act.URL, act.Host, act.Remote, act.Recipient:
		switch {
		case p.Not && p.Type == act.Recipient:
			prep += " anyone outside"
		case p.Not:
			prep = "outside"
		}
		return prep, p.ref() + p.site()
	default:
		if p.Not {
			return "anything but", p.thing()
		}
		return "", p.thing()
	}
}

// thing names what has a noun of its own.
func (p Pattern) thing() string {
	if p.Type == act.Command {
		return p.program()
	}
	if registry, ok := strings.CutSuffix(p.Package, ":*"); ok {
		return registry + " packages"
	}
	s := p.Package + p.Exact + p.Name + p.List
	if s != "" && (p.Type == act.Secret || p.Type == act.Model) {
		s = "the " + restNouns[p.Type] + " " + s
	}
	return p.orAny(s)
}

// orAny returns what names a resource, or where nothing does, any of its type.
func (p Pattern) orAny(s string) string {
	if s == "" {
		return "any " + restNouns[p.Type]
	}
	return s
}

func (p Pattern) file() (lead, what string) {
	in, named := "in", "named"
	if p.Not {
		in, named = "outside", "not named"
	}
	switch {
	case p.Beneath != "" && strings.Contains(p.Name, "*"):
		return in, strings.Replace(rooted(p.Beneath), "the workspace", ".", 1) + "/" + p.Name
	case p.Beneath == "${workspace}" && strings.Contains(p.Name, ".") && !p.Not:
		return "", p.Name
	case p.Beneath != "" && p.Name != "":
		return named, p.Name + " " + in + " " + rooted(p.Beneath)
	case p.Beneath != "":
		return in, rooted(p.Beneath)
	case p.Name != "":
		return named, p.Name
	case p.List != "":
		return in, p.List
	case p.Exact != "":
		return in, rooted(strings.TrimPrefix(p.Exact, "repo:"))
	}
	return "anywhere", ""
}

func (p Pattern) program() string {
	switch {
	case p.Beneath != "" && p.Name != "":
		return rooted(p.Beneath) + "/" + p.Name
	case p.Beneath != "":
		return "the programs in " + rooted(p.Beneath)
	}
	return p.orAny(rooted(p.Exact) + p.Name + p.List)
}

func (p Pattern) site() string {
	if p.Ref != "" {
		return p.Site + p.Prefix + p.Exact + p.List
	}
	return p.orAny(p.Site + p.Prefix + p.Exact + p.List)
}

// ref names the branches or tags of a remote.
func (p Pattern) ref() string {
	if p.Ref == "" {
		return ""
	}
	kind, name := "branches", strings.TrimPrefix(p.Ref, "refs/heads/")
	if tag, ok := strings.CutPrefix(p.Ref, "refs/tags/"); ok {
		kind, name = "tags", tag
	}
	s := kind + " named " + name
	if p.site() != "" {
		s += " of "
	}
	return s
}

// rooted writes a path with its root as people do.
func rooted(p string) string {
	switch {
	case p == "${workspace}":
		return "the workspace"
	case strings.HasPrefix(p, "${workspace}/"):
		return "." + strings.TrimPrefix(p, "${workspace}")
	case strings.HasPrefix(p, "${home}"):
		return "~" + strings.TrimPrefix(p, "${home}")
	}
	return p
}
