package resolve

import (
	"os"
	"path"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/places"
	"ringfence/internal/act/weburl"
	"ringfence/internal/sys/paths"
)

// The values of [act.FactClass].
const (
	classOwn         = "own-state"
	classLater       = string(places.Later)
	classCredentials = string(places.Credentials)
	classMetadata    = "metadata"
)

// beneath is [places.Beneath].
func beneath(p, dir string) bool { return places.Beneath(p, dir) }

// classOfPath returns the class of p for an effect of kind k, "" for none. A
// workspace that a session keeps in our home is the session's, not our state.
//
// An effect on everything beneath p has the class of what there is beneath p in
// fixed places, credentials before all else; a move, and a change of everything beneath p, has the class of
// what p could hold afterwards.
func (v View) classOfPath(at place, k act.Kind, tree bool) string {
	p, whole := at.path, tree || k == act.Move || k == act.Delete
	for _, s := range v.OwnState {
		if beneath(p, s) && !(kept(v.Workspace, s) && beneath(p, v.Workspace)) || whole && beneath(s, p) {
			return classOwn
		}
	}
	if v.foreign(at, whole) {
		return classOwn
	}
	// Of a tree that a box may change, the box holds them.
	if slices.ContainsFunc(v.Later, func(l string) bool { return p == l || k == act.Move && beneath(l, p) }) {
		return string(places.Later)
	}
	c := v.classOfName(p, k == act.Move || tree && k.In(act.Mutate))
	if c == "" {
		c = classOfGit(p, k)
	}
	if tree && c != classCredentials {
		if below := v.classBeneath(p); c == "" || below == classCredentials {
			return below
		}
	}
	return c
}

// foreign reports whether a place is, or lies in, a home of ringfence other than ours, of
// whoever; or, with whole, holds one.
func (v View) foreign(p place, whole bool) bool {
	if !whole {
		return paths.HomeAbove(p.nearest(), v.OwnState) != ""
	}
	homes, err := paths.ForeignHomes([]string{p.path}, v.OwnState)
	return err != nil || len(homes) > 0
}

// kept reports whether a workspace is one that a session keeps in our home: a directory
// in that of the session. Any other place there, the home itself among them, stays ours
// when somebody works in it.
func kept(workspace, home string) bool {
	rest, ok := strings.CutPrefix(workspace, home+"/sessions/")
	return ok && strings.Contains(rest, "/")
}

// classOfName looks p up in the table of places; with whole, as a directory of
// which everything comes into being, changes or vanishes at once.
func (v View) classOfName(p string, whole bool) string {
	return string(v.roots().Class(p, whole))
}

// classBeneath returns the class of the first place of the table that exists
// beneath p, of those whose position does not depend on the project.
func (v View) classBeneath(p string) string {
	for name, class := range v.roots().Fixed(p) {
		if _, err := os.Lstat(name); err == nil {
			return string(class)
		}
	}
	return ""
}

func (v View) roots() places.Roots { return places.Roots{Home: v.Home, Workspace: v.Workspace} }

func glob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// classOfHost returns "metadata" or "". An IPv4 address that an IPv6 address
// carries for a gateway counts as that address.
func classOfHost(h weburl.Host) string {
	if h.Metadata() {
		return classMetadata
	}
	return ""
}
