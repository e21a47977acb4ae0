package policy

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

//go:embed annotations/*.json
var shippedAnnotations embed.FS

// Shipped returns the annotations that come with the program, by name.
func Shipped() (map[string]*Annotation, error) {
	entries, err := shippedAnnotations.ReadDir(folderAnnotation)
	files := map[string][]byte{}
	for _, e := range entries {
		name := path.Join(folderAnnotation, e.Name())
		files[name], _ = shippedAnnotations.ReadFile(name) // what cannot be read is no annotation
	}
	all, parseErr := parseAnnotations(files)
	return all, cmp.Or(err, parseErr)
}

// parseAnnotations reads those of files that are annotations, and returns them by
// name.
func parseAnnotations(files map[string][]byte) (map[string]*Annotation, error) {
	all := map[string]*Annotation{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Dir(name) != folderAnnotation {
			continue
		}
		a, err := ParseAnnotation(name, files[name])
		if err != nil {
			return nil, err
		}
		if want := strings.TrimSuffix(path.Base(name), ".json"); a.Name != want {
			return nil, fmt.Errorf("%s: its name is %q, want %q as the file is called", name, clip(a.Name), want)
		}
		all[a.Name] = a
	}
	return all, nil
}
