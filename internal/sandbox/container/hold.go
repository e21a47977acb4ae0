package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/hold"
)

// holding is what the init is told to hold, with paths as they are in the container. Nil
// is nothing: then what is held are mounts alone.
type holding struct {
	Rules hold.Rules
	// Own are the trees and files that the program changes by itself.
	Own []string
	// Private and Reachable are as in [hold.Options].
	Private, Reachable []string
	by                 []string   // what leads to each of Rules.Led
	unseen             []hold.Led // what is not held, and why
}

// liveOf returns what the box may write and the machine sees at once.
func liveOf(s sandbox.Spec) []string {
	live := slices.Clone(s.ReadWrite)
	if s.Workspace.Mode == sandbox.ReadWrite && s.Workspace.Copied == "" {
		live = append(live, s.Workspace.Path)
	}
	return live
}

// supervised reports whether s holds what mounts alone cannot hold.
func supervised(s sandbox.Spec) bool {
	if len(liveOf(s)) == 0 {
		return false
	}
	return !s.LaterWritable || slices.ContainsFunc(s.Held, func(path string) bool {
		fi, err := os.Lstat(path)
		if err != nil || fi.Mode()&os.ModeSymlink != 0 {
			return true
		}
		_, _, links := ownership(fi)
		return fi.Mode().IsRegular() && links > 1
	})
}

// lead finds what things that are held lead to, and returns s without what nobody gets
// to see of that.
func (p *plan) lead(s sandbox.Spec, e *engine) (sandbox.Spec, error) {
	if !supervised(s) || s.LaterWritable && !e.local {
		return s, nil
	}
	if !e.local {
		return s, fmt.Errorf("%s would be writable, and %s is on another kernel, where names that do not exist yet, such as git hooks and settings of editors and agents, cannot be kept from being made: keep what it changes for a review (--review), take it read-only, or use the tier native (--tier native)", liveOf(s)[0], e)
	}
	h := &holding{}
	live := liveOf(s)
	for i, path := range live {
		real, err := s.Real(path)
		if err != nil {
			return s, fmt.Errorf("making a path visible: %w", err)
		}
		live[i] = real
	}
	home := homeOf(s)
	rules := hold.Rules{Writable: live, Later: s.LaterWritable, Home: home}
	global := []string{"/etc/gitconfig"}
	for _, h := range []string{home, homeDir()} {
		global = append(global, h+"/.config/git/config", h+"/.gitconfig")
	}
	for _, root := range live {
		led, err := rules.Follow(root, global...)
		if err != nil {
			return s, err
		}
		for _, l := range led {
			switch {
			case l.Path == "":
				h.unseen = append(h.unseen, l)
			case l.Home:
				s.Denied = append(slices.Clip(s.Denied), l.Path)
			case !slices.Contains(h.Rules.Led, l.Path):
				h.Rules.Led, h.by = append(h.Rules.Led, l.Path), append(h.by, l.By)
			}
		}
	}
	h.Rules.Later, h.Rules.Home = s.LaterWritable, home
	p.held = h
	return s, nil
}

// homeOf returns the home of the person, as the box knows him.
func homeOf(s sandbox.Spec) string {
	home := homeDir()
	for _, e := range s.Env {
		if h, ok := strings.CutPrefix(e, "HOME="); ok && filepath.IsAbs(h) {
			home = filepath.Clean(h)
		}
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	return home
}

// inBox returns where the container has the path real, which is where it is if no mount
// shows it.
func (p *plan) inBox(real string) string {
	if in, ok := p.innermost(real); ok {
		return in.target + strings.TrimPrefix(real, in.real)
	}
	return real
}

// supervise completes what the init is told, when all mounts are known. temps are the
// file systems in memory that the program may write.
func (p *plan) supervise(s sandbox.Spec, temps []string) {
	h := p.held
	if h == nil {
		return
	}
	r := &h.Rules
	for i, led := range r.Led {
		r.Led[i] = p.inBox(led)
	}
	r.Home = p.inBox(r.Home)
	for _, path := range s.Held {
		path = s.Workspace.InCopy(path)
		r.Held = append(r.Held, p.inBox(path), p.inBox(realOf(path)))
	}
	for _, m := range p.mounts {
		switch {
		case m.readOnly:
		case p.homeFrom != "" && m.real == p.homeFrom:
			h.Own = append(h.Own, m.target)
		case p.copy != "" && m.real == p.copy:
			r.Writable, r.Copied = append(r.Writable, m.target), append(r.Copied, m.target)
		default:
			r.Writable = append(r.Writable, m.target)
		}
	}
	h.Own = append(h.Own, temps...)
	h.Own = slices.DeleteFunc(h.Own, func(own string) bool {
		above := slices.ContainsFunc(r.Writable, func(w string) bool { return isBeneath(w, own) })
		if above {
			r.Private = append(r.Private, own)
		}
		return above
	})
	h.Private = append(slices.Clone(temps), "/dev/shm")
	if s.ShowsEgress() {
		h.Reachable = append(h.Reachable, s.Egress)
	}
}

// realOf resolves the links of a path as far as it exists.
func realOf(path string) string {
	rest := ""
	for p := path; len(p) > 1; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
	return path
}

// followed says what is held because something leads there.
func (h *holding) followed() string {
	const most = 16
	var b strings.Builder
	for i, path := range h.Rules.Led {
		if i == most {
			fmt.Fprintf(&b, ", and %d more", len(h.Rules.Led)-most)
			break
		}
		fmt.Fprintf(&b, ", %q (%s)", path, h.by[i])
	}
	text := ""
	if b.Len() > 0 {
		text = "; held because configuration or a link leads there: " + b.String()[2:]
	}
	for _, l := range h.unseen {
		text += "; " + l.Object + ": " + l.By
	}
	return text
}

// untold are the denials that tell what is not held.
func (h *holding) untold() (list []sandbox.Denial) {
	if h == nil {
		return nil
	}
	for _, l := range h.unseen {
		list = append(list, sandbox.Denial{Op: sandbox.OpNotHeld, Object: l.Object, Rule: l.By, Observed: true, Count: 1})
	}
	return list
}

// errNotLive is said where the kernel or the engine lacks what holding names takes.
var errNotLive = errors.New("names in a live tree cannot be held here: keep what the box changes for a review (--review), or take the tree read-only")

// writableTemps are those of a container's file systems in memory that are not empty and
// read-only.
func writableTemps(all map[string]string) (temps []string) {
	for target, options := range all {
		if strings.HasPrefix(options, "rw") {
			temps = append(temps, target)
		}
	}
	slices.Sort(temps)
	return temps
}
