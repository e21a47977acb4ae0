package native

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ringfence/internal/sandbox"
)

// addPlaced puts files of ours where programs of the box look for their own. What the Spec
// denies stays denied.
func (v *view) addPlaced(all []sandbox.Placing) error {
	first := map[string]string{} // where a file was placed first
	for _, p := range all {
		fi, err := os.Lstat(p.File)
		if err == nil && !fi.Mode().IsRegular() {
			err = errors.New("it is not a regular file")
		}
		if err != nil {
			return fmt.Errorf("what is to be placed at %s: %w", p.Path, err)
		}
		at, ok := v.placeFor(p.Path)
		_, shown := v.above(at)
		switch {
		case ok && first[p.File] != "" && !shown:
			v.nodes[at] = node{path: at, kind: kindLink, source: first[p.File]} // it costs no mount
		case ok:
			v.nodes[at] = node{path: at, kind: kindBind, source: p.File, mapped: true}
			first[p.File] = cmp.Or(first[p.File], at)
		case !p.Usual:
			return fmt.Errorf("%s cannot be placed in this box: it lies in a tree of the host, which has no such file", p.Path)
		}
	}
	return nil
}

// placeFor returns where a file at path is placed: there, or where a link of the host leads
// from there; false if it can only be made on the host, or is denied.
func (v *view) placeFor(path string) (string, bool) {
	if n, ok := v.nodes[path]; ok && n.kind == kindLink {
		delete(v.nodes, path)
	}
	for range maxLinks {
		above, ok := v.above(path)
		if v.denied(path) {
			return "", false
		}
		if !ok || above.kind == kindTmpfs {
			return path, true
		}
		if above.kind == kindLink {
			path = filepath.Clean(filepath.Join(filepath.Dir(above.path), above.source) + path[len(above.path):])
			if filepath.IsAbs(above.source) {
				path = above.source + path[len(above.path):]
			}
			continue
		}
		if above.kind != kindBind {
			return "", false
		}
		fi, err := os.Lstat(path)
		switch {
		case err != nil:
			return "", false
		case fi.Mode().IsRegular():
			return path, true
		case fi.Mode()&fs.ModeSymlink == 0:
			return "", false
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", false
		}
	}
	return "", false
}

// maxLinks is how many links a path has at most, as in the kernel.
const maxLinks = 40
