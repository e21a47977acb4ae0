// Package places knows files by their names: those that the host runs or obeys
// later, those that hold credentials, and those that a build runs. The gate asks a
// person about the first, boxes hold them, reviews point at the last.
//
// It looks at nothing but strings: whether a file is there, whether a link leads to
// it, and what is in it are its callers' to find out. It decides nothing.
//
// Invariants:
//
//	P1  The answer depends on the spelling of a path as little as any file system
//	    does: see [Fold].
//	P2  What [Roots.Class] calls runs-later, [Roots.Held] holds, but for the rows
//	    that say why not: tools write there all day, and what is there is run by
//	    commands, not by opening the directory.
//	P3  What [Roots.Class] gives a class, [Roots.Reviewed] points at, with the same
//	    exception, and so is what [Roots.Held] holds.
package places

import (
	"iter"
	"path"
	"strings"
	"sync"
)

// A Class is what the gate makes of a place; the values are those of a fact that
// bedrock rules are about.
type Class string

// The classes. The zero Class is that of an ordinary file.
const (
	Ordinary    Class = ""
	Later       Class = "runs-later"
	Credentials Class = "credentials"
)

// An anchor says where the pattern of a row begins.
type anchor uint8

const (
	anywhere anchor = iota // in any directory
	inHome                 // in the home of the person
	inRoot                 // in the root directory
)

// A kind says who cares about a row.
type kind uint8

const (
	public      kind = iota // nobody, whatever later rows say
	credentials             // the gate
	later                   // the gate and boxes
	asked                   // the gate only: the tools that own the directory write it all day
	held                    // boxes only
	always                  // boxes only, and also within installed packages
	built                   // reviews
)

// class is what the gate makes of a kind.
var class = [...]Class{credentials: Credentials, later: Later, asked: Later, built: Ordinary}

// anyHidden is the pattern of all that is hidden in a home.
const anyHidden = ".*/**"

// A row is one row of a table. The pattern is in lower case; "*" stands for any run
// of characters of one component, "**" for any number of components. At its end
// "**" is everything beneath, and the directory itself.
type row struct {
	at      anchor
	pattern string
	kind    kind
	why     string
}

// Roots say where patterns begin. Both are clean absolute paths, or "".
type Roots struct {
	// Home is that of the person.
	Home string
	// Workspace is the tree that is worked in. What is in it is no part of the
	// machine, even if it is in /opt or /usr, and no setting of the person for being
	// in a hidden directory of the home.
	Workspace string
}

// Class returns what the gate makes of the absolute path p; with whole, of p as a
// directory of which everything comes into being, changes or vanishes at once.
func (r Roots) Class(p string, whole bool) Class {
	if t := r.first(tableIndex(), p, Fold(p), whole, allKinds); t != nil {
		return class[t.kind]
	}
	return Ordinary
}

// Held returns why a box may not make, change, move or remove p, an absolute path
// in the tree that is writable in it; with whole, p as a directory that comes with
// what is in it, or as a link to one. ok is false if it may.
//
// The parts of a repository are held by their names only where the repository is
// called ".git"; ".git" itself is not.
func (r Roots) Held(p string, whole bool) (why string, ok bool) {
	folded := Fold(p)
	t := r.first(boxedIndex(), p, folded, whole, allKinds)
	if t != nil && t.kind == always {
		return t.why, true
	}
	if installed(folded, Fold(r.Workspace)) {
		return "", false
	}
	if t == nil {
		t = r.first(tableIndex(), p, folded, whole, 1<<later|1<<public)
	}
	if t == nil || t.kind == public {
		return "", false
	}
	return t.why, true
}

// Reviewed returns why a person should name p before what a box has done there comes
// to be: it is held in a box whose tree is live, or programs take credentials, and who
// gets them, from there. whole is as for Held.
func (r Roots) Reviewed(p string, whole bool) (why string, ok bool) {
	if why, ok := r.Held(p, whole); ok {
		return why, true
	}
	t := r.first(tableIndex(), p, Fold(p), whole, 1<<credentials|1<<public)
	if t == nil || t.kind == public {
		return "", false
	}
	return "a place of credentials: " + t.why, true
}

// Built returns why a review should point at a change of p, whose last component
// counts most: a build, a test or a packager runs it. ok is false if nothing is
// known of it.
func Built(p string) (why string, ok bool) {
	if t := (Roots{}).first(buildsIndex(), p, Fold(p), false, allKinds); t != nil {
		return t.why, true
	}
	return "", false
}

// Fixed yields those places of the gate's table that have a fixed position, with
// the part of it before any wildcard, in the order of the table: of the home, if it
// is beneath or above the path p, and of the machine.
func (r Roots) Fixed(p string) iter.Seq2[string, Class] {
	return func(yield func(string, Class) bool) {
		for i := range table {
			t := &table[i]
			root := r.Home
			if t.at == inRoot {
				root = ""
			}
			if t.at == anywhere || root == "/" || t.at == inHome && !Beneath(r.Home, p) && !Beneath(p, r.Home) {
				continue
			}
			fixed := t.fixed()
			if fixed == "" || !Beneath(root+"/"+fixed, p) {
				continue
			}
			if !yield(root+"/"+fixed, class[t.kind]) {
				return
			}
		}
	}
}

// Beneath reports whether p is dir or lies beneath it. Both are clean and absolute;
// nothing lies beneath "".
func Beneath(p, dir string) bool {
	if dir == "" || dir == "/" {
		return dir == "/"
	}
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// allKinds wants rows of every kind.
const allKinds = 1<<(built+1) - 1

// first returns the first row of x that p, which is folded too, is at, of the kinds
// whose bits are set in wanted, or nil.
func (r Roots) first(x *index, p, folded string, whole bool, wanted uint) *row {
	home, best := Fold(r.Home), -1
	for i := 0; i < len(folded); {
		rest := folded[i+1:]
		end := strings.IndexByte(rest, '/')
		name := rest
		if end >= 0 {
			name = rest[:end]
		}
		if name != "" {
			for _, candidates := range [...][]int{x.names[name], x.wild[name[0]]} {
				for _, c := range candidates {
					if best >= 0 && c >= best {
						break
					}
					t := &x.rows[c]
					if wanted&(1<<t.kind) != 0 && matches(t.pattern, rest, whole) && r.applies(t, p, folded[:i], home) {
						best = c
					}
				}
			}
		}
		if end < 0 {
			break
		}
		i += 1 + end
	}
	if best < 0 {
		return nil
	}
	return &x.rows[best]
}

// applies reports whether the pattern of t may begin after dir.
func (r Roots) applies(t *row, p, dir, home string) bool {
	switch t.at {
	case inHome:
		return dir == home && (t.pattern != anyHidden || Beneath(r.Home, r.Workspace) || !Beneath(p, r.Workspace))
	case inRoot:
		return dir == "" && (class[t.kind] != Later || r.Workspace == "/" || !Beneath(p, r.Workspace))
	default:
		return true
	}
}

// packages are the directories that package managers fill. Third parties ship
// there what the host obeys elsewhere (CI files, settings of editors), and nobody
// opens these directories to work in them.
var packages = map[string]bool{"node_modules": true, "site-packages": true, "bower_components": true, "vendor": true}

// installed reports whether p is within an installed package of the tree root.
// Both are folded.
func installed(p, root string) bool {
	if root == "/" {
		root = ""
	}
	rest, ok := strings.CutPrefix(p, root+"/")
	for ok {
		var name string
		name, rest, ok = strings.Cut(rest, "/")
		if ok && packages[name] {
			return true
		}
	}
	return false
}

// An index finds the rows that a path may be at by one of its components.
type index struct {
	rows []row
	// Both are positions in rows, in order: of the rows whose first component is a
	// name, and of those where it has a wildcard, by the first byte that may match.
	names map[string][]int
	wild  [256][]int
}

var (
	tableIndex  = sync.OnceValue(func() *index { return newIndex(table[:]) })
	boxedIndex  = sync.OnceValue(func() *index { return newIndex(boxed[:]) })
	buildsIndex = sync.OnceValue(func() *index { return newIndex(builds[:]) })
)

func newIndex(rows []row) *index {
	x := &index{rows: rows, names: map[string][]int{}}
	for i, r := range rows {
		first, _, _ := strings.Cut(r.pattern, "/")
		switch at := strings.IndexByte(first, '*'); {
		case at < 0:
			x.names[first] = append(x.names[first], i)
		case at > 0:
			x.wild[first[0]] = append(x.wild[first[0]], i)
		default:
			for c := range x.wild {
				x.wild[c] = append(x.wild[c], i)
			}
		}
	}
	return x
}

// fixed returns the components of the pattern before the first wildcard.
func (r *row) fixed() string {
	p := r.pattern
	if i := strings.IndexByte(p, '*'); i >= 0 {
		p = p[:max(0, strings.LastIndexByte(p[:i], '/'))]
	}
	return p
}

// matches reports whether rest, the end of a folded path, is what pattern says or
// lies beneath a place that ends in "/**". With whole, a directory on the way to
// the place matches too.
func matches(pattern, rest string, whole bool) bool {
	for {
		p, morePattern, inPattern := strings.Cut(pattern, "/")
		name, moreRest, inRest := strings.Cut(rest, "/")
		if p == "**" {
			return !inPattern || whole || matchesWithin(morePattern, rest)
		}
		if ok := p == name || strings.Contains(p, "*") && glob(p, name); !ok {
			return false
		}
		switch {
		case !inPattern:
			return !inRest
		case !inRest:
			return morePattern == "**" || whole
		}
		pattern, rest = morePattern, moreRest
	}
}

// matchesWithin reports whether some end of rest is what pattern says.
func matchesWithin(pattern, rest string) bool {
	for ok := true; ok; {
		if matches(pattern, rest, false) {
			return true
		}
		_, rest, ok = strings.Cut(rest, "/")
	}
	return false
}

// glob reports whether name is what pattern says, which has a "*".
func glob(pattern, name string) bool {
	head, tail, _ := strings.Cut(pattern, "*")
	if !strings.HasPrefix(name, head) {
		return false
	}
	if strings.Contains(tail, "*") {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	}
	return len(name) >= len(head)+len(tail) && strings.HasSuffix(name, tail)
}
