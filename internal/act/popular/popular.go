// Package popular knows the names of packages that many use, and which other names are
// nearly theirs: what somebody registers who waits for a slip of the finger, or for a model
// that remembers a name wrongly.
//
// It says nothing of what is in a package, and reads nothing but names. Its lists are files
// of this directory, one for each registry that it knows; where there is none, no name is
// near another.
package popular

import (
	"embed"
	"slices"
	"strings"
	"sync"
)

// files are names as their registries write them, the most used first: the first 5,000 of
// npm and of PyPI by the downloads a month that these registries count, of November 2026, and
// some of npm that were imitated more than they are used. Those of crates.io were gathered by
// hand.
//
//go:embed npm.txt pypi.txt cargo.txt
var files embed.FS

// Registries whose names are known, as resources have them.
const (
	npm   = "npm"
	pypi  = "pypi"
	cargo = "cargo"
)

const (
	// shortest is how long names are at least that one letter makes alike: of shorter ones
	// too many are a letter apart.
	shortest = 5
	// shortestPlain is how long they are that are looked for in "lodash-js".
	shortestPlain = 4
	// maxRemembered is how many answers are remembered: a registry asks about every version
	// of a package.
	maxRemembered = 1 << 10
)

var lists = map[string]func() *list{
	npm:   sync.OnceValue(func() *list { return read(npm) }),
	pypi:  sync.OnceValue(func() *list { return read(pypi) }),
	cargo: sync.OnceValue(func() *list { return read(cargo) }),
}

// A list is what is known of a registry. Names in it are normal.
type list struct {
	names    []string          // the most used first
	bare     map[string]string // a name, by what it is without marks
	rank     map[string]int    // of a name, from 0
	scopes   []string          // "@babel", the most used first
	hasScope map[string]bool

	mu         sync.Mutex
	remembered map[string]string
}

// Resembles returns the popular package whose name another one of the same registry nearly
// has, "" if there is none. A popular package resembles none. pkg is as resources of type
// Package are written, "npm:@scope/name@1.0.0"; its version does not matter.
//
// Near are names that differ by marks alone ("crossenv" and "cross-env"), or by digits that
// look like letters; by one letter that is added, left out, another, or has changed places
// with its neighbour (a restricted Damerau–Levenshtein distance of 1); by what says the
// language ("lodash-js"); and in npm by a scope that nearly is one of many users.
func Resembles(pkg string) string {
	registry, name, _ := strings.Cut(pkg, ":")
	if i := strings.LastIndexByte(name, '@'); i > 0 {
		name = name[:i]
	}
	load := lists[registry]
	if load == nil {
		return ""
	}
	l := load()
	name = normal(registry, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	of, known := l.remembered[name]
	if !known {
		if len(l.remembered) == maxRemembered {
			clear(l.remembered)
		}
		of = l.resembles(name)
		l.remembered[name] = of
	}
	return of
}

func read(registry string) *list {
	text, err := files.ReadFile(registry + ".txt")
	if err != nil {
		panic(err) // it is embedded
	}
	l := &list{bare: map[string]string{}, rank: map[string]int{}, hasScope: map[string]bool{}, remembered: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		name := normal(registry, strings.TrimSpace(line))
		l.rank[name] = len(l.names)
		l.names = append(l.names, name)
		if b := bare(name); l.bare[b] == "" {
			l.bare[b] = name
		}
		if scope, _, ok := strings.Cut(name, "/"); ok && !l.hasScope[scope] {
			l.hasScope[scope] = true
			l.scopes = append(l.scopes, scope)
		}
	}
	return l
}

func (l *list) resembles(name string) string {
	if _, popular := l.rank[name]; popular {
		return ""
	}
	if scope, base, ok := strings.Cut(name, "/"); ok {
		if l.hasScope[scope] {
			return "" // who may publish there is known
		}
		if i := slices.IndexFunc(l.scopes, func(s string) bool { return near(scope, s) }); i >= 0 {
			return l.scopes[i] + "/" + base
		}
		return ""
	}
	if p := l.bare[bare(name)]; p != "" {
		return p
	}
	if p := l.unadorned(name); p != "" {
		return p
	}
	if i := slices.IndexFunc(l.names, func(p string) bool { return near(name, p) }); i >= 0 {
		return l.names[i]
	}
	return ""
}

// adornments say the language of a package.
var adornments = []string{"nodejs", "node", "js", "python3", "python", "py", "rust", "rs"}

// unadorned returns the popular package that is left of name without such a word.
func (l *list) unadorned(name string) string {
	for _, a := range adornments {
		for _, cut := range []func(string, string) (string, bool){strings.CutPrefix, strings.CutSuffix} {
			rest, ok := cut(name, a)
			rest = strings.Trim(rest, marks)
			if _, known := l.rank[rest]; ok && known && len(rest) >= shortestPlain {
				return rest
			}
		}
	}
	return ""
}

// normal is name as its registry compares names: https://peps.python.org/pep-0503/ for
// PyPI; "_" is "-" for crates.io.
func normal(registry, name string) string {
	name = strings.ToLower(name)
	switch registry {
	case pypi:
		return strings.Join(strings.FieldsFunc(name, isMark), "-")
	case cargo:
		return strings.ReplaceAll(name, "_", "-")
	}
	return name
}

// marks part the words of a name.
const marks = "-_."

func isMark(r rune) bool { return strings.ContainsRune(marks, r) }

// bare is name without marks, and with letters for the digits that look like them.
func bare(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case isMark(r):
			return -1
		case r == '0':
			return 'o'
		case r == '1':
			return 'l'
		}
		return r
	}, name)
}

// near reports whether one letter makes a of b.
func near(a, b string) bool {
	if d := len(a) - len(b); d < -1 || d > 1 || min(len(a), len(b)) < shortest {
		return false
	}
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	swapped := len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
	return max(len(a), len(b)) <= 1 || swapped
}
