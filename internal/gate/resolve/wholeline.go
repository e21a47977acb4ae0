package resolve

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// wholeLine is a line that a shell runs as it is, and that cannot be resolved beforehand.
// Running that shell is one effect of it; each program that it names is another, wherever in
// the line it stands and whatever it is given; and so is each file that it names as the target
// of a redirection. Where what is run, or written to, is only known when it runs, the line is
// refused: a clause about it could not be held.
func (v View) wholeLine(line, dir string) (*commands, error) {
	c := &commands{view: v, dir: dir, opaque: true, nested: 1}
	if len(line) > maxLine || strings.ContainsAny(line, "\x00\r\x1b") {
		return c, bad("put it in a script", "is longer than %d bytes, or holds control characters", maxLine)
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return c, bad("", "is no command line that can be read: %v", err)
	}
	sh, err := v.program("sh", dir)
	if err != nil {
		return c, err
	}
	if err := c.execute(sh, []string{"sh", "-c", line}); err != nil {
		return c, err
	}
	c.named(strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n\"'`$(){};&|<>", r) }))
	own := map[string]bool{} // functions of the line
	syntax.Walk(file, func(n syntax.Node) bool {
		if f, ok := n.(*syntax.FuncDecl); ok && f.Name != nil {
			own[f.Name.Value] = true
		}
		return true
	})
	syntax.Walk(file, func(n syntax.Node) bool {
		if err != nil {
			return false
		}
		switch n := n.(type) {
		case *syntax.CallExpr:
			err = c.called(n, own)
		case *syntax.Redirect:
			err = c.redirect(n)
		case *syntax.CoprocClause:
			err = bad("run the program itself", "uses coproc, which cannot be resolved beforehand")
		}
		return err == nil
	})
	return c, err
}

// runsOther are builtins of a shell that run what they are given.
var runsOther = []string{"eval", "source", ".", "exec", "command", "builtin", "trap", "alias", "bind", "complete", "enable", "fc"}

// called adds what one call of a line runs.
func (c *commands) called(call *syntax.CallExpr, own map[string]bool) error {
	if len(call.Args) == 0 {
		return nil
	}
	argv := make([]string, len(call.Args))
	for i, w := range call.Args {
		argv[i] = printed(w)
	}
	switch name := call.Args[0].Lit(); {
	case name == "":
		return bad("name the program", "runs %q, which is only known when it runs", argv[0])
	case slices.Contains(runsOther, name):
		return bad("run the program itself", "uses %s, which cannot be resolved beforehand", name)
	case own[name]:
		return nil // what is in it is looked at where it stands
	}
	if _, err := c.view.program(argv[0], c.dir); err != nil && !strings.Contains(argv[0], "/") {
		return nil // a builtin, or nothing: no program of the machine
	}
	return c.run(argv, nil)
}

// printed is a word as it stands in the line, without what only quotes it.
func printed(w *syntax.Word) string {
	if text := w.Lit(); text != "" {
		return text
	}
	var b strings.Builder
	if err := syntax.NewPrinter().Print(&b, w); err != nil {
		return "?"
	}
	return strings.Trim(b.String(), `"'`)
}
