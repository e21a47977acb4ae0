package policy

import (
	"slices"
	"strings"

	"ringfence/internal/act"
)

// places says what on names, of resources of the given types. Sites and people
// come after prep.
func places(prep string, on []Pattern, types []act.ResourceType) string {
	var said, but []string
	add := func(to *[]string, s string) {
		if !slices.Contains(*to, s) {
			*to = append(*to, s)
		}
	}
	for _, p := range on {
		switch s := p.place(prep); {
		case !slices.Contains(types, p.Type):
		case p.Not && !strings.Contains(s, "outside "):
			add(&but, s)
		default:
			add(&said, s)
		}
	}
	if but != nil {
		said = append(said, "anything but "+list(but))
	}
	if len(said) == 0 {
		return ""
	}
	return " " + list(shorten(said))
}

// shorten leaves out the first word of all but the first, if it is always the
// same.
func shorten(said []string) []string {
	lead, _, _ := strings.Cut(said[0], " ")
	short := slices.Clone(said)
	for i := 1; i < len(said); i++ {
		rest, ok := strings.CutPrefix(said[i], lead+" ")
		if !ok {
			return said
		}
		short[i] = rest
	}
	return short
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

// place says what a pattern matches, after a preposition: prep for sites and
// people. Not is said with "outside", and left to the caller where that makes no
// sense.
func (p Pattern) place(prep string) string {
	switch p.Type {
	case act.Path, act.Repo:
		return p.file()
	case act.Command:
		return p.program()
	case act.URL, act.Host, act.Remote, act.Recipient:
		if p.Not && p.Type == act.Recipient {
			prep += " anyone outside"
		} else if p.Not {
			prep = "outside"
		}
		return strings.TrimSpace(prep + " " + p.ref() + p.site())
	default:
		if registry, ok := strings.CutSuffix(p.Package, ":*"); ok {
			return registry + " packages"
		}
		return p.orAny(p.Package + p.Exact + p.Name + p.List)
	}
}

// orAny returns what names a resource, or where nothing does, any of its type.
func (p Pattern) orAny(s string) string {
	if s == "" {
		return "any " + restNouns[p.Type]
	}
	return s
}

func (p Pattern) file() string {
	in := "in"
	if p.Not {
		in = "outside"
	}
	switch {
	case p.Beneath != "" && p.Name != "":
		return in + " " + rooted(p.Beneath) + "/" + p.Name
	case p.Beneath != "":
		return in + " " + rooted(p.Beneath)
	case p.Name != "":
		return "named " + p.Name
	case p.List != "":
		return in + " " + p.List
	case p.Exact != "":
		return in + " " + rooted(strings.TrimPrefix(p.Exact, "repo:"))
	}
	return "anywhere"
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
