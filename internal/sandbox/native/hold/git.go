package hold

import (
	"path"
	"strings"

	"ringfence/internal/act/places"
)

const gitDir = ".git"

// gitOrders are the entries of a git directory that hold something git takes orders
// from, here or further beneath.
var gitOrders = map[string]bool{
	"config": true, "config.worktree": true, "commondir": true, "hooks": true, "info": true,
	"remotes": true, "branches": true, "worktrees": true, "modules": true,
}

// shapeNames are the entries that make a directory a git directory, whatever it is
// called (setup.c of git, is_git_directory), in lower case.
var shapeNames = map[string]bool{"head": true, "objects": true, "refs": true, "commondir": true}

const (
	ruleGit   = RuleLater + ": .git of a repository cannot be changed, replaced, moved or removed"
	ruleAlias = RuleLater + ": .git can be made only as a new directory or file"
	ruleShape = RuleLater + ": without this it would be no repository, and its configuration not held"
)

// shaped reports whether dir is a git directory by its entries.
func shaped(dir string, look Look) bool {
	return inShape(func(name string) bool { return look.Exists(join(dir, name)) })
}

// inShape reports whether a directory with what has says is in it is a git directory. What
// commondir names has the objects and refs then, and the configuration.
func inShape(has func(name string) bool) bool {
	return has("HEAD") && (has("commondir") || has("objects") && has("refs"))
}

// checkGit checks an operation on p, which is called ".git": the directory of a
// repository, or the file that says where that is.
func checkGit(op Op, p string, whole bool, look Look) Verdict {
	switch {
	case op == Make && !whole && !look.Exists(p):
		return Verdict{Born: p}
	case op == MoveHere || op == Make && whole:
		return Verdict{Rule: ruleAlias}
	default:
		return Verdict{Rule: ruleGit}
	}
}

// checkShape checks an operation on p, one of the entries of dir that make it a
// git directory. git replaces HEAD and never removes any of them.
func checkShape(op Op, dir, p string, look Look) Verdict {
	if places.Fold(path.Base(dir)) == gitDir || isWorktree(path.Dir(dir)+"/", look) {
		return Verdict{}
	}
	with := func(there bool) bool {
		return inShape(func(name string) bool {
			if strings.EqualFold(name, path.Base(p)) {
				return there
			}
			return look.Exists(join(dir, name))
		})
	}
	switch exists := look.Exists(p); {
	case with(true) == with(false):
		return Verdict{}
	case (op == Remove || op == MoveAway) && exists:
		return Verdict{Rule: ruleShape}
	case (op == Make || op == MoveHere) && !exists:
		return Verdict{Born: dir}
	}
	return Verdict{}
}

// heldInShape reports whether p is held as a part of a git directory that is not
// called ".git": each directory above p, down from root, could be one.
func heldInShape(root, p string, whole bool, look Look) (string, bool) {
	at := len(root)
	if root == "/" {
		at = 0
	}
	for at < len(p) {
		rest := p[at+1:]
		name, _, _ := strings.Cut(rest, "/")
		if dir := p[:max(at, 1)]; gitOrders[strings.ToLower(name)] && places.Fold(path.Base(dir)) != gitDir {
			// Only then does it matter what there is.
			why, held := places.Roots{Home: noHome, Workspace: "/"}.Held("/.git/"+rest, whole)
			if held && shaped(dir, look) {
				return why, true
			}
		}
		at += 1 + len(name)
	}
	return "", false
}

// isWorktree reports whether dir, with a slash at its end, is where a git directory
// keeps what belongs to its further work trees.
func isWorktree(dir string, look Look) bool {
	above, ok := strings.CutSuffix(strings.ToLower(dir), "/worktrees/")
	return ok && (strings.HasSuffix(above, "/"+gitDir) || shaped(dir[:len(above)], look))
}
