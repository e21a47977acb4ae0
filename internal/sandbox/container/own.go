package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/homes"
	"ringfence/internal/sys/mounts"
	"ringfence/internal/sys/paths"
)

// hideOwn returns s without our own state, under every name that our mounts give it, and
// without that of others, as far as it is found: cut says where it was not looked for. The
// mounts of a container are those that we know of: see [plan.nested].
func (o Options) hideOwn(s sandbox.Spec) (hidden sandbox.Spec, cut string, err error) {
	s.Denied = slices.Clone(s.Denied)
	for _, own := range o.Own {
		real, err := filepath.EvalSymlinks(own)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, "", fmt.Errorf("our own state: %w", err)
		}
		names, err := mounts.Elsewhere(real)
		if err != nil {
			return s, "", err
		}
		s.Denied = append(append(s.Denied, real), names...)
	}
	foreign, err := paths.ForeignHomes(s.Trees(), o.Own)
	if err != nil {
		return s, "", err
	}
	s.Denied = append(s.Denied, foreign...)
	writable := slices.Clone(s.ReadWrite)
	readable := slices.Clone(s.ReadOnly)
	switch s.Workspace.Mode {
	case sandbox.ReadWrite:
		writable = append(writable, s.Workspace.Path)
	case sandbox.ReadOnly:
		readable = append(readable, s.Workspace.Path)
	case sandbox.NoAccess:
	}
	deep, cut, err := homes.Find(writable, o.Own, s.Denied)
	if err != nil {
		return s, "", err
	}
	deeper, _, err := homes.Find(readable, o.Own, s.Denied)
	s.Denied = slices.Concat(s.Denied, deep, deeper)
	return s, cut, err
}

// checkOwn refuses mounts of what shows our own state in a way that mountinfo does not
// tell of.
func (p *plan) checkOwn(o Options) error {
	table, err := mounts.Here()
	if err != nil {
		return err
	}
	root, err := os.Open(string(filepath.Separator))
	if err != nil {
		return fmt.Errorf("looking for our own state: %w", err)
	}
	defer root.Close()
	for _, own := range o.Own {
		real, err := filepath.EvalSymlinks(own)
		if err != nil {
			continue // it was looked for before
		}
		for _, name := range table.Alike(int(root.Fd()), table, real, p.copy) {
			if in, shown := p.innermost(name); shown && !in.denied {
				return fmt.Errorf("%s would show the state of ringfence (%s), by a mount: give the box another directory, or unmount that", name, real)
			}
		}
	}
	return nil
}
