// Package seatbelt writes what a box on macOS may do as a profile of Seatbelt, the
// part of its kernel that confines processes, in the language SBPL that
// sandbox-exec(1) reads.
//
// It applies nothing, starts nothing and looks at no file: paths come to it as the
// kernel spells them. What the language cannot say, it says itself ([Profile.Lacks]).
//
// There is no public description of SBPL. What this package relies on is little: a
// profile is a list of rules, of those that match an operation the last one counts,
// and paths are matched after links and letter case were resolved, as the kernel has
// them in its name cache.
//
// Invariants:
//
//	S1  A profile denies what no rule allows.
//	S2  No path changes the structure of a profile: it stands in a string of its own
//	    or is refused (see quote), and never in a regular expression as it is.
//	S3  What comes later in a profile is longer or narrower: a path that several rules
//	    are about is as the longest says, and what is held stays held.
//	S4  Where a rule cannot be written exactly, what holds back says too much and what
//	    allows says too little.
package seatbelt

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Mode says what may be done with a path. The zero Mode is nothing.
type Mode uint8

// The modes.
const (
	Nothing Mode = iota
	Read         // and execute
	Write        // and read and execute
)

// A Place is a file, or a tree.
type Place struct {
	// Path is clean, absolute, and as the kernel spells it: without links, and in the
	// letter case of the volume.
	Path string
	// Rest is what follows Path and does not exist, "a/b". It is matched whatever its
	// letter case. Only of what is denied and held may there be no more than a part.
	Rest string
	Mode Mode
}

// A Network says what may be connected to. The zero Network is nothing.
type Network uint8

// The networks.
const (
	NoNetwork   Network = iota
	OnlyEgress          // the Unix socket Rules.Egress
	OpenNetwork         // all Internet addresses; still no Unix sockets
)

// Rules are what a profile says. The zero Rules allow programs of the system to run,
// and nothing else.
type Rules struct {
	Places []Place
	// Held are places in writable trees that can be neither made nor changed nor
	// removed nor moved, nor can what they are in.
	Held []Place
	// Later lifts the hold on what the host runs later.
	Later bool
	// Home is the home of the person, "" for none.
	Home string
	// Stat are paths that may be looked at (stat(2)) but not into: links on the way to
	// what is allowed. The parents of what is allowed are added.
	Stat    []string
	Network Network
	Egress  string // with OnlyEgress
	// Terminal is the device of the box's own terminal, "" for none.
	Terminal string
	// Wide allows what runtimes of agents and servers need besides: named semaphores,
	// and terminals of their own.
	Wide bool
}

// A Profile is what is handed to the kernel, and what it does not do.
type Profile struct {
	Text string
	// Lacks says what the rules ask for and the text does not say, by a short name,
	// with the reason.
	Lacks map[string]string
	// Holds reports that the profile holds names.
	Holds bool
}

// maxText is the longest profile, in bytes: it is an argument of a program.
const maxText = 512 << 10

// operations of each mode.
const (
	reading = "file-read* file-test-existence file-map-executable process-exec"
	writing = "file-write*"
	all     = reading + " " + writing + " file-ioctl network-outbound network-bind"
)

// Compose writes the profile of r. An error says which path cannot stand in a profile.
func Compose(r Rules) (Profile, error) {
	// Lengths and what is beneath what are to be those of the kernel's own spelling.
	r.Places, r.Held = slices.Clone(r.Places), slices.Clone(r.Held)
	for _, list := range [...][]Place{r.Places, r.Held} {
		for i := range list {
			list[i].Path = spellings(list[i].Path)[0]
		}
	}
	if r.Home != "" {
		r.Home = spellings(r.Home)[0]
	}
	w := &writer{rules: r, lacks: map[string]string{}}
	w.out.WriteString(base)
	w.system()
	if r.Wide {
		w.out.WriteString(wide)
	}
	w.places()
	w.hold()
	w.pins()
	w.parents()
	w.network()
	w.terminal()
	if w.err == nil && w.out.Len() > maxText {
		w.err = fmt.Errorf("the profile has %d bytes, at most %d: name fewer paths", w.out.Len(), maxText)
	}
	if w.err != nil {
		return Profile{}, w.err
	}
	return Profile{Text: w.out.String(), Lacks: w.lacks, Holds: w.held}, nil
}

// A writer writes one profile. After the first error what it writes is of no use.
type writer struct {
	rules Rules
	out   strings.Builder
	lacks map[string]string
	held  bool
	err   error
}

// rule writes a rule, if it has a filter: one without would be about everything.
func (w *writer) rule(action, operations string, filters ...string) {
	if len(filters) == 0 {
		return
	}
	fmt.Fprintf(&w.out, "(%s %s", action, operations)
	for _, f := range filters {
		w.out.WriteString("\n  " + f)
	}
	w.out.WriteString(")\n")
}

// str returns p as a string of SBPL.
func (w *writer) str(p string) string {
	q, err := quote(p)
	w.err = cmp.Or(w.err, err)
	return q
}

// literals returns a filter for each spelling of each path.
func (w *writer) literals(paths ...string) []string {
	var filters []string
	for _, p := range paths {
		for _, s := range spellings(p) {
			filters = append(filters, "(literal "+w.str(s)+")")
		}
	}
	return filters
}

// trees returns filters that match p and what is beneath it.
func (w *writer) trees(p Place) []string {
	var filters []string
	for _, s := range spellings(p.Path) {
		tree := "(subpath " + w.str(s) + ")"
		if p.Rest != "" {
			tree = "(require-all " + tree + " " + regex(anchored(s)+"/"+foldedPath(p.Rest)+"(/|$)") + ")"
		}
		filters = append(filters, tree)
	}
	return filters
}

// places writes what the rules name, from the shortest to the longest; of equal ones
// that which allows less comes last.
func (w *writer) places() {
	sorted := w.rules.Places
	slices.SortStableFunc(sorted, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.length(), b.length()), cmp.Compare(b.Mode, a.Mode),
			strings.Compare(a.Path, b.Path), strings.Compare(a.Rest, b.Rest))
	})
	w.out.WriteString("\n; what the box is given\n")
	for _, p := range sorted {
		if p.Path == "/" && p.Mode != Read {
			w.err = cmp.Or(w.err, errors.New("the root directory can be neither writable nor denied as a whole; name the directories"))
		}
		if p.Rest != "" && p.Mode != Nothing {
			w.err = cmp.Or(w.err, fmt.Errorf("%s/%s does not exist", p.Path, p.Rest))
		}
		filters := w.trees(p)
		switch p.Mode {
		case Write:
			w.rule("allow", reading+" "+writing, filters...)
		case Read:
			w.rule("allow", reading, filters...)
			w.rule("deny", writing, filters...)
		default:
			w.rule("deny", all, filters...)
		}
	}
}

func (p Place) length() int {
	if p.Rest == "" {
		return len(p.Path)
	}
	return len(p.Path) + 1 + len(p.Rest)
}

// writable returns the trees that can be written, each once.
func (w *writer) writable() []string {
	var trees []string
	for _, p := range w.rules.Places {
		if p.Mode == Write {
			trees = append(trees, p.Path)
		}
	}
	slices.Sort(trees)
	return slices.Compact(trees)
}

// pins keeps the directories above what is held back where they are: rules are about
// paths, and what is moved has another path.
func (w *writer) pins() {
	trees := w.writable()
	fixed := slices.Clone(w.rules.Held)
	for _, p := range w.rules.Places {
		if p.Mode != Write {
			fixed = append(fixed, p)
		}
	}
	above, absent := map[string]bool{}, map[Place]bool{}
	for _, p := range fixed {
		for d := path.Dir(p.Rest); p.Rest != "" && d != "."; d = path.Dir(d) {
			absent[Place{Path: p.Path, Rest: d}] = true
		}
		d := p.Path
		if p.Rest == "" {
			d = path.Dir(d)
		}
		for ; d != "/"; d = path.Dir(d) {
			if slices.ContainsFunc(trees, func(t string) bool { return beneath(d, t) }) {
				above[d] = true
			}
		}
	}
	var filters []string
	for _, d := range sortedKeys(above) {
		filters = append(filters, w.literals(d)...)
	}
	for p := range absent {
		for _, s := range spellings(p.Path) {
			filters = append(filters, "(require-all (subpath "+w.str(s)+") "+regex(anchored(s)+"/"+foldedPath(p.Rest)+"$")+")")
		}
	}
	slices.Sort(filters)
	if len(filters) > 0 {
		w.out.WriteString("\n; directories that stay where they are\n")
	}
	w.rule("deny", "file-write-create file-write-unlink", filters...)
}

// parents lets the box look at each directory on the way to what it may read, and not
// into it.
func (w *writer) parents() {
	way := map[string]bool{}
	add := func(p string) {
		for _, s := range spellings(p) {
			for d := path.Dir(s); d != "/"; d = path.Dir(d) {
				way[d] = true
			}
		}
	}
	for _, p := range w.rules.Places {
		if p.Mode != Nothing {
			add(p.Path)
		}
	}
	for _, p := range w.rules.Stat {
		way[p] = true
		add(p)
	}
	if w.rules.Egress != "" {
		add(w.rules.Egress)
	}
	var filters []string
	for _, d := range sortedKeys(way) {
		filters = append(filters, "(literal "+w.str(d)+")")
	}
	if len(filters) > 0 {
		w.out.WriteString("\n; on the way there: to look at, not into\n")
	}
	w.rule("allow", "file-read-metadata file-test-existence", filters...)
}

func (w *writer) network() {
	w.out.WriteString("\n; network\n(deny network*)\n")
	switch w.rules.Network {
	case NoNetwork:
	case OnlyEgress:
		if w.rules.Egress == "" {
			w.err = cmp.Or(w.err, errors.New("no way out is named"))
			return
		}
		at := w.literals(w.rules.Egress)
		w.rule("allow", "network-outbound", at...)
		w.rule("allow", "file-read-metadata", at...)
	case OpenNetwork:
		w.out.WriteString(openNetwork)
	default:
		w.err = cmp.Or(w.err, fmt.Errorf("network %d", w.rules.Network))
	}
}

func (w *writer) terminal() {
	if w.rules.Terminal != "" {
		w.out.WriteString("\n; the terminal of the box\n")
		w.rule("allow", "file-read* file-write-data file-ioctl", w.literals(w.rules.Terminal)...)
	}
}

func sortedKeys(set map[string]bool) []string {
	var keys []string
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// beneath reports whether p is dir or lies beneath it.
func beneath(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
