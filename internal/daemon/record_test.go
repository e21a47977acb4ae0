package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// TestEntryTypes: the types that people can ask for are those that the sources name.
func TestEntryTypes(t *testing.T) {
	name := regexp.MustCompile(`^([eE]ntry|Type)[A-Z]`)
	var declared []string
	for _, pattern := range []string{"*.go", "../gate/*.go", "../ledger/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				v, ok := n.(*ast.ValueSpec)
				if !ok || len(v.Values) != 1 || !name.MatchString(v.Names[0].Name) {
					return true
				}
				if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					declared = append(declared, text)
				}
				return true
			})
		}
	}
	slices.Sort(declared)
	if got := EntryTypes(); !slices.Equal(got, declared) {
		t.Errorf("types %q\nwant  %q", got, declared)
	}
}
