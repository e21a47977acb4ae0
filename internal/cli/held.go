package cli

import (
	"path/filepath"
	"slices"

	"ringfence/internal/act/places"
	"ringfence/internal/sandbox"
)

// heldIn are those of files that the box of spec could change.
func heldIn(spec sandbox.Spec, files []string) []string {
	trees := slices.Clone(spec.ReadWrite)
	if spec.Workspace.Mode == sandbox.ReadWrite {
		trees = append(trees, spec.Workspace.Path)
	}
	var held []string
	for _, f := range files {
		within := func(tree string) bool {
			real, err := filepath.EvalSymlinks(tree)
			return places.Beneath(f, tree) || err == nil && places.Beneath(f, real)
		}
		if slices.ContainsFunc(trees, within) {
			held = append(held, f)
		}
	}
	return held
}
