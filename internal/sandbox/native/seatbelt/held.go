package seatbelt

import (
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act/places"
)

// What the language cannot say of held names, as in Profile.Lacks.
const (
	lackBare       = "held-names=bare-repositories"
	lackPackages   = "held-names=packages"
	lackSubmodules = "held-names=submodules"
	lackSpellings  = "held-names=hfs-spellings"
)

var lackReasons = map[string]string{
	lackBare:       "a profile knows names, and a repository that is not called .git is known by what is in it",
	lackPackages:   "what packages bring along in node_modules and the like is not held, and a package can be moved out of there",
	lackSubmodules: "directories further down in .git/modules and .jj can be replaced as a whole, such as that of a submodule whose name has a slash",
	lackSpellings:  "HFS+ ignores characters that do not show; on such a volume a name with one stands for the name without; APFS is not affected",
}

// hold writes what can be neither made nor changed: the places that are held, and what
// the host runs later. It comes after all that allows writing.
func (w *writer) hold() {
	if len(w.writable()) == 0 {
		return
	}
	if len(w.rules.Held) > 0 {
		w.held = true
		w.out.WriteString("\n; held\n")
		for _, p := range w.rules.Held {
			w.rule("deny", writing, w.trees(p)...)
		}
	}
	if w.rules.Later {
		return
	}
	w.held = true
	maps.Copy(w.lacks, lackReasons)
	w.out.WriteString("\n; what the host runs later\n")
	g := heldGroup{}
	for p := range places.Patterns() {
		if p.Hidden && !w.homeWithin() {
			continue
		}
		match, onTheWay, ok := w.expressions(p)
		if !ok {
			continue
		}
		if p.Grade == places.Free || p.Hidden || p.Grade != g.grade {
			w.group(g)
			g = heldGroup{grade: p.Grade, free: g.free}
		}
		// A pattern that is not anchored where it should be would let too much pass.
		if exact := !p.Home || plain(w.rules.Home); p.Grade == places.Free && exact {
			g.free = append(g.free, regex(match))
		}
		if p.Grade == places.Free {
			continue
		}
		if p.Hidden {
			w.group(heldGroup{grade: p.Grade, names: []string{regex(match)}, free: append(w.withinHome(), g.free...)})
			continue
		}
		g.names = append(g.names, regex(match))
		for _, expr := range onTheWay {
			g.onTheWay = append(g.onTheWay, regex(expr))
		}
	}
	w.group(g)
}

// A heldGroup are patterns that have the same exceptions: the first pattern that a path
// is at counts, so those before it that let pass, and installed packages.
type heldGroup struct {
	grade                 places.Grade
	names, onTheWay, free []string
}

func (w *writer) group(g heldGroup) {
	if len(g.names) == 0 {
		return
	}
	free := g.free
	if g.grade != places.Always {
		free = slices.Concat(free, w.installed())
	}
	var but strings.Builder
	for _, f := range free {
		but.WriteString(" (require-not " + f + ")")
	}
	write := func(operations string, filters []string) {
		if len(free) == 0 {
			w.rule("deny", operations, filters...)
			return
		}
		w.rule("deny", operations, "(require-all (require-any\n  "+strings.Join(filters, "\n  ")+")\n "+but.String()+")")
	}
	write(writing, g.names)
	// A directory that comes under such a name with all that is in it, or goes: making
	// one and moving one there are the same operation to Seatbelt.
	if len(g.onTheWay) > 0 {
		write("file-write-create file-write-unlink", compact(g.onTheWay))
	}
}

func compact(filters []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, f := range filters {
		if !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	return out
}

// installed returns filters for what is within installed packages of the writable trees.
// A tree whose path cannot stand in an expression has no such exception.
func (w *writer) installed() []string {
	var names, filters []string
	for _, n := range places.Packages() {
		names = append(names, folded(n))
	}
	for _, tree := range w.writable() {
		if at := anchored(tree); at != "" {
			filters = append(filters, regex(at+"/(.*/)?("+strings.Join(names, "|")+")/"))
		}
	}
	return filters
}

// homeWithin reports whether some writable tree holds the home of the person.
func (w *writer) homeWithin() bool {
	for _, tree := range w.writable() {
		if w.rules.Home != "" && beneath(w.rules.Home, tree) {
			return true
		}
	}
	return false
}

// withinHome returns filters for the writable trees that are within the home: nothing
// in them is hidden for being in a hidden directory of it.
func (w *writer) withinHome() []string {
	var filters []string
	for _, tree := range w.writable() {
		if tree != w.rules.Home && beneath(tree, w.rules.Home) {
			for _, s := range spellings(tree) {
				filters = append(filters, "(subpath "+w.str(s)+")")
			}
		}
	}
	return filters
}

// expressions returns an expression for what is at p, and those for the directories on
// the way there. ok is false if p does not count.
func (w *writer) expressions(p places.Pattern) (match string, onTheWay []string, ok bool) {
	start := "/"
	if p.Home {
		if w.rules.Home == "" {
			return "", nil, false
		}
		start = anchored(w.rules.Home) + "/"
	}
	expr := start
	names := strings.Split(p.Names, "/")
	for i, n := range names {
		last := i == len(names)-1
		if n == "**" {
			if last {
				return strings.TrimSuffix(expr, "/") + "(/|$)", onTheWay, true
			}
			onTheWay = append(onTheWay, expr+"[^/]+$")
			expr += "(.*/)?"
			continue
		}
		expr += folded(n)
		if last {
			return expr + "$", onTheWay, true
		}
		if names[i+1] != "**" || i+2 < len(names) {
			onTheWay = append(onTheWay, expr+"$")
		}
		expr += "/"
	}
	return "", nil, false
}
