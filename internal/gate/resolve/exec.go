package resolve

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/sys/paths"
)

// An Exec is what a [act.VerbExec] asks for, and, resolved, what is dispatched: one
// program in a box that is given parts of the file system.
type Exec struct {
	Argv  []string `json:"argv"`
	Dir   string   `json:"dir,omitempty"`   // to run in; the workspace if ""
	Read  []string `json:"read,omitempty"`  // with all beneath
	Write []string `json:"write,omitempty"` // with all beneath; may be read too
	// Later says that the box does not hold what the host runs later.
	Later bool `json:"later,omitempty"`
	// Hide is what is not there in the box. It may be asked for, and what lies in
	// the trees and is out of reach of agents is added.
	Hide []string `json:"hide,omitempty"`
	// Hold is what the box holds of what it can write. It cannot be asked for.
	Hold []string `json:"hold,omitempty"`
	// Call is the ticket of the call that starts it, if one does.
	Call string `json:"call,omitempty"`
	// Absent are trees that the box does not have, Fixed are such that it cannot change:
	// no part of what is decided. Who asks so has a box that hides and holds what the
	// resolved Exec says, in which they are added to Hide and Hold.
	Absent []string `json:"absent,omitempty"`
	Fixed  []string `json:"fixed,omitempty"`
	// Review says that what the box changes in the workspace is kept apart until a person
	// takes it.
	Review bool `json:"review,omitempty"`
}

// changes are what a box may do to what it can write.
var changes = []act.Kind{act.Create, act.Overwrite, act.Append, act.Delete, act.Move}

// Exec resolves args, which are an [Exec] as JSON. The effects are those of the
// program, and everything that the box could do to what it is given.
func (v View) Exec(args []byte) (Resolution, error) {
	var e Exec
	if err := strictjson.Unmarshal(args, &e); err != nil {
		return Resolution{}, err
	}
	if len(e.Read)+len(e.Write)+len(e.Hide)+len(e.Absent)+len(e.Fixed) > maxValues {
		return Resolution{}, bad("", "names more than %d paths", maxValues)
	}
	e.Hold = nil
	effects, err := v.execProgram(&e)
	if err != nil {
		return Resolution{}, err
	}
	for pointer, list := range map[string][]string{"/hide": e.Hide, "/absent": e.Absent, "/fixed": e.Fixed} {
		if err := v.execNames(pointer, list); err != nil {
			return Resolution{}, err
		}
	}
	for _, list := range []*[]string{&e.Read, &e.Write} {
		more, err := v.execPaths(*list, list == &e.Write, e.Later)
		if err != nil {
			return Resolution{}, err
		}
		effects = append(effects, more...)
		for _, p := range *list {
			e.Hide = append(e.Hide, v.hiddenBeneath(p)...)
		}
	}
	e.without()
	slices.Sort(e.Hide)
	e.Hide = slices.Compact(e.Hide)
	text, err := e.encode()
	return Resolution{Effects: effects, Bytes: text, Absent: e.Absent, Fixed: e.Fixed, Review: e.Review}, err
}

// execNames resolves paths that need not be there, in place.
func (v View) execNames(pointer string, list []string) error {
	for i, text := range list {
		p, err := v.place(text, v.Workspace)
		if err != nil {
			return valueError(err, pointer, text)
		}
		list[i] = p.path
	}
	return nil
}

// without has the box do without what is absent, and hold what is fixed. What is absent
// must not come to be there either.
func (e *Exec) without() {
	e.Hide = slices.Concat(e.Hide, e.Absent)
	for _, p := range slices.Concat(e.Absent, e.Fixed) {
		if slices.ContainsFunc(e.Write, func(tree string) bool { return p != tree && beneath(p, tree) }) {
			e.Hold = append(e.Hold, p)
		}
	}
	slices.Sort(e.Hold)
	e.Hold = slices.Compact(e.Hold)
}

// execProgram resolves program and directory of e, in place.
func (v View) execProgram(e *Exec) ([]act.Effect, error) {
	dir := e.Dir
	if dir == "" {
		dir = v.Workspace
	}
	at, err := v.place(dir, v.Workspace)
	if err != nil {
		return nil, valueError(err, "/dir", dir)
	}
	if !at.dir() {
		return nil, &Error{Pointer: "/dir", Value: dir, Why: "is no directory"}
	}
	e.Dir = at.path
	if len(e.Argv) == 0 || len(e.Argv) > maxValues {
		return nil, &Error{Pointer: "/argv", Why: fmt.Sprintf("has %d words; it must have 1 to %d", len(e.Argv), maxValues)}
	}
	c := &commands{view: v, dir: e.Dir}
	for _, t := range slices.Concat(e.Read, e.Write) {
		if p, err := v.place(t, e.Dir); err == nil {
			c.trees = append(c.trees, p.path)
		}
	}
	err = c.run(e.Argv, nil)
	program, noProgram := v.program(e.Argv[0], e.Dir)
	if noProgram != nil && !strings.Contains(e.Argv[0], "/") && !hasControl(e.Argv[0]) && e.Argv[0] != "" {
		return nil, &Error{Value: e.Argv[0], Why: "is not on the path", Hint: "the path is " + strings.Join(v.Path, ":"), NotFound: true}
	}
	if noProgram != nil {
		return nil, valueError(noProgram, "/argv/0", e.Argv[0])
	}
	if err != nil {
		// A shell that is given what cannot be read beforehand, or a program that
		// hides what it runs, is here a program like any other: a policy that lets it
		// run lets it run anything, in that box.
		_, hides := hidesCommand[path.Base(program)]
		if !hides && !slices.Contains(shells, path.Base(program)) || !slices.Contains(v.Path, path.Dir(program)) {
			return nil, valueError(err, "/argv", strings.Join(e.Argv, " "))
		}
		c.effects = nil
		if err := c.execute(program, e.Argv); err != nil {
			return nil, valueError(err, "/argv", strings.Join(e.Argv, " "))
		}
	}
	e.Argv = slices.Clone(e.Argv)
	e.Argv[0] = program
	return c.effects, nil
}

// execClass is the class of the tree at p as a box is given it, to read or to change. What
// the box hides or holds back is no part of it, so it is that of the tree itself.
func (v View) execClass(p place, write, later bool) string {
	itself := act.Read
	if write {
		itself = act.Overwrite
	}
	class := v.classOfPath(p, itself, false)
	if class == "" && later && write {
		return classLater
	}
	return class
}

// hiddenBeneath is what must not be there in a box that is given the tree at p: our
// own state, and credentials where they usually are.
func (v View) hiddenBeneath(p string) []string {
	var hide []string
	for _, s := range v.OwnState {
		if s != p && beneath(s, p) {
			hide = append(hide, s)
		}
	}
	if foreign, err := paths.ForeignHomes([]string{p}, v.OwnState); err == nil { // else the tree itself is one, and has its class
		hide = append(hide, foreign...)
	}
	for name := range v.roots().CredentialsIn(p) {
		if _, err := os.Lstat(name); err == nil {
			hide = append(hide, name)
		}
	}
	return hide
}

// execPaths resolves the trees that a box is given, in place.
func (v View) execPaths(list []string, write, later bool) ([]act.Effect, error) {
	var effects []act.Effect
	for i, text := range list {
		p, err := v.place(text, v.Workspace)
		if err == nil && !p.exists {
			err = bad("", "is not there")
		}
		if err != nil {
			return nil, valueError(err, "", text)
		}
		list[i] = p.path
		s := pathSubject{v, p}
		effects = append(effects, act.Effect{Kind: act.Read, Resource: s.classified(act.Read, v.execClass(p, false, later)), Tree: true})
		if !write {
			continue
		}
		class := v.execClass(p, true, later)
		for _, k := range changes {
			effects = append(effects, act.Effect{Kind: k, Resource: s.classified(k, class), Tree: true})
		}
	}
	return effects, nil
}
