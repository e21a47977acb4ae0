package native

import (
	"fmt"
	"path/filepath"
	"strings"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/readback"
)

// What a box does in its workspace is kept apart by an overlay, or where none can be
// had by a copy of the workspace. The copy stands at the path of the workspace; in a
// box without mounts of its own it stays where it is, and the box works there.

// apart makes the workspace, whose node is at real, what the Spec says that it is.
func (v *view) apart(w sandbox.Workspace, real string) error {
	n := v.nodes[real]
	switch {
	case w.Copied != "":
		source, err := filepath.EvalSymlinks(w.Copied)
		if err != nil {
			return fmt.Errorf("the copy of the workspace: %w", err)
		}
		n.source = source
	case w.Upper != "":
		n.upper, n.work = w.Upper, w.Work
		if err := checkOverlay(n); err != nil {
			return fmt.Errorf("%w: %w", sandbox.ErrNoOverlay, err)
		}
	default:
		return nil
	}
	v.nodes[real], v.aside = n, real
	return nil
}

// inCopy is a Spec for a box without mounts of its own: what it names in a workspace
// that is a copy is that in the copy.
func (b *builder) inCopy() error {
	w := b.spec.Workspace
	if w.Copied == "" {
		return nil
	}
	for _, list := range [][]string{b.spec.ReadOnly, b.spec.ReadWrite} {
		for _, p := range list {
			if w.InCopy(p) != p {
				return &lackError{fmt.Sprintf("%s within a copy of the workspace", p), b.because}
			}
		}
	}
	b.spec.Dir = w.InCopy(b.spec.WorkingDir())
	b.spec.Denied, b.spec.Held = allInCopy(w, b.spec.Denied), allInCopy(w, b.spec.Held)
	b.spec.Argv = append([]string{w.InCopy(b.spec.Argv[0])}, b.spec.Argv[1:]...)
	b.spec.Workspace.Path = w.Copied
	return nil
}

func allInCopy(w sandbox.Workspace, paths []string) []string {
	all := make([]string, len(paths))
	for i, p := range paths {
		all[i] = w.InCopy(p)
	}
	return all
}

// overlayFailed reports whether step is the one that mounts the workspace as an overlay.
func overlayFailed(step string, w sandbox.Workspace) bool {
	return w.Upper != "" && step == "mount "+realOf(w.Path)
}

// workspace says what stands in for the workspace, if it is not the live tree.
func (r *reporter) workspace(w sandbox.Workspace, f readback.Facts, plain bool) {
	how, want := "copy", w.Copied
	if w.Upper != "" {
		how, want = "overlay", w.Upper
	}
	if want == "" {
		return
	}
	at := realOf(w.Path)
	evidence := fmt.Sprintf("what the box changes in %s goes to %s", at, want)
	if plain {
		evidence = fmt.Sprintf("the box works in %s; the workspace is not writable to it", want)
	}
	for _, m := range f.Mounts {
		switch {
		case m.Point != at || plain:
		case how == "overlay" && m.Type != "overlay", how == "copy" && m.Type == "overlay" && m.Root == "/":
			r.lacks(sandbox.LayerWorkspace, fmt.Sprintf("a file system of type %s is mounted at %s", m.Type, at))
			return
		case how == "overlay":
			r.has(sandbox.LayerWorkspace, how, evidence+"; the mount there is one of type overlay")
			return
		case strings.HasSuffix(want, m.Root):
			r.has(sandbox.LayerWorkspace, how, evidence+"; the mount there is of "+m.Root)
			return
		}
	}
	r.r.Inferred = append(r.r.Inferred, sandbox.LayerWorkspace+"="+how)
	r.r.Evidence[sandbox.LayerWorkspace] = evidence
}
