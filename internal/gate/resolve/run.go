package resolve

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// run adds the effects of running argv. words are where argv stands in the
// command line, nil if it stands in none.
func (c *commands) run(argv []string, words []*syntax.Word) error {
	if len(argv) == 0 || argv[0] == "" {
		return bad("", "is an empty command")
	}
	if slices.ContainsFunc(argv, func(a string) bool { return strings.IndexByte(a, 0) >= 0 }) {
		return bad("", "holds a NUL")
	}
	name := argv[0]
	if words != nil {
		if done, err := c.builtin(argv); done || err != nil {
			return err
		}
	}
	c.started = true
	program, err := c.view.program(name, c.dir)
	if err != nil {
		return err
	}
	c.note(program, words)
	if !slices.Contains(c.view.Path, path.Dir(program)) {
		return c.execute(program, argv)
	}
	name = path.Base(program)
	if why, ok := hidesCommand[name]; ok {
		return bad("run the program itself", "runs %s, which %s", name, why)
	}
	if skip, ok := wrappers[name]; ok {
		n, err := skip(argv)
		if err != nil {
			return err
		}
		return c.run(argv[n:], tail(words, n))
	}
	if slices.Contains(shells, name) {
		return c.shell(program, argv)
	}
	if err := checkOptions(name, argv); err != nil {
		return err
	}
	switch name {
	case "make", "gmake":
		if err := c.checkMake(argv); err != nil {
			return err
		}
	case "git":
		if err := c.checkGitPlaces(argv); err != nil {
			return err
		}
		if err := c.execute(program, argv); err != nil {
			return err
		}
		return c.decideStarted(argv)
	}
	return c.execute(program, argv)
}

// note marks the first of words as program, to be dispatched as its path.
func (c *commands) note(program string, words []*syntax.Word) {
	switch {
	case c.nested > 0:
		c.opaque = true
	case len(words) > 0:
		c.edits = append(c.edits, wordEdit{words[0].Pos().Offset(), words[0].End().Offset(), program})
	}
}

func tail(words []*syntax.Word, n int) []*syntax.Word {
	if len(words) < n {
		return nil
	}
	return words[n:]
}

// execute adds the effect of running program with argv.
func (c *commands) execute(program string, argv []string) error {
	text, err := commandText(append([]string{program}, argv[1:]...))
	if err != nil {
		return err
	}
	resource := act.Resource{Type: act.Command, Text: text}
	if name := path.Base(program); c.view.runs(name) == program {
		resource.Facts = map[string]any{policy.FactProgram: name}
	}
	c.effects = append(c.effects, act.Effect{Kind: act.Execute, Resource: resource})
	c.named(argv[1:])
	return nil
}

// maxParts is how often an argument like "--file=a:b" is taken apart.
const maxParts = 4

// named adds a read of every argument that names our own state or credentials:
// what a program does with a path is not known, but these are never only words.
func (c *commands) named(args []string) {
	for _, a := range args {
		for range maxParts {
			p, err := c.view.place(a, c.dir)
			if err == nil {
				class := c.view.classOfPath(p, act.Read, false)
				if class == classOwn || class == classCredentials {
					c.effects = append(c.effects, one(act.Read, pathSubject{c.view, p}.resource(act.Read, false), false)...)
				}
			}
			i := strings.IndexAny(a, "=@:,")
			if i < 0 {
				break
			}
			a = a[i+1:]
		}
	}
}

// builtin handles what the shell itself does; done is false for programs.
func (c *commands) builtin(argv []string) (done bool, err error) {
	switch argv[0] {
	case "cd":
		return true, c.cd(argv)
	case ":", "exit", "wait", "return", "break", "continue", "type", "hash":
		return true, nil
	case "set":
		for _, a := range argv[1:] {
			if strings.Trim(a, "-euxo") != "" && a != "pipefail" {
				return true, bad("", "sets the shell option %q", a)
			}
		}
		return true, nil
	case "command":
		if len(argv) > 1 && (argv[1] == "-v" || argv[1] == "-V") {
			return true, nil
		}
	}
	if slices.Contains(refusedBuiltins, argv[0]) {
		return true, bad("run the program itself", "uses %s, which cannot be resolved beforehand", argv[0])
	}
	return false, nil
}

// shell looks into sh -c; a shell that runs a file is a program like others.
func (c *commands) shell(program string, argv []string) error {
	name := path.Base(program)
	for i := 1; i < len(argv); i++ {
		a := argv[i]
		switch {
		case len(a) > 1 && a[0] == '-' && a[len(a)-1] == 'o' && strings.Trim(a[1:], "euxfo") == "" && i+1 < len(argv) && argv[i+1] == "pipefail":
			i++
		case a == "--norc", a == "--noprofile", a == "--posix":
		case len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "euxfc") == "":
			if !strings.Contains(a, "c") {
				continue
			}
			if i+1 == len(argv) || !slices.Contains(posixShells, name) {
				return bad("run the commands themselves", "runs %s -c in a way that cannot be read", name)
			}
			return c.inner(argv[i+1])
		case strings.HasPrefix(a, "-") || strings.HasPrefix(a, "+"):
			return bad("run the commands themselves", "runs %s with the option %q", name, a)
		default:
			return c.execute(program, argv)
		}
	}
	return bad("run the commands themselves", "runs %s on what it reads from its input", name)
}

// inner reads the command line of sh -c, which runs in a process of its own.
func (c *commands) inner(line string) error {
	if c.nested++; c.nested > maxNested {
		return bad("", "nests shells more than %d deep", maxNested)
	}
	dir := c.dir
	c.started = false
	err := c.parse(line)
	c.dir, c.started = dir, true
	c.nested--
	return err
}

// skipOptions returns a function that finds the command behind a program's own
// options: flags stand alone, valued take the next word, and operands words come
// before the command.
func skipOptions(flags, valued []string, operands int) func([]string) (int, error) {
	return func(argv []string) (int, error) {
		i := 1
		for i < len(argv) && strings.HasPrefix(argv[i], "-") && argv[i] != "-" {
			name, _, hasValue := strings.Cut(argv[i], "=")
			switch {
			case slices.Contains(flags, argv[i]), hasValue && slices.Contains(valued, name):
				i++
			case slices.Contains(valued, argv[i]):
				i += 2
			default:
				return 0, bad("run the program itself", "runs %s with the option %q", argv[0], argv[i])
			}
		}
		if i += operands; i >= len(argv) {
			return 0, bad("", "runs %s without a command", argv[0])
		}
		return i, nil
	}
}

// skipEnv is skipOptions for env: variables come before the command, and an
// option could hide it.
func skipEnv(argv []string) (int, error) {
	for i := 1; i < len(argv); i++ {
		name, _, isVariable := strings.Cut(argv[i], "=")
		switch {
		case strings.HasPrefix(argv[i], "-"):
			return 0, bad("run the program itself", "runs env with the option %q", argv[i])
		case !isVariable:
			return i, nil
		}
		if err := checkVariable(name); err != nil {
			return 0, err
		}
	}
	return 0, bad("", "prints the environment, which may hold secrets")
}
