package mediator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/act/places"
	"ringfence/internal/sandbox"
)

// Among returns b as it is for the servers of one file: what one of them may change
// cannot lead another out of what it was given, nor change what this machine runs
// outside of a box. file is the list of servers, absolute, or "".
func (b Boxes) Among(file string, servers []Server) Boxes {
	b.shared, b.held = []string{b.Workspace}, []string{b.Program}
	if file != "" {
		b.held = append(b.held, file)
	}
	for _, s := range servers {
		argv, err := b.Argv(s)
		if err != nil {
			continue // it is not started
		}
		b.shared = append(b.shared, b.Paths(s)...)
		if s.Ringfence.Builtin != "" {
			continue
		}
		_, write := b.named(argv[1:])
		b.shared = append(b.shared, write...)
		if s.Ringfence.Unboxed {
			b.held = append(b.held, b.runs(s, argv)...)
		}
	}
	for _, list := range []*[]string{&b.shared, &b.held} {
		for _, p := range *list {
			*list = append(*list, realOf(p))
		}
		*list = b.distinct(*list)
	}
	return b
}

// runs are the files that a server without a box is started from.
func (b Boxes) runs(s Server, argv []string) []string {
	var files []string
	for _, w := range argv {
		if !filepath.IsAbs(w) {
			w = filepath.Join(b.Dir(s), w)
		}
		if fi, err := os.Stat(w); err == nil && fi.Mode().IsRegular() && !ofSystem(w) {
			files = append(files, w)
		}
	}
	return files
}

// confine adds to spec what the box of s must not have, and refuses what it must not
// be given.
func (b Boxes) confine(spec *sandbox.Spec, s Server) error {
	trees := slices.Concat(spec.ReadOnly, spec.ReadWrite)
	if spec.Workspace.Mode != sandbox.NoAccess {
		trees = append(trees, spec.Workspace.Path)
	}
	var hide []string
	for _, tree := range trees {
		real, err := b.follow(tree)
		if err != nil {
			return err
		}
		if real == tree {
			spec.Decided = append(spec.Decided, tree) // no server replaces it from now on
		}
		if err := b.checkOwn(real); err != nil {
			return err
		}
		for _, own := range b.OwnState {
			if places.Beneath(own, real) {
				hide = append(hide, own)
			}
		}
		if s.Ringfence.Builtin != "" && s.Ringfence.Builtin != builtinExec {
			continue // the gate decides about each path, and asks about credentials
		}
		for name := range (places.Roots{Home: realOf(b.Home), Workspace: b.Workspace}).CredentialsIn(real) {
			if exists(name) && !slices.Contains(trees, name) {
				hide = append(hide, name)
			}
		}
	}
	spec.Denied = b.distinct(append(spec.Denied, hide...))
	if s.Ringfence.Builtin == "" || s.Ringfence.Builtin == builtinExec {
		spec.Held = b.distinct(append(spec.Held, b.heldIn(*spec)...))
	}
	return nil
}

// heldIn are those of b.held and b.Held that the box could change.
func (b Boxes) heldIn(spec sandbox.Spec) []string {
	trees := slices.Clone(spec.ReadWrite)
	if spec.Workspace.Mode == sandbox.ReadWrite {
		trees = append(trees, spec.Workspace.Path)
	}
	return slices.DeleteFunc(slices.Concat(b.held, b.Held), func(p string) bool {
		return !slices.ContainsFunc(trees, func(t string) bool { return places.Beneath(p, realOf(t)) })
	})
}

// checkOwn refuses a tree that is our state, but for the caches of servers and the
// workspaces that sessions keep there.
func (b Boxes) checkOwn(tree string) error {
	if b.Cache != "" && places.Beneath(tree, realOf(b.Cache)) && tree != realOf(b.Cache) {
		return nil
	}
	for _, own := range b.OwnState {
		if places.Beneath(tree, own) && (tree != b.Workspace || !places.Beneath(tree, own+"/sessions")) {
			return fmt.Errorf("%s is the state of ringfence, which no server gets: name another path", tree)
		}
	}
	return nil
}

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// follow returns where the absolute path p leads. Links that stand in a tree that
// servers can change must lead to somewhere in that tree: else one of them decides
// what another is given.
func (b Boxes) follow(p string) (string, error) {
	var within []string
	at, rest := "/", p
	for links := 0; ; {
		name, more, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
		if name == "" {
			break
		}
		rest = more
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many links", p)
		}
		for _, t := range b.shared {
			if places.Beneath(at, t) {
				within = append(within, t)
			}
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = target + "/" + rest
	}
	if _, err := os.Lstat(at); err != nil {
		return "", errors.Join(fmt.Errorf("looking for %s", p), err)
	}
	for _, t := range within {
		if !places.Beneath(at, t) {
			return "", fmt.Errorf("%s leads to %s, by a link in %s, which servers can change: if you made it, name %s itself", p, at, t, at)
		}
	}
	return at, nil
}
