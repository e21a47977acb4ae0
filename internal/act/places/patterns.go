package places

import (
	"iter"
	"maps"
	"slices"
)

// A Grade says how a [Pattern] counts.
type Grade uint8

// The grades.
const (
	Free   Grade = iota // it is not held, whatever weaker patterns say
	Holds               // it is held, but within installed packages
	Always              // it is held
)

// A Pattern is one row of what [Roots.Held] goes by, for tiers that must write it
// down in a language of their kernel.
type Pattern struct {
	// Names are the components, in lower case, as in the tables: "*" is any run of
	// characters of one component, "**" any number of components, and at the end
	// everything beneath and the directory itself.
	Names string
	Home  bool // begins in the home; else in any directory
	Grade Grade
	// Hidden is the pattern of all that is hidden in a home. It does not count for
	// trees that are themselves within the home.
	Hidden bool
}

// Patterns yields what is held, the strongest first: of those that a path is at, the
// first one counts. What is held by its place in the root directory is left out: no
// such pattern counts within a tree that is worked in.
func Patterns() iter.Seq[Pattern] {
	return func(yield func(Pattern) bool) {
		for _, rows := range [...][]row{boxed[:], table[:]} {
			for _, r := range rows {
				p := Pattern{Names: r.pattern, Home: r.at == inHome, Hidden: r.pattern == anyHidden}
				switch r.kind {
				case always:
					p.Grade = Always
				case held, later:
					p.Grade = Holds
				case public:
				default:
					continue
				}
				if r.at != inRoot && !yield(p) {
					return
				}
			}
		}
	}
}

// Packages are the names of the directories that package managers fill: beneath one
// of them, in the tree that is worked in, only patterns of grade [Always] count.
func Packages() []string { return slices.Sorted(maps.Keys(packages)) }
