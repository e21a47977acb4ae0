package resolve

import "strings"

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

// checkMake refuses makefiles and directories that are not in the workspace: there, or in
// what the command is given to read, an agent could have put orders of its own. Of -C, what
// follows is relative to it.
func (c *commands) checkMake(argv []string) error {
	dir := c.dir
	for i := 1; i < len(argv); i++ {
		option, value, attached := makeOption(argv[i])
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
		if value == "-" || err != nil || !beneath(p.path, c.view.Workspace) {
			return bad("name a makefile or a directory in the workspace", "runs make with %q, which is not in the workspace", value)
		}
		if option == 'C' {
			dir = p.path
		}
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
