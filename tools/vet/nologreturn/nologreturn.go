// Package nologreturn finds errors that are both logged and returned, and so
// appear twice, or once more with each layer.
package nologreturn

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports a block that gives an error to log or log/slog and returns it.
var Analyzer = &analysis.Analyzer{
	Name: "nologreturn",
	Doc:  "an error is logged or returned, never both",
	Run:  run,
}

func run(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if block, ok := n.(*ast.BlockStmt); ok {
				checkBlock(pass, block)
			}
			return true
		})
	}
	return nil, nil
}

func checkBlock(pass *analysis.Pass, block *ast.BlockStmt) {
	logged := map[types.Object]bool{}
	for _, stmt := range block.List {
		switch stmt := stmt.(type) {
		case *ast.ExprStmt:
			if call, ok := stmt.X.(*ast.CallExpr); ok && logs(pass, call) {
				for _, arg := range call.Args {
					eachError(pass, arg, func(o types.Object) { logged[o] = true })
				}
			}
		case *ast.ReturnStmt:
			for _, result := range stmt.Results {
				eachError(pass, result, func(o types.Object) {
					if logged[o] {
						pass.Reportf(stmt.Pos(), "%s is logged and returned; do one of them", o.Name())
					}
				})
			}
		}
	}
}

// logs reports whether call is a function or method of log or log/slog.
func logs(pass *analysis.Pass, call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	fn, ok := pass.TypesInfo.Uses[sel.Sel].(*types.Func)
	return ok && fn.Pkg() != nil && (fn.Pkg().Path() == "log" || fn.Pkg().Path() == "log/slog")
}

// eachError calls f for each variable of type error in e.
func eachError(pass *analysis.Pass, e ast.Expr, f func(types.Object)) {
	ast.Inspect(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		v, ok := pass.TypesInfo.Uses[id].(*types.Var)
		if ok && types.Identical(v.Type(), types.Universe.Lookup("error").Type()) {
			f(v)
		}
		return true
	})
}
