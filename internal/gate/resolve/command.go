package resolve

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// The bounds of a command line.
const (
	maxLine     = 16 << 10 // bytes
	maxCommands = 256      // simple commands
	maxNested   = 8        // sh -c inside sh -c
)

// A commandSubject is what a command line or an argv would run.
type commandSubject struct {
	effects []act.Effect
	value   string // to dispatch: the line with programs as paths, or argv[0]
}

func (s commandSubject) real() (string, bool) { return s.value, s.value != "" }

// on returns the effects of the command. Its redirections come with it.
func (s commandSubject) on(k act.Kind, _ bool) ([]act.Effect, error) {
	if k != act.Execute {
		return nil, noEffect(k, "command")
	}
	return s.effects, nil
}

func (r *resolver) command(t *target) (subject, error) {
	dir, err := r.base(t)
	if err != nil {
		return nil, err
	}
	if t.pointer == r.args.leaves[t.leaves[0]].pointer {
		line, err := r.view.commandLine(r.given(t), dir)
		var unresolved *Error
		if t.arg.Shell && errors.As(err, &unresolved) && !unresolved.NotFound {
			line, err = r.view.wholeLine(r.given(t), dir)
		}
		return commandSubject{line.effects, line.rewritten()}, err
	}
	argv := make([]string, len(t.leaves))
	for i, l := range t.leaves {
		argv[i] = r.args.leaves[l].text
	}
	c := &commands{view: r.view, dir: dir}
	if err := c.run(argv, nil); err != nil {
		return nil, err
	}
	program, err := r.view.program(argv[0], dir)
	return commandSubject{c.effects, program}, err
}

// argv returns the effects of running argv in dir.
func (v View) argv(argv []string, dir string) ([]act.Effect, error) {
	c := &commands{view: v, dir: dir}
	err := c.run(argv, nil)
	return c.effects, err
}

// commandLine reads a command line in the grammar of bash and collects what
// every branch of it would run.
func (v View) commandLine(line, dir string) (*commands, error) {
	c := &commands{view: v, dir: dir, line: line}
	return c, c.parse(line)
}

// commands collects the effects of a command line.
type commands struct {
	view    View
	dir     string   // where the next command runs
	trees   []string // besides the workspace, what a person has given the command
	started bool     // something other than cd has run, so cd would be uncertain
	effects []act.Effect
	line    string
	edits   []wordEdit // of line
	nested  int
	count   int
	opaque  bool // a program could not be written as a path in line
}

// A wordEdit is a program to be written as a path.
type wordEdit struct {
	start, end uint
	path       string
}

// rewritten returns the line with every program as its path, "" if it must stay.
func (c *commands) rewritten() string {
	if c.opaque {
		return ""
	}
	var b strings.Builder
	at := uint(0)
	slices.SortFunc(c.edits, func(x, y wordEdit) int { return int(x.start) - int(y.start) })
	for _, e := range c.edits {
		quoted, err := syntax.Quote(e.path, syntax.LangBash)
		if err != nil || e.start < at {
			return ""
		}
		b.WriteString(c.line[at:e.start])
		b.WriteString(quoted)
		at = e.end
	}
	b.WriteString(c.line[at:])
	return b.String()
}

func (c *commands) parse(line string) error {
	if len(line) > maxLine {
		return bad("put it in a script", "is longer than %d bytes", maxLine)
	}
	if strings.ContainsAny(line, "\x00\r\x1b") {
		return bad("", "holds control characters")
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return bad("", "is no command line that can be read: %v", err)
	}
	if len(file.Stmts) == 0 {
		return bad("", "is an empty command")
	}
	return c.stmts(file.Stmts)
}

func (c *commands) stmts(list []*syntax.Stmt) error {
	for _, s := range list {
		if err := c.stmt(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *commands) stmt(s *syntax.Stmt) error {
	if s.Coprocess || s.Disown {
		return bad("", "starts a coprocess")
	}
	if s.Background {
		c.started = true
	}
	for _, r := range s.Redirs {
		if err := c.redirect(r); err != nil {
			return err
		}
	}
	switch cmd := s.Cmd.(type) {
	case nil:
		return nil
	case *syntax.CallExpr:
		return c.call(cmd)
	case *syntax.BinaryCmd:
		if cmd.Op != syntax.AndStmt {
			c.started = true
		}
		if err := c.stmt(cmd.X); err != nil {
			return err
		}
		return c.stmt(cmd.Y)
	case *syntax.Subshell:
		dir := c.dir
		c.started = false
		err := c.stmts(cmd.Stmts)
		c.dir, c.started = dir, true
		return err
	case *syntax.Block:
		c.started = true
		return c.stmts(cmd.Stmts)
	case *syntax.TimeClause:
		if cmd.Stmt == nil {
			return nil
		}
		return c.stmt(cmd.Stmt)
	case *syntax.IfClause:
		return c.branches(cmd)
	case *syntax.WhileClause:
		c.started = true
		if err := c.stmts(cmd.Cond); err != nil {
			return err
		}
		return c.stmts(cmd.Do)
	}
	return bad("write plain commands, or a script in a file", "uses %s, which cannot be resolved beforehand", construct(s.Cmd))
}

func (c *commands) branches(f *syntax.IfClause) error {
	c.started = true
	for ; f != nil; f = f.Else {
		if err := c.stmts(f.Cond); err != nil {
			return err
		}
		if err := c.stmts(f.Then); err != nil {
			return err
		}
	}
	return nil
}

func construct(cmd syntax.Command) string {
	switch cmd.(type) {
	case *syntax.ForClause:
		return "a for loop"
	case *syntax.CaseClause:
		return "case"
	case *syntax.FuncDecl:
		return "a function"
	case *syntax.ArithmCmd, *syntax.LetClause:
		return "arithmetic"
	case *syntax.TestClause:
		return "[[ ]]"
	case *syntax.DeclClause:
		return "export or declare"
	}
	return "a construct"
}

// redirect adds the effect of a redirection.
func (c *commands) redirect(r *syntax.Redirect) error {
	if r.Hdoc != nil {
		if _, err := plainText(r.Hdoc.Parts, true); err != nil {
			return err
		}
	}
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		return bad("", "redirects into a variable")
	}
	word, err := literal(r.Word)
	if err != nil {
		return err
	}
	var kind act.Kind
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		return nil
	case syntax.DplIn, syntax.DplOut:
		if strings.Trim(strings.TrimSuffix(word.value, "-"), "0123456789") == "" {
			return nil
		}
		kind = act.Overwrite
	case syntax.RdrIn:
		kind = act.Read
	case syntax.AppOut, syntax.AppAll:
		kind = act.Append
	case syntax.RdrOut, syntax.RdrClob, syntax.RdrAll, syntax.RdrInOut:
		kind = act.Overwrite
	default:
		return bad("", "uses the redirection %q, which cannot be resolved beforehand", r.Op.String())
	}
	if word.glob {
		return bad("write the file out", "redirects to a pattern")
	}
	return c.file(kind, word)
}

// file adds effects on a file that is redirected from or to.
func (c *commands) file(kind act.Kind, w word) error {
	name := c.path(w)
	switch name {
	case "/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr":
		return nil
	}
	if strings.HasPrefix(name, "/dev/tcp/") || strings.HasPrefix(name, "/dev/udp/") {
		return bad("", "opens a connection by redirecting to %q", name)
	}
	if !strings.HasPrefix(name, "/") {
		name = c.dir + "/" + name
	}
	p, err := c.view.place(name, "/")
	if err != nil {
		return valueError(err, "", w.value)
	}
	if kind == act.Append && !p.exists {
		kind = act.Create
	}
	got, err := pathSubject{c.view, p}.on(kind, false)
	c.effects = append(c.effects, got...)
	return err
}

// path returns the word as the shell passes it on: "~" is replaced if no quote
// protects it.
func (c *commands) path(w word) string {
	if w.tilde {
		return c.view.Home + w.value[1:]
	}
	return w.value
}

// call reads one simple command.
func (c *commands) call(call *syntax.CallExpr) error {
	if c.count++; c.count > maxCommands {
		return bad("put it in a script", "runs more than %d commands", maxCommands)
	}
	for _, a := range call.Assigns {
		if err := checkAssign(a, len(call.Args) > 0); err != nil {
			return err
		}
	}
	argv := make([]string, len(call.Args))
	for i, arg := range call.Args {
		w, err := literal(arg)
		if err != nil {
			return err
		}
		if w.glob && (i == 0 || strings.IndexAny(w.value, "*?[") == 0) {
			return bad(`begin the pattern with "./"`, "begins a word with a pattern: %q", w.value)
		}
		argv[i] = c.path(w)
		if w.glob {
			if err := c.globbed(w); err != nil {
				return err
			}
		}
	}
	return c.run(argv, call.Args)
}

// checkAssign accepts variables that no program takes orders from.
func checkAssign(a *syntax.Assign, before bool) error {
	if a.Append || a.Naked || a.Index != nil || a.Array != nil || a.Value == nil || !before {
		return bad("", "sets the variable %s in a way that cannot be resolved beforehand", a.Name.Value)
	}
	if _, err := literal(a.Value); err != nil {
		return err
	}
	return checkVariable(a.Name.Value)
}

func checkVariable(name string) error {
	if !slices.Contains(harmlessVariables, name) && !strings.HasPrefix(name, "LC_") {
		return bad("", "sets the variable %s, which could change what runs", name)
	}
	return nil
}

// cd follows a change of directory, which is certain only before anything else.
func (c *commands) cd(argv []string) error {
	if c.started || len(argv) != 2 || strings.HasPrefix(argv[1], "-") {
		return bad(`use "cd DIR && …" at the beginning, or a path`, "changes the directory in a way that cannot be resolved beforehand")
	}
	dir := argv[1]
	if !strings.HasPrefix(dir, "/") {
		dir = c.dir + "/" + dir
	}
	p, err := c.view.place(dir, "/")
	if err != nil {
		return valueError(err, "", argv[1])
	}
	if !p.dir() {
		return bad("", "changes into %q, which is no directory", argv[1])
	}
	c.dir = p.path
	return nil
}

// program returns the path of a program that is run in dir. A program of the
// path keeps its name there: programs that are many in one go by it.
func (v View) program(name, dir string) (string, error) {
	if name == "" || hasControl(name) {
		return "", bad("", "runs a program without a name")
	}
	if !strings.Contains(name, "/") {
		if p := v.runs(name); p != "" {
			return p, nil
		}
		return "", bad("the path is "+strings.Join(v.Path, ":"), "runs %q, which is not on the path", name)
	}
	if !strings.HasPrefix(name, "/") {
		name = dir + "/" + name
	}
	p, err := v.place(name, "/")
	if err != nil {
		return "", err
	}
	if p.link != "" && slices.Contains(v.Path, path.Dir(p.link)) {
		return p.link, nil
	}
	if !p.exists || !p.info.Mode.IsRegular() || p.info.Mode&0o111 == 0 {
		err := bad("", "runs %q, which is no program", p.path)
		err.NotFound = !p.exists
		return "", err
	}
	return p.path, nil
}

// runs returns the path of what a bare name runs, "" for nothing.
func (v View) runs(name string) string {
	for _, d := range v.Path {
		if p := join(d, name); executable(p) {
			return p
		}
	}
	return ""
}

// Program returns the path that stands in effects for a bare program name.
func (v View) Program(name string) (string, error) {
	if strings.Contains(name, "/") {
		return "", &Error{Value: name, Why: "is a path, not the name of a program"}
	}
	p, err := v.program(name, "/")
	if err != nil {
		return "", valueError(err, "", name)
	}
	return p, nil
}

func executable(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.Mode().IsRegular() && info.Mode()&fs.FileMode(0o111) != 0
}

// commandText is an argv as JSON.
func commandText(argv []string) (string, error) {
	var b strings.Builder
	b.WriteByte('[')
	for i, a := range argv {
		q, err := strictjson.Quote(a)
		if err != nil {
			return "", bad("", "holds an argument that is no text: %v", err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(q)
	}
	b.WriteByte(']')
	return b.String(), nil
}
