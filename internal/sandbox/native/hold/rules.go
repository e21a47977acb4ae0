package hold

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"ringfence/internal/act/places"
)

// Rules say what is held. All paths are absolute, clean, and without symbolic
// links. The zero Rules hold nothing, for nothing is writable.
type Rules struct {
	// Writable are the trees whose changes the host sees. What is elsewhere is not
	// the business of this package.
	Writable []string
	// Copied are those of Writable that are overlays: what is written there is a copy,
	// also of a file with other names. What the host runs later is not held there: it
	// is when the copies are applied.
	Copied []string
	// Private are trees that only the box has, and that have writable ones beneath
	// them. Nothing is held there but the way down: Landlock grants a tree with all
	// beneath it, whatever is mounted there, so the program cannot be given them.
	Private []string
	// Held are paths in these trees that can be neither made nor changed nor
	// removed nor moved, nor can what is beneath them, nor can the directories above
	// them be moved.
	Held []string
	// Led are paths in these trees that the host runs or obeys because something says
	// so that is held itself (see [Rules.Follow]). They are held like Held.
	Led []string
	// Later lifts the hold on what the host runs later; then only Held is held.
	Later bool
	// Home is the home of the person, for the places that are there; "" is none.
	Home string
}

// An Op is what a call is about to do to a path.
type Op uint8

// The operations. A call that has several is checked for each.
const (
	Make     Op = iota // it comes into being, empty
	Change             // its content or its mode changes
	Remove             // it is unlinked
	MoveAway           // it is renamed to something else
	MoveHere           // something else is renamed to it, as it is
	Link               // it gets a second name, under which it could be changed
	Connect            // what listens at it is connected to; only in denials
)

var opNames = [...]string{Make: "create", Change: "write", Remove: "delete", MoveAway: "rename", MoveHere: "rename", Link: "link", Connect: "connect"}

// String returns the name of o as it stands in denials: "create", "write",
// "delete", "rename", "link" or "connect".
func (o Op) String() string { return opNames[o] }

// A Verdict is what the rules say of one operation on one path.
type Verdict struct {
	// Rule says for people why the operation is refused; "" if it is not.
	Rule string
	// Born, if not "", is the repository that comes into being: its configuration
	// and hooks are the box's own, and are not held.
	Born string
}

// Held reports whether the operation is refused.
func (v Verdict) Held() bool { return v.Rule != "" }

// A Look tells what only the file system knows. Paths are real.
type Look interface {
	// Exists reports whether there is anything at path, a dangling link included.
	Exists(path string) bool
	// Born reports whether path is, or is beneath, something that came into being
	// in this box as a repository of its own.
	Born(path string) bool
}

// Validate reports the first thing in r that cannot be.
func (r Rules) Validate() error {
	for _, list := range [...][]string{r.Writable, r.Copied, r.Private, r.Held, r.Led} {
		for _, p := range list {
			if !path.IsAbs(p) || path.Clean(p) != p {
				return fmt.Errorf("held files: %q is not a clean absolute path", p)
			}
		}
	}
	if r.Home != "" && (!path.IsAbs(r.Home) || path.Clean(r.Home) != r.Home) {
		return errors.New("held files: the home is not a clean absolute path")
	}
	return nil
}

// Check says whether op may be done to the file name in the real directory dir.
// With whole, what comes or goes is a directory with all that is in it, or a
// symbolic link, which may lead to one. It is pure but for look, which is asked only
// where names do not decide.
func (r Rules) Check(op Op, dir, name string, whole bool, look Look) Verdict {
	return newJudge(r).check(op, join(dir, name), whole, look)
}

// A judge is Rules made ready to be asked often.
type judge struct {
	Rules
	held []holdOn
}

// A holdOn is a path that is held with all beneath it.
type holdOn struct {
	folded string
	rule   string
}

// RuleHeld is the rule about a path of [Rules.Held].
func RuleHeld(path string) string { return "this box holds " + path }

// RuleLater begins each rule that is about what the host runs later.
const RuleLater = "files that the host runs later are held"

const ruleLed = RuleLater + ": configuration or a link leads to "

// noHome is a home that has no places: they are in no root directory.
const noHome = "/"

func newJudge(r Rules) *judge {
	if r.Home == "" {
		r.Home = noHome
	}
	j := &judge{Rules: r}
	for _, h := range r.Held {
		j.held = append(j.held, holdOn{places.Fold(h), RuleHeld(h)})
	}
	if !r.Later {
		for _, h := range r.Led {
			j.held = append(j.held, holdOn{places.Fold(h), ruleLed + h})
		}
	}
	return j
}

// root returns the smallest tree that we answer for and p is in, "" if in none.
func (j *judge) root(p string) string {
	best := ""
	for _, list := range [...][]string{j.Writable, j.Private} {
		for _, w := range list {
			if len(w) > len(best) && places.Beneath(p, w) {
				best = w
			}
		}
	}
	return best
}

// copied reports whether what is written to p is written to a copy, or to what
// nobody else has.
func (j *judge) copied(p string) bool { return slices.Contains(j.Copied, j.root(p)) || j.private(p) }

// private reports whether p is in a tree that only the box has.
func (j *judge) private(p string) bool { return slices.Contains(j.Private, j.root(p)) }

func (j *judge) check(op Op, p string, whole bool, look Look) Verdict {
	root := j.root(p)
	if root == "" {
		return Verdict{}
	}
	if len(j.held) > 0 {
		folded := places.Fold(p)
		for _, h := range j.held {
			if places.Beneath(folded, h.folded) {
				return Verdict{Rule: h.rule}
			}
			if places.Beneath(h.folded, folded) && (whole || op == Remove || op == MoveAway) {
				return Verdict{Rule: h.rule + ", which is beneath it"}
			}
		}
	}
	if slices.Contains(j.Private, root) {
		return j.checkPrivate(op, p, whole)
	}
	if j.Later || slices.Contains(j.Copied, root) {
		return Verdict{}
	}
	v := j.checkLater(op, root, p, whole, look)
	if v.Held() && look.Born(p) {
		return Verdict{}
	}
	return v
}

// checkPrivate keeps the way down to what is of the host where it is: a tree that
// was moved with what is above it would be known by another path.
func (j *judge) checkPrivate(op Op, p string, whole bool) Verdict {
	if whole || op == Remove || op == MoveAway {
		for _, w := range j.Writable {
			if places.Beneath(w, p) {
				return Verdict{Rule: "this box is given " + w + ", which is beneath it"}
			}
		}
	}
	return Verdict{}
}

// checkLater applies the tables of package places, and what makes a repository.
func (j *judge) checkLater(op Op, root, p string, whole bool, look Look) Verdict {
	dir, name := path.Split(p)
	name = strings.ToLower(name)
	if name == gitDir || len(name) > len(gitDir) && places.Fold(name) == gitDir {
		return checkGit(op, p, whole, look)
	}
	why, held := places.Roots{Home: j.Home, Workspace: root}.Held(p, whole)
	if !held {
		why, held = heldInShape(root, p, whole, look)
	}
	if held {
		return Verdict{Rule: RuleLater + ": " + why}
	}
	if shapeNames[name] {
		return checkShape(op, strings.TrimSuffix(dir, "/"), p, look)
	}
	if op == Make && !whole && isWorktree(dir, look) && !look.Exists(p) {
		return Verdict{Born: p}
	}
	return Verdict{}
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}
