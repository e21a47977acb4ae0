package native

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/readback"
)

// addHome adds the home of the box's own. What it hides of this machine stays named.
func (v *view) addHome(h sandbox.Home) error {
	if h == (sandbox.Home{}) {
		return nil
	}
	at := realOf(h.Path)
	for _, own := range []string{"/dev", "/proc", "/sys", "/etc", "/usr"} {
		if beneath(at, own) || beneath(own, at) {
			return fmt.Errorf("the home of the box, %s: %s is no place for one", h.Path, at)
		}
	}
	if _, ok := v.nodes[at]; ok {
		return fmt.Errorf("the home of the box, %s, is also named as a path", h.Path)
	}
	source, err := filepath.EvalSymlinks(h.From)
	if err != nil {
		return fmt.Errorf("the directory of the box's home: %w", err)
	}
	if fi, err := os.Lstat(source); err != nil || !fi.IsDir() {
		return fmt.Errorf("the directory of the box's home, %s, is none", h.From)
	}
	v.nodes[at] = node{path: at, kind: kindBind, source: source, dir: true, write: true, mapped: true, home: true}
	if at != h.Path {
		v.link(h.Path, at)
	}
	return nil
}

// homesOf lists the homes that are the box's own.
func homesOf(nodes []node) (paths []string) {
	for _, n := range nodes {
		if n.home {
			paths = append(paths, n.path)
		}
	}
	return paths
}

// mountPoints makes what there must be in the home of the box, so that something of this
// machine can be mounted beneath it.
func (b *builder) mountPoints(nodes []node) error {
	home := homesOf(nodes)
	if len(home) == 0 {
		return nil
	}
	within := func(n, o node) bool {
		return o.path != n.path && o.path != home[0] && o.kind == kindBind && beneath(o.path, home[0]) && beneath(n.path, o.path)
	}
	for _, n := range nodes {
		rel, ok := strings.CutPrefix(n.path, home[0]+"/")
		if !ok || slices.ContainsFunc(nodes, func(o node) bool { return within(n, o) }) {
			continue // what lies in what is of this machine is there already
		}
		if err := b.spec.Home.MakePlace(rel, n.dir || n.kind == kindTmpfs); err != nil {
			return err
		}
	}
	return nil
}

// home says which directory the home of the box is.
func (r *reporter) home(h sandbox.Home, f readback.Facts) {
	if h == (sandbox.Home{}) {
		return
	}
	at, from := realOf(h.Path), realOf(h.From)
	for _, m := range f.Mounts {
		if m.Point == at && strings.HasSuffix(from, m.Root) && !m.ReadOnly() {
			r.has(sandbox.LayerHome, "own", fmt.Sprintf("the mount at %s is of %s, which is %s; what this machine has there is not to be seen but where it is named", at, m.Root, from))
			return
		}
	}
	r.lacks(sandbox.LayerHome, fmt.Sprintf("%s is not mounted at %s", from, at))
}
