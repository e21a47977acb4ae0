// Package zerodeny finds switches over a verdict that do not deny what they do
// not know.
package zerodeny

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports a switch over act.Verdict without a default, and one whose
// default speaks of act.Allow: a value outside the three must end as a denial.
// Outside tests it also reports v != act.Deny, which is true of such a value.
var Analyzer = &analysis.Analyzer{
	Name: "zerodeny",
	Doc:  "a verdict that is not known denies",
	Run:  run,
}

func run(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		test := strings.HasSuffix(pass.Fset.Position(file.Pos()).Filename, "_test.go")
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SwitchStmt:
				if n.Tag != nil && isVerdict(pass.TypesInfo.TypeOf(n.Tag)) {
					checkSwitch(pass, n)
				}
			case *ast.BinaryExpr:
				if !test && n.Op.String() == "!=" && (isConst(pass, n.X, "Deny") || isConst(pass, n.Y, "Deny")) {
					pass.Reportf(n.Pos(), "what is not Deny need not be a verdict; ask for Escalate or Allow")
				}
			}
			return true
		})
	}
	return nil, nil
}

func checkSwitch(pass *analysis.Pass, s *ast.SwitchStmt) {
	var fallback *ast.CaseClause
	for _, stmt := range s.Body.List {
		if clause, ok := stmt.(*ast.CaseClause); ok && clause.List == nil {
			fallback = clause
		}
	}
	if fallback == nil {
		pass.Reportf(s.Pos(), "a switch over a verdict needs a default that denies")
		return
	}
	for _, stmt := range fallback.Body {
		ast.Inspect(stmt, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && isConst(pass, e, "Allow") {
				pass.Reportf(e.Pos(), "the default of a switch over a verdict must deny")
				return false
			}
			return true
		})
	}
}

// isConst reports whether e is the constant name of package act.
func isConst(pass *analysis.Pass, e ast.Expr, name string) bool {
	var id *ast.Ident
	switch e := e.(type) {
	case *ast.Ident:
		id = e
	case *ast.SelectorExpr:
		id = e.Sel
	default:
		return false
	}
	c, ok := pass.TypesInfo.Uses[id].(*types.Const)
	return ok && c.Name() == name && isVerdict(c.Type())
}

func isVerdict(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	return named.Obj().Pkg().Path() == "ringfence/internal/act" && named.Obj().Name() == "Verdict"
}
