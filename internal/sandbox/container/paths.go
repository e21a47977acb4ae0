package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
)

// paths makes the mounts of what the Spec names.
func (p *plan) paths(s sandbox.Spec, e *engine) error {
	switch s.Workspace.Mode {
	case sandbox.ReadOnly:
		s.ReadOnly = append([]string{s.Workspace.Path}, s.ReadOnly...)
	case sandbox.ReadWrite:
		if s.Workspace.Copied == "" {
			s.ReadWrite = append([]string{s.Workspace.Path}, s.ReadWrite...)
		}
	case sandbox.NoAccess:
	}
	if s.ShowsEgress() {
		s.ReadOnly = append(slices.Clone(s.ReadOnly), s.Egress)
	}
	if s.Workspace.Copied != "" {
		if err := p.copied(&s); err != nil {
			return err
		}
	}
	if err := p.home(s); err != nil {
		return err
	}
	for _, path := range s.ReadWrite {
		if err := p.show(s, path, false); err != nil {
			return err
		}
	}
	for _, path := range s.ReadOnly {
		if err := p.show(s, path, true); err != nil {
			return err
		}
	}
	for _, f := range s.Placed {
		if f.Usual {
			continue // what an image has there may be a link, or not be there at all
		}
		if err := p.place(f); err != nil {
			return err
		}
	}
	for _, path := range s.Denied {
		if err := p.deny(path); err != nil {
			return err
		}
	}
	if e.local {
		if err := p.nested(); err != nil {
			return err
		}
	}
	for _, path := range s.Held {
		if p.held != nil {
			break // the init holds them all
		}
		if err := p.hold(path); err != nil {
			return err
		}
	}
	for _, m := range slices.Clone(p.mounts) {
		if m.readOnly && !m.denied {
			if err := p.pin(m.real); err != nil {
				return err
			}
		}
	}
	return p.checkNames(e)
}

// copied shows a copy of the workspace in its place, and makes what s denies and holds
// there that in the copy. Nothing of the copy is run before it was looked at.
func (p *plan) copied(s *sandbox.Spec) error {
	w := s.Workspace
	source, err := filepath.EvalSymlinks(w.Copied)
	if err != nil {
		return fmt.Errorf("making the copy of the workspace visible: %w", err)
	}
	w.Copied, p.copy, p.copyAt = source, source, w.Path
	for _, list := range []*[]string{&s.Denied, &s.Held} {
		*list = slices.Clone(*list)
		for i, path := range *list {
			(*list)[i] = w.InCopy(path)
		}
	}
	return p.add(source, w.Path, false)
}

func (p *plan) copyEvidence() string {
	return fmt.Sprintf("what is mounted at %s is %s", p.copyAt, p.copy)
}

// place adds a file of ours that programs of the box look for.
func (p *plan) place(f sandbox.Placing) error {
	source, err := filepath.EvalSymlinks(f.File)
	if err != nil {
		return fmt.Errorf("what is to be placed at %s: %w", f.Path, err)
	}
	return p.add(source, f.Path, true)
}

// show adds path, with its links resolved, at its own name.
func (p *plan) show(s sandbox.Spec, path string, readOnly bool) error {
	source, err := s.Real(path)
	if err != nil {
		return fmt.Errorf("making a path visible: %w", err)
	}
	return p.add(source, path, readOnly)
}

// add adds a mount. At one target, the stricter mode wins.
func (p *plan) add(source, target string, readOnly bool) error {
	if err := checkTarget(target); err != nil {
		return err
	}
	for i, m := range p.mounts {
		if m.target == target {
			if m.denied {
				return nil
			}
			if m.real != source {
				return fmt.Errorf("%s would be both %s and %s", target, m.real, source)
			}
			p.mounts[i].readOnly = m.readOnly || readOnly
			return nil
		}
	}
	f, id, _, err := openFile(source)
	if err != nil {
		return fmt.Errorf("making a path visible: %w", err)
	}
	p.mounts = append(p.mounts, mount{real: source, source: source, target: target, readOnly: readOnly, id: id, opened: f})
	return nil
}

// ownDir is where our own files are in a container.
const ownDir = "/.ringfence"

func checkTarget(target string) error {
	if !strings.HasPrefix(target, "/") {
		return fmt.Errorf("%s cannot be a path in a container of Linux; run ringfence inside WSL 2", target)
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", ownDir} {
		if target == dir || isBeneath(target, dir) {
			return fmt.Errorf("%s: a container has its own %s", target, dir)
		}
	}
	if target == "/" {
		return errors.New("/: a container has the root of its image")
	}
	return nil
}

// checkNames refuses what an engine would take for something else, and what is
// writable under two names, of which only one would be held.
func (p *plan) checkNames(e *engine) error {
	for _, m := range p.mounts {
		for _, n := range p.mounts {
			inside := n.real == m.real || isBeneath(n.real, m.real)
			if inside && !m.denied && !(m.readOnly && n.readOnly) && n.target != m.target+strings.TrimPrefix(n.real, m.real) {
				return fmt.Errorf("%s and %s would be two names of the same files, and one of them writable", m.target, n.target)
			}
		}
		if e.kind == RuntimePodman && strings.ContainsAny(m.real+m.target, ":,") {
			return fmt.Errorf("%s: Podman cannot mount a path with a colon or a comma", m.target)
		}
	}
	return nil
}

// nested adds the file systems that are mounted beneath what is shown, each in the
// same mode. Mounts do not come along by themselves: what does is not held
// read-only by the engines of today.
func (p *plan) nested() error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("looking for mounts: %w", err)
	}
	defer f.Close()
	points, err := parseMountinfo(f)
	if err != nil {
		return fmt.Errorf("looking for mounts: %w", err)
	}
	for _, m := range slices.Clone(p.mounts) {
		n := 0
		for _, point := range points {
			if !isBeneath(point.target, m.real) || p.closer(point.target, m) {
				continue
			}
			if n++; n > maxNested {
				return fmt.Errorf("%s has more than %d file systems mounted beneath it", m.real, maxNested)
			}
			if err := p.add(point.target, m.target+strings.TrimPrefix(point.target, m.real), m.readOnly); err != nil {
				return err
			}
		}
	}
	return nil
}

// closer reports whether a mount other than m shows path, from closer by.
func (p *plan) closer(path string, m mount) bool {
	return slices.ContainsFunc(p.mounts, func(o mount) bool {
		return o.target != m.target && isBeneath(o.real, m.real) && (o.real == path || isBeneath(path, o.real))
	})
}

// innermost returns the mount that decides over source, if any does.
func (p *plan) innermost(source string) (in mount, ok bool) {
	for _, m := range p.mounts {
		if (m.real == source || isBeneath(source, m.real)) && len(m.real) >= len(in.real) {
			in, ok = m, true
		}
	}
	return in, ok
}

// writable returns the innermost mount of source, if it is writable.
func (p *plan) writable(source string) (in mount, ok bool) {
	in, ok = p.innermost(source)
	return in, ok && !in.readOnly
}

// deny puts something empty in the place of a path, wherever a mount shows it.
func (p *plan) deny(path string) error {
	source, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("denying a path: %w", err)
	}
	fi, err := os.Lstat(source)
	if err != nil {
		return fmt.Errorf("denying a path: %w", err)
	}
	if _, _, links := ownership(fi); fi.Mode().IsRegular() && links > 1 {
		return fmt.Errorf("%s has %d names, and a container can take away only the one; make it a file of its own (cp --remove-destination), or use the tier native", path, links)
	}
	for i, m := range p.mounts {
		if m.real == source {
			p.mounts[i].denied, p.mounts[i].readOnly = true, true
		}
	}
	in, shown := p.innermost(source)
	if !shown || in.denied {
		return nil
	}
	if err := p.add(source, in.target+strings.TrimPrefix(source, in.real), true); err != nil {
		return err
	}
	for i, m := range p.mounts {
		if m.real == source {
			p.mounts[i].denied = true
		}
	}
	return nil
}

// makeStandIns makes, in a directory of ours, what stands in for what is denied:
// files and directories that nobody may open, with places for what is shown beneath.
func (p *plan) makeStandIns(dir string) error {
	for i := range p.mounts {
		m := &p.mounts[i]
		if !m.denied {
			continue
		}
		path := filepath.Join(dir, fmt.Sprintf("denied-%d", i))
		if err := p.standIn(*m, path); err != nil {
			return fmt.Errorf("denying a path: %w", err)
		}
		f, id, _, err := openFile(path)
		if err != nil {
			return fmt.Errorf("denying a path: %w", err)
		}
		m.opened.Close()
		m.source, m.id, m.opened = path, id, f
	}
	return nil
}

func (p *plan) standIn(m mount, path string) error {
	fi, err := os.Lstat(m.real)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return emptyFile(path)
	}
	if err := os.Mkdir(path, 0); err != nil {
		return err
	}
	for _, n := range p.mounts {
		if !isBeneath(n.target, m.target) {
			continue
		}
		const passable = 0o711 // not readable, but a way to what is beneath
		if err := os.Chmod(path, passable); err != nil {
			return err
		}
		place := path + strings.TrimPrefix(n.target, m.target)
		if err := os.MkdirAll(filepath.Dir(place), passable); err != nil {
			return err
		}
		fi, err := os.Lstat(n.real)
		if err != nil {
			return err
		}
		if fi.IsDir() {
			err = os.MkdirAll(place, passable)
		} else {
			err = emptyFile(place)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func emptyFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// hold makes a path that exists read-only in what is writable.
func (p *plan) hold(path string) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return p.cannotHold(path)
	}
	if err != nil {
		return fmt.Errorf("holding a path: %w", err)
	}
	source := filepath.Join(dir, filepath.Base(path))
	in, ok := p.writable(source)
	if !ok {
		return nil // nothing can be changed there
	}
	f, _, fi, err := openFile(source)
	if errors.Is(err, fs.ErrNotExist) {
		return p.cannotHold(path)
	}
	if err != nil {
		return fmt.Errorf("holding a path: %w", err)
	}
	f.Close()
	_, _, links := ownership(fi)
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link, and a container cannot hold the link itself; hold what it points to, or use the tier native", path)
	case fi.Mode().IsRegular() && links > 1:
		return fmt.Errorf("%s has %d names, and a container holds only the one; make it a file of its own (cp --remove-destination), or use the tier native", path, links)
	}
	return p.add(source, in.target+strings.TrimPrefix(source, in.real), true)
}

// cannotHold is the error of holding what does not exist (K5): a mount needs
// something to be mounted on, and making it would leave it on the machine.
func (p *plan) cannotHold(path string) error {
	return fmt.Errorf("%s does not exist, and a container cannot keep a name from being made; create it first, or use the tier native (--tier native)", path)
}

// pin makes every directory from source up to the root of the writable mount
// around it a mount of its own: a directory that only leads to a mount could be
// renamed, and the mount would go with it.
func (p *plan) pin(source string) error {
	for dir := filepath.Dir(source); ; dir = filepath.Dir(dir) {
		in, ok := p.writable(dir)
		if !ok {
			return nil
		}
		if in.real == dir {
			continue
		}
		if err := p.add(dir, in.target+strings.TrimPrefix(dir, in.real), false); err != nil {
			return err
		}
	}
}

// hasNested reports whether a mount stands in another one. Such a one goes away when
// what it stands on is removed or replaced outside.
func (p *plan) hasNested() bool {
	return slices.ContainsFunc(p.mounts, func(m mount) bool {
		return slices.ContainsFunc(p.mounts, func(n mount) bool { return isBeneath(n.target, m.target) })
	})
}
