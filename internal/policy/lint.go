package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

// The kinds of [Finding].
const (
	FindDuplicate     = "duplicate"     // another clause says the same
	FindDead          = "dead"          // another clause forbids all that this one allows
	FindShadowed      = "shadowed"      // another clause allows without approval what this one allows with
	FindContradiction = "contradiction" // another clause asks before all that this one allows
	FindNoEffect      = "no-effect"     // it grants, in a layer that cannot
	FindMissingList   = "missing-list"  // a list that does not exist: nothing is in it
	FindUnknownTool   = "unknown-tool"  // a tool that no server has
)

// A Finding is what lint has to say about one clause.
type Finding struct {
	Clause  string
	Line    int
	Kind    string // one of the Find constants
	Message string
	Other   string // the other clause, if two are concerned
}

// LintOptions are what lint knows besides the clauses.
type LintOptions struct {
	Lower bool     // the clauses are of a layer below the granting one
	Lists []string // names of lists that exist, without @
	Tools []string // "server.tool" of every known tool; nil skips the check
}

// Lint returns findings in the order of the clauses. A finding is certain; that
// there is none says nothing about clauses with conditions or exceptions.
func Lint(clauses []Clause, o LintOptions) []Finding {
	var found []Finding
	alone := !o.Lower || slices.ContainsFunc(clauses, func(c Clause) bool { return c.Rest == RestAll })
	for i, c := range clauses {
		add := func(kind, other, format string, args ...any) {
			found = append(found, Finding{c.ID, c.Line, kind, fmt.Sprintf(format, args...), other})
		}
		if c.Modality == May && !alone {
			add(FindNoEffect, "", "it grants nothing here: a layer below the granting one only narrows")
		}
		for _, l := range c.lists() {
			if name := strings.TrimPrefix(l, "@"); !slices.Contains(o.Lists, name) {
				add(FindMissingList, "", "there is no list @%s, so nothing is in it%s", name, meant(name, o.Lists))
			}
		}
		for _, t := range c.unknownTools(o.Tools) {
			add(FindUnknownTool, "", "no server has the tool %s%s", t, meant(t, o.Tools))
		}
		for j, d := range clauses {
			if i == j || c.ID == d.ID {
				continue
			}
			switch kind := c.against(d); {
			case kind == FindDuplicate && j < i:
				add(kind, d.ID, "%s says the same", d.ID)
			case kind == FindDead:
				add(kind, d.ID, "it never applies: %s forbids all that it allows", d.ID)
			case kind == FindContradiction:
				add(kind, d.ID, "%s asks before all that it allows", d.ID)
			case kind == FindShadowed:
				add(kind, d.ID, "nobody is asked: %s allows all of it without approval", d.ID)
			}
		}
	}
	return found
}

func meant(word string, valid []string) string {
	if near := strictjson.Nearest(word, valid); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// against says what d makes of c, "" for nothing that is certain.
func (c *Clause) against(d Clause) string {
	if c.key() == d.key() {
		return FindDuplicate
	}
	if c.Rest == RestAll || d.Rest == RestAll || !d.covers(c) {
		return ""
	}
	allows := c.Modality == May || c.Modality == MayWithApproval
	switch {
	case allows && d.Modality == MustNever:
		return FindDead
	case c.Modality == May && d.Modality == MustAsk:
		return FindContradiction
	case c.Modality == MayWithApproval && d.Modality == May && d.Limit == nil && d.Expires == nil:
		return FindShadowed
	}
	return ""
}

// key is what c says, without where and in which words.
func (c Clause) key() string {
	c.ID, c.Line, c.Column, c.Text, c.Because, c.Notes, c.Covers = "", 0, 0, "", "", nil, nil
	text, err := json.Marshal(c)
	return fmt.Sprint(string(text), err)
}

// covers reports whether c certainly matches whatever o matches.
func (c *Clause) covers(o *Clause) bool {
	if len(c.When) > 0 || len(c.Except) > 0 || !within(o.Who, c.Who) || !within(o.Groups, c.Groups) || !within(o.Kinds, c.Kinds) {
		return false
	}
	if len(c.Tools) > 0 && (len(o.Tools) == 0 || len(missingFrom(o.Tools, c.Tools)) > 0) {
		return false
	}
	if len(c.On) == 0 {
		return true
	}
	return len(o.On) > 0 && !slices.ContainsFunc(o.On, func(p Pattern) bool {
		return !slices.ContainsFunc(c.On, func(q Pattern) bool { return q.covers(p) })
	})
}

// within reports whether whoever is among some is among all; an empty list is
// everybody.
func within[T comparable](some, all []T) bool {
	if len(all) == 0 {
		return true
	}
	return len(some) > 0 && !slices.ContainsFunc(some, func(s T) bool { return !slices.Contains(all, s) })
}

// missingFrom returns those of tools that are not among known, in which
// "server.*" stands for every tool of a server, and not for what it asks.
func missingFrom(tools, known []string) []string {
	return slices.DeleteFunc(slices.Clone(tools), func(t string) bool {
		server, tool, _ := strings.Cut(t, ".")
		return slices.Contains(known, t) || slices.Contains(known, server+".*") && !IsAsked(tool)
	})
}

// unknownTools returns the tools of c that are not among known, and "server.*" and
// methods of a server that has none.
func (c *Clause) unknownTools(known []string) []string {
	if known == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Tools), func(t string) bool {
		server, all := strings.CutSuffix(t, "*")
		if before, tool, _ := strings.Cut(t, "."); IsMethod(tool) {
			server, all = before+".", true
		}
		return slices.ContainsFunc(known, func(k string) bool { return k == t || all && strings.HasPrefix(k, server) })
	})
}

// lists returns the lists that c names.
func (c *Clause) lists() []string {
	var all []string
	add := func(on []Pattern) {
		for _, p := range on {
			if p.List != "" && !slices.Contains(all, p.List) {
				all = append(all, p.List)
			}
		}
	}
	add(c.On)
	for _, e := range c.Except {
		add(e.On)
	}
	return all
}

// covers reports whether p certainly matches whatever q matches.
func (p Pattern) covers(q Pattern) bool {
	switch {
	case p == q:
		return true
	case p.Type != q.Type || p.Not || q.Not || p.Ref != "" && p.Ref != q.Ref || p.Name != "" && p.Name != q.Name:
		return false
	case p.Beneath != "":
		return inDir(q.Beneath, p.Beneath) || inDir(strings.TrimPrefix(q.Exact, "repo:"), p.Beneath)
	case p.Site != "":
		return inSite(q.Site, p.Site)
	case p.Prefix != "":
		return inDir(q.Prefix, p.Prefix)
	case p.Package != "":
		return strings.HasSuffix(p.Package, "*") && strings.HasPrefix(q.Package, strings.TrimSuffix(p.Package, "*"))
	}
	return p.Exact == "" && p.List == ""
}

func inDir(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

func inSite(s, site string) bool {
	if n, err := netip.ParsePrefix(site); err == nil {
		a, err := netip.ParseAddr(s)
		return err == nil && n.Contains(a)
	}
	if domain, ok := strings.CutPrefix(site, "*."); ok {
		return s == domain || strings.HasSuffix(s, "."+domain)
	}
	return s == site
}
