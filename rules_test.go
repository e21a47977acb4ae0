package ringfence_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// A rule is one line of rules.txt.
type rule struct {
	imports bool   // the import itself
	path    string // empty for a builtin
	name    string // a pattern of path.Match
	only    bool   // forbidden everywhere but where; else, forbidden there
	where   []string
	reason  string
}

// forbids reports whether r forbids its pattern in f.
func (r rule) forbids(f file) bool {
	if r.only {
		return !f.isTest() && !slices.ContainsFunc(r.where, f.isIn)
	}
	if f.isTest() {
		return slices.Contains(r.where, "tests")
	}
	return slices.ContainsFunc(r.where, f.isIn)
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var rules []rule
	eachLine(t, "rules.txt", func(w []string) {
		r := rule{imports: w[0] == "import"}
		if r.imports {
			w = w[1:]
			r.path = w[0]
		} else if dot := strings.LastIndex(w[0], "."); dot > 0 {
			r.path, r.name = w[0][:dot], w[0][dot+1:]
		} else {
			r.name = w[0]
		}
		colon := slices.Index(w, ":")
		if len(w) < 4 || colon < 2 || colon == len(w)-1 || w[1] != "only" && w[1] != "not" {
			t.Fatalf("rules.txt: want <pattern> <only|not> <where> : <reason>, got %q", strings.Join(w, " "))
		}
		r.only, r.where, r.reason = w[1] == "only", w[2:colon], strings.Join(w[colon+1:], " ")
		rules = append(rules, r)
	})
	return rules
}

// checkRules says what f uses that rules.txt forbids there. Imports are followed
// by name only: a method of a banned type is seen where the type is named.
func checkRules(f file, all []rule) (wrong []string) {
	rules := slices.DeleteFunc(slices.Clone(all), func(r rule) bool { return !r.forbids(f) })
	imported := map[string]string{} // local name → path
	for _, im := range f.ast.Imports {
		p := importPath(im)
		local := path.Base(strings.TrimSuffix(p, "/"+majorVersion.FindString(p)))
		if im.Name != nil {
			local = im.Name.Name
		}
		imported[local] = p
		for _, r := range rules {
			if r.imports && r.path == p {
				wrong = append(wrong, fmt.Sprintf("%s: no import of %s here: %s", f.at(im), p, r.reason))
			}
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		used, name := "", ""
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && imported[x.Name] != "" {
				used, name = imported[x.Name], n.Sel.Name
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok {
				name = id.Name
			}
		}
		for _, r := range rules {
			if ok, _ := path.Match(r.name, name); ok && !r.imports && r.path == used {
				wrong = append(wrong, fmt.Sprintf("%s: no %s here: %s", f.at(n), strings.TrimPrefix(used+"."+name, "."), r.reason))
			}
		}
		return true
	})
	return wrong
}

// checkCode says what f does that no package may.
func checkCode(f file) (wrong []string) {
	no := func(n ast.Node, format string, args ...any) {
		wrong = append(wrong, f.at(n)+": "+fmt.Sprintf(format, args...))
	}
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if loose.MatchString(strings.ReplaceAll(c.Text, "TODO(#", "")) {
				no(c, "a mark without an issue; write TODO(#n), or nothing")
			}
		}
	}
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if fn.Name.Name == "init" && fn.Recv == nil {
			no(fn, "no init: what is imported does nothing until it is called")
		}
		if f.isTest() && calls(fn, "", "Skip", "Skipf", "SkipNow") && !mentionsCI(fn) {
			no(fn, "%s skips without asking os.Getenv(\"CI\"): in CI a skip is a failure", fn.Name.Name)
		}
	}
	if !f.isTest() && !f.isIn("sys/...") && !f.isIn("sandbox") && !f.isIn("sandbox/...") {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if forksByPlatform(n) {
				no(n, "no fork by platform here: it belongs in a file of sys or sandbox")
			}
			return true
		})
		for _, suffix := range []string{"linux", "darwin", "windows", "freebsd", "unix", "other"} {
			if strings.HasSuffix(f.name, "_"+suffix+".go") {
				no(f.ast.Name, "no file for one platform here: it belongs in sys or sandbox")
			}
		}
	}
	return wrong
}

var (
	loose        = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	majorVersion = regexp.MustCompile(`v[0-9]+$`)
)

// calls reports whether fn calls one of names on x, or on anything if x is "".
func calls(fn *ast.FuncDecl, x string, names ...string) (found bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(names, sel.Sel.Name) {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		found = found || x == "" || ok && id.Name == x
		return true
	})
	return found
}

// mentionsCI reports whether fn asks for the variable CI.
func mentionsCI(fn *ast.FuncDecl) (found bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		found = found || ok && lit.Kind == token.STRING && lit.Value == `"CI"`
		return true
	})
	return found && calls(fn, "os", "Getenv")
}

// forksByPlatform reports whether n compares runtime.GOOS or switches over it.
func forksByPlatform(n ast.Node) bool {
	var tested []ast.Expr
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.EQL || n.Op == token.NEQ {
			tested = []ast.Expr{n.X, n.Y}
		}
	case *ast.SwitchStmt:
		tested = []ast.Expr{n.Tag}
	}
	return slices.ContainsFunc(tested, func(e ast.Expr) bool {
		sel, ok := e.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "GOOS" {
			return false
		}
		id, ok := sel.X.(*ast.Ident)
		return ok && id.Name == "runtime"
	})
}

// TestTheTreeTest shows that each check can fail: testdata/shape.txtar holds
// small files, and in their "// want" lines parts of what is wrong with them.
func TestTheTreeTest(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/shape.txtar")
	if err != nil {
		t.Fatal(err)
	}
	layers, owners, rules := readLayers(t), readOwners(t), readRules(t)
	for _, part := range archive.Files {
		t.Run(part.Name, func(t *testing.T) {
			f, err := parseFile(part.Name, part.Data)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Concat(checkLayers(f, layers), checkOwners(f, owners), checkRules(f, rules), checkSize(f), checkCode(f))
			wanted := 0
			for line := range strings.Lines(string(part.Data)) {
				want, ok := strings.CutPrefix(strings.TrimSpace(line), "// want ")
				if !ok {
					continue
				}
				wanted++
				if !slices.ContainsFunc(got, func(g string) bool { return strings.Contains(g, want) }) {
					t.Errorf("nothing says %q", want)
				}
			}
			if len(got) != wanted {
				t.Errorf("%d complaints, want %d:\n%s", len(got), wanted, strings.Join(got, "\n"))
			}
		})
	}
}
