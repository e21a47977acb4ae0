package resolve

import (
	"slices"
	"strings"
)

// makePaths are the options of make that name what it reads (make(1), GNU make 4.4).
var makePaths = []struct {
	long  string
	short rune
}{{"file", 'f'}, {"makefile", 'f'}, {"directory", 'C'}, {"include-dir", 'I'}}

const (
	makeReads  = "fCI"
	makeValued = "EWo" // short options with a value
	makeMay    = "jlO" // the same, if it is in the same argument
)

// makePrograms are variables by which make chooses what it runs, or what it reads.
var makePrograms = []string{
	"SHELL", ".SHELLFLAGS", "MAKE", "MAKEFLAGS", "MFLAGS", "MAKEFILES", "GNUMAKEFLAGS", "MAKEOVERRIDES", "MAKE_COMMAND",
	"CC", "CXX", "CPP", "LD", "AR", "AS", "FC", "LEX", "YACC", "RM", "INSTALL",
}

// within reports whether p is in the workspace, or in what a person has given the command.
func (c *commands) within(p string) bool {
	return beneath(p, c.view.Workspace) || slices.ContainsFunc(c.trees, func(t string) bool { return beneath(p, t) })
}

// elsewhere is the error of a program that would take its orders from name.
func elsewhere(program, name string) error {
	return bad("name a place in the workspace", "runs %s with %q, which is not in the workspace", program, name)
}

// checkMake refuses makefiles and directories that are not in the workspace: there, or in
// what the command is given to read, an agent could have put orders of its own. Of -C, what
// follows is relative to it. It also refuses variables that choose programs.
func (c *commands) checkMake(argv []string) error {
	dir := c.dir
	for i := 1; i < len(argv); i++ {
		option, value, attached := makeOption(argv[i])
		if name, _, ok := strings.Cut(argv[i], "="); ok && option == 0 && !strings.HasPrefix(name, "-") {
			runs := strings.HasSuffix(name, "!")
			if name = strings.TrimSpace(strings.TrimRight(name, ":?+!")); runs || slices.Contains(makePrograms, name) {
				return bad("", "runs make with %q, which makes it run something else", argv[i])
			}
		}
		if option == 0 {
			continue
		}
		if !attached {
			if i++; i == len(argv) {
				return nil // make says what is missing
			}
			value = argv[i]
		}
		if !strings.ContainsRune(makeReads, option) {
			continue
		}
		p, err := c.view.place(value, dir)
		if value == "-" || err != nil || !c.within(p.path) {
			return elsewhere("make", value)
		}
		if option == 'C' {
			dir = p.path
		}
	}
	if !c.within(dir) {
		return elsewhere("make", dir)
	}
	return nil
}

// checkGitPlaces refuses repositories and work trees that are not in the workspace: git
// obeys their configuration, which an agent could have written there.
func (c *commands) checkGitPlaces(argv []string) error {
	dir := c.dir
	for i := 1; i < len(argv) && strings.HasPrefix(argv[i], "-"); i++ {
		option, value, attached := strings.Cut(argv[i], "=")
		if !slices.Contains([]string{"-C", "--git-dir", "--work-tree"}, option) {
			if slices.Contains([]string{"-c", "--namespace", "--exec-path", "--super-prefix", "--config-env"}, argv[i]) {
				i++
			}
			continue
		}
		if !attached {
			if i++; i == len(argv) {
				return nil // git says what is missing
			}
			value = argv[i]
		}
		p, err := c.view.place(value, dir)
		if err != nil || !c.within(p.path) {
			return elsewhere("git", value)
		}
		if option == "-C" {
			dir = p.path
		}
	}
	if !c.within(dir) {
		return elsewhere("git", dir)
	}
	return nil
}

// makeOption returns the short name of an option of make that takes a value, 0 if a is
// none, and its value, if that is a part of a.
func makeOption(a string) (option rune, value string, attached bool) {
	if name, ok := strings.CutPrefix(a, "--"); ok {
		name, value, attached = strings.Cut(name, "=")
		for _, p := range makePaths {
			if name != "" && strings.HasPrefix(p.long, name) {
				return p.short, value, attached
			}
		}
		return 0, "", false
	}
	if len(a) < 2 || a[0] != '-' {
		return 0, "", false
	}
	for i, o := range a[1:] {
		switch {
		case strings.ContainsRune(makeReads+makeValued, o):
			return o, a[i+2:], i+2 < len(a)
		case strings.ContainsRune(makeMay, o):
			return 0, "", false
		}
	}
	return 0, "", false
}
