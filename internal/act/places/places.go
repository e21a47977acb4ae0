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
	if i := r.first(table[:], tableIndex(), p, whole, nil); i >= 0 {
		return class[table[i].kind]
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
	if i := r.first(boxed[:], boxedIndex(), p, whole, nil); i >= 0 {
		if boxed[i].kind == always || !installed(folded, Fold(r.Workspace)) {
			return boxed[i].why, true
		}
	}
	if installed(folded, Fold(r.Workspace)) {
		return "", false
	}
	i := r.first(table[:], tableIndex(), p, whole, func(k kind) bool { return k == later || k == public })
	if i < 0 || table[i].kind == public {
		return "", false
	}
	return table[i].why, true
}

// Built returns why a review should point at a change of p, whose last component
// counts most: a build, a test or a packager runs it. ok is false if nothing is
// known of it.
func Built(p string) (why string, ok bool) {
	if i := (Roots{}).first(builds[:], buildsIndex(), p, false, nil); i >= 0 {
		return builds[i].why, true
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

// first returns the first row of rows that p is at and that wanted wants, or -1. A
// nil wanted wants all.
func (r Roots) first(rows []row, index map[string][]int, p string, whole bool, wanted func(kind) bool) int {
	folded, home, best := Fold(p), Fold(r.Home), -1
	for i := 0; i < len(folded); {
		rest := folded[i+1:]
		end := strings.IndexByte(rest, '/')
		name := rest
		if end >= 0 {
			name = rest[:end]
		}
		for _, candidates := range [...][]int{index[name], index[wild]} {
			for _, c := range candidates {
				if best >= 0 && c >= best {
					break
				}
				if (wanted == nil || wanted(rows[c].kind)) && r.applies(&rows[c], p, folded[:i], home) && matches(rows[c].pattern, rest, whole) {
					best = c
				}
			}
		}
		if end < 0 {
			break
		}
		i += 1 + end
	}
	return best
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

// wild is the index of rows whose first component has a wildcard.
const wild = "*"

var (
	tableIndex  = sync.OnceValue(func() map[string][]int { return index(table[:]) })
	boxedIndex  = sync.OnceValue(func() map[string][]int { return index(boxed[:]) })
	buildsIndex = sync.OnceValue(func() map[string][]int { return index(builds[:]) })
)

// index is the positions in rows by the first component of their patterns.
func index(rows []row) map[string][]int {
	index := map[string][]int{}
	for i, r := range rows {
		first, _, _ := strings.Cut(r.pattern, "/")
		if strings.Contains(first, wild) {
			first = wild
		}
		index[first] = append(index[first], i)
	}
	return index
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

func glob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
