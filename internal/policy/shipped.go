package policy

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed annotations/*.json
var shippedAnnotations embed.FS

// Shipped returns the annotations that come with the program, by name.
func Shipped() (map[string]*Annotation, error) {
	return annotationsIn(shippedAnnotations, "annotations")
}

// annotationsIn returns the annotations in the *.json files of a folder, by
// name; a folder that does not exist has none.
func annotationsIn(fsys fs.FS, folder string) (map[string]*Annotation, error) {
	files, _ := fs.Glob(fsys, path.Join(folder, "*.json")) // the pattern is well formed
	all := map[string]*Annotation{}
	for _, f := range files {
		data, err := fs.ReadFile(fsys, f)
		if err != nil {
			return nil, fmt.Errorf("reading annotation: %w", err)
		}
		a, err := ParseAnnotation(f, data)
		if err != nil {
			return nil, err
		}
		if want := strings.TrimSuffix(path.Base(f), ".json"); a.Name != want {
			return nil, fmt.Errorf("%s: its name is %q, want %q as the file is called", f, clip(a.Name), want)
		}
		all[a.Name] = a
	}
	return all, nil
}
