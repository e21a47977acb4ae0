package container

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
)

// home shows the home of the box's own. What is named beneath it is mounted over it.
func (p *plan) home(s sandbox.Spec) error {
	h := s.Home
	if h == (sandbox.Home{}) {
		return nil
	}
	source, err := filepath.EvalSymlinks(h.From)
	if err != nil {
		return fmt.Errorf("making the home of the box visible: %w", err)
	}
	p.homeFrom, p.homeAt = source, h.Path
	return p.add(source, h.Path, false)
}

// homePlaces makes what mounts beneath the home of the box are mounted on.
func (p *plan) homePlaces(h sandbox.Home) error {
	if h == (sandbox.Home{}) {
		return nil
	}
	for _, m := range p.mounts {
		rel, ok := strings.CutPrefix(m.target, h.Path+"/")
		if !ok || slices.ContainsFunc(p.mounts, func(o mount) bool {
			return o.target != h.Path && strings.HasPrefix(o.target, h.Path+"/") && strings.HasPrefix(m.target, o.target+"/")
		}) {
			continue
		}
		fi, err := m.opened.Stat()
		if err == nil {
			err = h.MakePlace(rel, fi.IsDir())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) homeEvidence() string {
	return fmt.Sprintf("what is mounted at %s is %s", p.homeAt, p.homeFrom)
}
