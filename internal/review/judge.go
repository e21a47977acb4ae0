package review

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/act/places"
	"ringfence/internal/sys/subtree"
)

// judge adds the flags of c, which is judged by the path place in the workspace.
func (r *Review) judge(c *Change, place string) {
	if c.Path == "." {
		return
	}
	if c.Dir && c.Kind == Mode || c.Dir && c.Kind == Added {
		// What is in it is judged by itself; the directory alone runs nothing.
		return
	}
	// A link may lead to a directory that has it all, and what replaces or removes a
	// directory does so with all that is in it.
	whole := c.Dir || c.up.Kind == subtree.Link || c.there && c.low.Kind == subtree.Directory
	roots := r.roots()
	for _, p := range slices.Compact([]string{place, c.Path}) {
		full := filepath.Join(r.Workspace, p)
		why, held := roots.Reviewed(full, whole)
		if !held {
			why, held = r.led(full, whole)
		}
		if held {
			c.Flags, c.Why = append(c.Flags, RunsLater), why
			break
		}
	}
	if why, ok := places.Built("/" + c.Path); ok {
		c.Flags = append(c.Flags, BuildFile)
		if c.Why == "" {
			c.Why = why
		}
	}
	if c.up.Kind != subtree.File {
		return
	}
	if own := r.boxUser(); c.Kind != Deleted && c.Refused == "" && c.up.UID != own && (!c.there || c.low.UID != c.up.UID) {
		c.Refused = fmt.Sprintf("it belongs to user %d, not to who the box was: it can have moved the file without having read it", c.up.UID)
	}
	if c.perm&0o111 != 0 && (!c.there || c.low.Kind != subtree.File || c.low.Perm&0o111 == 0) {
		c.Flags = append(c.Flags, Executable)
	}
	if c.perm&0o6000 != 0 {
		c.Flags = append(c.Flags, Setuid)
	}
}

// boxUser is who the program in the box was, on disk: root's boxes work as the owner of
// the workspace.
func (r *Review) boxUser() int {
	if uid := os.Geteuid(); uid > 0 {
		return uid
	}
	return r.uid
}

// led says what leads to the path full or, with whole, to something in it.
func (r *Review) led(full string, whole bool) (by string, ok bool) {
	for _, l := range r.Led {
		at, p := places.Fold(l.Path), places.Fold(full)
		if places.Beneath(p, at) || whole && places.Beneath(at, p) {
			return l.By + " leads there", true
		}
	}
	return "", false
}

// repository returns the path by which files in l are judged. A directory that git
// takes for a repository whatever its name is (gitrepository-layout(5): HEAD, objects,
// refs, or a worktree's commondir) is judged as one that is called ".git".
func repository(l level) string {
	if l.path == "" || path.Base(l.place) == ".git" {
		return l.place
	}
	has := func(name string) bool {
		if i, err := l.up.Lstat(name); err == nil {
			return i.Kind != subtree.Null
		}
		_, there, err := lookup(l.low, name)
		return err == nil && there && !l.opaque
	}
	if has("HEAD") && (has("objects") && has("refs") || has("commondir")) {
		return join(strings.TrimPrefix(path.Dir("/"+l.place), "/"), ".git")
	}
	return l.place
}

// leadsOut reports whether a link in the workspace ws has a target that lies, by its
// spelling, outside, or may: ".." behind a name leads upwards from wherever that name
// leads.
func leadsOut(link, target, ws string) bool {
	if target == "" || strings.ContainsRune(target, 0) {
		return true
	}
	if path.IsAbs(target) {
		return !places.Beneath(path.Clean(target), ws)
	}
	depth, named := strings.Count(link, "/"), false
	for name := range strings.SplitSeq(target, "/") {
		switch name {
		case "", ".":
		case "..":
			if depth--; depth < 0 || named {
				return true
			}
		default:
			named = true
		}
	}
	return false
}
