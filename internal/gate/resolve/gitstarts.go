package resolve

import (
	"slices"
	"strings"
)

// A started program is one that git starts because of its command line. What a person has
// configured in place of it stands for it: it is decided on by the usual name.
type started struct{ program, hint string }

var (
	startsPager  = started{"less", "leave out the option for the pager"}
	startsEditor = started{"vi", `give the message with "-m", or "--no-edit"`}
	startsManual = started{"man", `use "git COMMAND -h"`}
	startsInfo   = started{"info", `use "git COMMAND -h"`}
	startsGzip   = started{"gzip", `use "--format=tar"`}
)

// decideStarted adds the effects of the programs that git starts because argv says so.
func (c *commands) decideStarted(argv []string) error {
	all, err := gitStarts(argv)
	if err != nil {
		return err
	}
	for _, s := range all {
		p := c.view.runs(s.program)
		if p == "" {
			return bad(s.hint, "has git start %q, which is not on the path", s.program)
		}
		if err := c.execute(p, []string{s.program}); err != nil {
			return err
		}
	}
	return nil
}

// gitStarts returns what git starts. argv has passed [checkGit].
func gitStarts(argv []string) (all []started, err error) {
	help := false
	for i := 1; i < len(argv); i++ {
		switch a := argv[i]; {
		case a == "-p" || a == "--paginate":
			all = append(all, startsPager)
		case a == "--help":
			help = true
		case a == "-C" || a == "--git-dir" || a == "--work-tree" || a == "--namespace":
			i++
		case strings.HasPrefix(a, "-"):
		case help:
			return append(all, startsManual), nil
		default:
			more, err := gitCommandStarts(a, argv[i+1:])
			return append(all, more...), err
		}
	}
	return all, nil
}

func gitCommandStarts(name string, args []string) ([]started, error) {
	o := optionsOf(name, args)
	switch {
	case len(args) > 0 && args[0] == "--help":
		return []started{startsManual}, nil
	case name == "help" && o.has("info", 'i'):
		return []started{startsInfo}, nil
	case name == "help" && len(o.words) > 0:
		return []started{startsManual}, nil
	case name == "bisect" && slices.ContainsFunc(o.words, func(w string) bool { return w == "view" || w == "visualize" }):
		return nil, bad(`use "git bisect log"`, "runs git bisect in a way that runs other programs")
	case name == "archive":
		return archiveStarts(o)
	case o.edits(name):
		return []started{startsEditor}, nil
	}
	return nil, nil
}

func archiveStarts(o gitOptions) ([]started, error) {
	for _, f := range o.values("format") {
		switch f {
		case "tar", "zip":
		case "tgz", "tar.gz":
			return []started{startsGzip}, nil
		default:
			return nil, bad(startsGzip.hint, "has git archive write %q, which a program of its configuration does", f)
		}
	}
	return nil, nil
}

// gitOptions are the options that a subcommand of git is given.
type gitOptions struct {
	long  []string // "name" or "name=value"
	short string   // all letters
	words []string
}

// gitValued are the short options of subcommands that take the rest of a cluster, or the
// next word.
var gitValued = map[string]string{"commit": "mFCctSu", "tag": "mFun", "notes": "mFCc", "merge": "mFsXS", "cherry-pick": "mXS", "revert": "mXS"}

func optionsOf(name string, args []string) (o gitOptions) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			o.words = append(o.words, args[i+1:]...)
			return o
		case strings.HasPrefix(a, "--"):
			o.long = append(o.long, a[2:])
			if !strings.Contains(a, "=") && i+1 < len(args) && name == "archive" && isAbbreviation(a[2:], "format") {
				i++
				o.long[len(o.long)-1] += "=" + args[i]
			}
		case len(a) > 1 && a[0] == '-':
			for at, c := range a[1:] {
				o.short += string(c)
				if strings.ContainsRune(gitValued[name], c) {
					if at+2 == len(a) && !strings.ContainsRune("Su", c) { // their value is never another word
						i++
					}
					break
				}
			}
		default:
			o.words = append(o.words, a)
		}
	}
	return o
}

// isAbbreviation reports whether git takes name for the long option full.
func isAbbreviation(name, full string) bool { return name != "" && strings.HasPrefix(full, name) }

// values returns the values of a long option.
func (o gitOptions) values(full string) (all []string) {
	for _, l := range o.long {
		if name, value, ok := strings.Cut(l, "="); ok && isAbbreviation(name, full) {
			all = append(all, value)
		}
	}
	return all
}

// has reports whether an option is given, by its long name or by a letter; 0 is none.
func (o gitOptions) has(full string, letter rune) bool {
	return letter != 0 && strings.ContainsRune(o.short, letter) || slices.ContainsFunc(o.long, func(l string) bool {
		name, _, _ := strings.Cut(l, "=")
		return isAbbreviation(name, full)
	})
}

// edits reports whether the subcommand called name has a person edit something, which
// starts an editor also where there is nobody.
func (o gitOptions) edits(name string) bool {
	message := o.has("message", 'm') || o.has("file", 'F')
	first := ""
	if len(o.words) > 0 {
		first = o.words[0]
	}
	switch name {
	case "commit":
		reuses := o.has("reuse-message", 'C') || o.has("no-edit", 0) || o.has("fixup", 0) || o.has("dry-run", 0) || o.has("short", 0) || o.has("porcelain", 0)
		return o.has("edit", 'e') || o.has("reedit-message", 'c') || !message && !reuses
	case "tag":
		return o.has("edit", 'e') || !message && (o.has("annotate", 'a') || o.has("sign", 's') || o.has("local-user", 'u'))
	case "notes":
		return first == "edit" || (first == "add" || first == "append") && !message && !o.has("reuse-message", 'C')
	case "branch":
		return o.has("edit-description", 0)
	case "rebase":
		return o.has("edit-todo", 0) || o.has("continue", 0)
	case "merge", "cherry-pick", "revert":
		return o.has("edit", 'e') || o.has("continue", 0)
	case "add":
		return o.has("edit", 'e')
	}
	return false
}
